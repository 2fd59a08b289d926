"""Compiles expressions into closures: each node becomes a function over the functions of its parts.

There are two kinds of functions. A *value* function returns the value of an expression, which may be NULL:
comparisons and AND, OR, NOT have SQL's three values. A *test* is True only if a condition is true, which is
all that WHERE needs; it treats false and unknown alike, so most conditions have a shorter test than value
function.

Their argument depends on the columns that the view uses. If it uses only the value, the argument is the
document; otherwise it is a Row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import eq
from typing import Any

from forebay.core.views.conditions.expressions import (
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    Column,
    ColumnName,
    Compare,
    Concat,
    Const,
    Expression,
    HeaderOf,
    In,
    IsDistinct,
    IsNull,
    IsTruth,
    Like,
    Matches,
    Not,
    Now,
    Or,
    Path,
    uses_value,
)
from forebay.core.views.conditions.functions import COALESCE, FUNCTIONS
from forebay.core.views.conditions.limits import TooMuchWork
from forebay.core.views.conditions.paths import path_getter
from forebay.core.views.conditions.patterns import Pattern, TextTest, like_pattern, regex_pattern
from forebay.core.views.conditions.rows import Row
from forebay.core.views.conditions.values import (
    ARITHMETIC,
    CASTS,
    COMPARISONS,
    KIND_OF,
    Value,
    compare,
    concat,
    is_distinct,
)

Evaluate = Callable[[Any], Value]
Test = Callable[[Any], bool]

_UTF8_BYTES_MAX = 4
"""The maximum of a character."""


_COLUMNS: dict[ColumnName, Evaluate] = {
    ColumnName.KEY: Row.key,
    ColumnName.TIMESTAMP: lambda row: row.timestamp,
    ColumnName.PARTITION: lambda row: row.partition,
    ColumnName.OFFSET: lambda row: row.offset,
    ColumnName.TOPIC: lambda row: row.topic,
}


class Patterns:
    """The patterns of a query: each is compiled by RE2 once, however often it occurs."""

    def __init__(self) -> None:
        self._made: dict[object, Pattern] = {}

    def of(self, expression: Like | Matches) -> Pattern:
        """Raises ValueError for an invalid pattern."""
        match expression:
            case Like(_, pattern, ignores_case):
                key: object = (pattern, ignores_case)
            case Matches(_, text):
                key = text
        if key not in self._made:
            self._made[key] = _new_pattern(expression)
        return self._made[key]


def _new_pattern(expression: Like | Matches) -> Pattern:
    match expression:
        case Like(_, pattern, ignores_case):
            return like_pattern(pattern, ignores_case=ignores_case)
        case Matches(_, text):
            return regex_pattern(text)


class Compiler:
    def __init__(
        self,
        *,
        takes_document: bool,
        patterns: Patterns | None = None,
        pattern_bytes_max: int = sys.maxsize,
    ) -> None:
        """`pattern_bytes_max`: the size limit of a text that is matched by RE2."""
        self._takes_document = takes_document
        self._patterns = patterns or Patterns()
        self._pattern_bytes_max = pattern_bytes_max

    def test(self, expression: Expression) -> Test:
        match expression:
            case And(items):
                return _all([self.test(item) for item in sorted(items, key=uses_value)])
            case Or(items):
                return _any([self.test(item) for item in sorted(items, key=uses_value)])
            case Compare("=", item, Const(str(constant))):
                value = self.value(item)
                return lambda row: value(row) == constant
            case Compare(operator, item, Const(int() | float() as constant)) if type(constant) is not bool:
                return _number_test(operator, self.value(item), constant)
            case IsNull(item):
                value = self.value(item)
                return lambda row: value(row) is None
            case Not(IsNull(item)):
                value = self.value(item)
                return lambda row: value(row) is not None
        value = self.value(expression)
        return lambda row: value(row) is True

    def value(self, expression: Expression) -> Evaluate:
        match expression:
            case Const(constant):
                return lambda row: constant  # noqa: ARG005
            case Path(steps):
                return path_getter(steps, takes_document=self._takes_document)
            case HeaderOf(name):
                return lambda row: row.header(name)
            case Column(name):
                return _COLUMNS[name]
            case Now():
                return lambda row: row.now_ms
            case Cast(item, to):
                return _applied(CASTS[to], [self.value(item)])
            case Call(function, arguments):
                return self._call(function, [self.value(argument) for argument in arguments])
            case Arithmetic(operator, left, right):
                return _applied(ARITHMETIC[operator], [self.value(left), self.value(right)])
            case Concat(left, right):
                return _applied(concat, [self.value(left), self.value(right)])
            case Case(branches, default):
                choices = [(self.test(condition), self.value(result)) for condition, result in branches]
                return _case(choices, self.value(default))
        return self._condition(expression)

    def _condition(self, expression: Expression) -> Evaluate:
        match expression:
            case And(items):
                return _and([self.value(item) for item in items])
            case Or(items):
                return _or([self.value(item) for item in items])
            case Not(item):
                return _not(self.value(item))
            case Compare(operator, left, right):
                return _compared(operator, self.value(left), self.value(right))
            case IsDistinct(left, right):
                return _applied(is_distinct, [self.value(left), self.value(right)])
            case IsNull(item):
                value = self.value(item)
                return lambda row: value(row) is None
            case IsTruth(item, truth):
                value = self.value(item)
                return lambda row: value(row) is truth
            case In(item, choices):
                return self._in(item, choices)
            case Like(item) | Matches(item):
                return self._matched(self.value(item), self._patterns.of(expression))
        raise AssertionError(f"no way to compile {expression}")

    def _matched(self, value: Evaluate, pattern: Pattern) -> Evaluate:
        if not pattern.size:
            return _on_text(value, pattern.test)
        return _on_bounded_text(value, pattern.test, self._pattern_bytes_max)

    def _call(self, function: str, arguments: list[Evaluate]) -> Evaluate:
        if function == COALESCE:
            return _coalesce(arguments)
        return _applied(FUNCTIONS[function].apply, arguments)

    def _in(self, item: Expression, choices: Sequence[Expression]) -> Evaluate:
        constants = [choice.value for choice in choices if isinstance(choice, Const)]
        others = [self.value(choice) for choice in choices if not isinstance(choice, Const)]
        value, among = self.value(item), _among(constants) if constants else None
        if not others:
            assert among is not None, "IN has a choice"
            return _applied(among, [value])
        return _in_any(value, among, others)


def _all(tests: Sequence[Test]) -> Test:
    if not tests:
        return lambda row: True  # noqa: ARG005
    if len(tests) == 1:
        return tests[0]
    if len(tests) == 2:
        first, second = tests
        return lambda row: first(row) and second(row)

    def test(row: Any) -> bool:
        for one in tests:  # noqa: SIM110
            if not one(row):
                return False
        return True

    return test


def _any(tests: Sequence[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda row: first(row) or second(row)

    def test(row: Any) -> bool:
        for one in tests:  # noqa: SIM110
            if one(row):
                return True
        return False

    return test


def _number_test(operator: str, value: Evaluate, constant: int | float) -> Test:
    """A comparison with a number, the most frequent condition: False for every other type of value."""
    holds = COMPARISONS[operator]

    def test(row: Any) -> bool:
        number = value(row)
        kind = type(number)
        return (kind is int or kind is float) and holds(number, constant)

    return test


def _compared(operator: str, left: Evaluate, right: Evaluate) -> Evaluate:
    holds = COMPARISONS[operator]
    return lambda row: compare(holds, left(row), right(row))


def _among(constants: Sequence[Value]) -> Callable[[Value], bool | None]:
    """True if found, False if not, None if unknown: a NULL or a constant of another type is among them."""
    by_kind: dict[int, set[Value]] = {}
    for constant in constants:
        if constant is not None:
            by_kind.setdefault(KIND_OF[type(constant)], set()).add(constant)
    otherwise = False if len(by_kind) == 1 and None not in constants else None

    def found(item: Value) -> bool | None:
        kind = KIND_OF.get(type(item))
        if kind is None:
            return None
        same_kind = by_kind.get(kind)
        if same_kind is None:
            return None
        return True if item in same_kind else otherwise

    return found


def _in_any(
    value: Evaluate, among: Callable[[Value], bool | None] | None, others: Sequence[Evaluate]
) -> Evaluate:
    """The item is evaluated once, however many values it is compared with."""

    def found(row: Any) -> bool | None:
        item = value(row)
        result = False if among is None else among(item)
        if result is True:
            return True
        for other in others:
            one = compare(eq, item, other(row))
            if one is True:
                return True
            if one is None:
                result = None
        return result

    return found


def _and(values: Sequence[Evaluate]) -> Evaluate:
    def both(row: Any) -> bool | None:
        result: bool | None = True
        for value in values:
            one = value(row)
            if one is False:
                return False
            if one is not True:
                result = None
        return result

    return both


def _or(values: Sequence[Evaluate]) -> Evaluate:
    def either(row: Any) -> bool | None:
        result: bool | None = False
        for value in values:
            one = value(row)
            if one is True:
                return True
            if one is not False:
                result = None
        return result

    return either


def _not(value: Evaluate) -> Evaluate:
    def negated(row: Any) -> bool | None:
        one = value(row)
        return not one if type(one) is bool else None

    return negated


def _on_text(value: Evaluate, test: TextTest) -> Evaluate:
    def tested(row: Any) -> bool | None:
        text = value(row)
        return test(text) if type(text) is str else None

    return tested


def _on_bounded_text(value: Evaluate, test: TextTest, bytes_max: int) -> Evaluate:
    def tested(row: Any) -> bool | None:
        text = value(row)
        if type(text) is not str:
            return None
        if (len(text) if text.isascii() else len(text) * _UTF8_BYTES_MAX) > bytes_max:
            raise TooMuchWork
        return test(text)

    return tested


def _case(choices: Sequence[tuple[Test, Evaluate]], default: Evaluate) -> Evaluate:
    def chosen(row: Any) -> Value:
        for condition, result in choices:
            if condition(row):
                return result(row)
        return default(row)

    return chosen


def _coalesce(values: Sequence[Evaluate]) -> Evaluate:
    def first(row: Any) -> Value:
        for value in values:
            one = value(row)
            if one is not None:
                return one
        return None

    return first


def _applied(function: Callable[..., Value], arguments: Sequence[Evaluate]) -> Evaluate:
    """The function applied to the values of its arguments."""
    match list(arguments):
        case [only]:
            return lambda row: function(only(row))
        case [left, right]:
            return lambda row: function(left(row), right(row))
        case several:
            return lambda row: function(*(argument(row) for argument in several))
