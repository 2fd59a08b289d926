"""The parsed expressions of a view, for the compiler and the prefilter.

The parser's own tree stays in `translation.py`. These nodes are few, immutable, and all valid. Every
expression may be NULL, which is None in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from forebay.lazy import dataclass

Scalar = bool | int | float | str | None


class ColumnName(Enum):
    KEY = "key"
    VALUE = "value"
    HEADERS = "headers"
    TIMESTAMP = "timestamp"
    PARTITION = "partition"
    OFFSET = "offset"
    TOPIC = "topic"


class CastType(Enum):
    BIGINT = "bigint"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    VARCHAR = "varchar"
    TIMESTAMP = "timestamp"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class Const:
    value: Scalar


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is neither a header nor the value."""

    name: ColumnName


@dataclass(frozen=True, slots=True)
class Path:
    """A place in the value's document; without steps it is the whole document."""

    steps: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class HeaderOf:
    """The last header of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Now:
    pass


@dataclass(frozen=True, slots=True)
class And:
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    item: Expression


@dataclass(frozen=True, slots=True)
class Compare:
    operator: str
    """One of = <> < <= > >="""
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsDistinct:
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    item: Expression


@dataclass(frozen=True, slots=True)
class IsTruth:
    """`item IS TRUE` or `item IS FALSE`: never unknown."""

    item: Expression
    truth: bool


@dataclass(frozen=True, slots=True)
class In:
    item: Expression
    choices: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Like:
    item: Expression
    pattern: tuple[str | LikeWildcard, ...]
    """Texts and wildcards, in order; no two texts are neighbours."""
    ignores_case: bool


class LikeWildcard(Enum):
    ANY_TEXT = "%"
    ANY_CHARACTER = "_"


@dataclass(frozen=True, slots=True)
class Matches:
    """A regular expression of RE2 that matches somewhere in a text."""

    item: Expression
    pattern: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    operator: str
    """One of + - * / %"""
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Concat:
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Case:
    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression


@dataclass(frozen=True, slots=True)
class Cast:
    item: Expression
    to: CastType


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Expression, ...]


Expression = (
    Const
    | Column
    | Path
    | HeaderOf
    | Now
    | And
    | Or
    | Not
    | Compare
    | IsDistinct
    | IsNull
    | IsTruth
    | In
    | Like
    | Matches
    | Arithmetic
    | Concat
    | Case
    | Cast
    | Call
)


class NamedExpression(NamedTuple):
    """A column of a selection."""

    name: str
    expression: Expression


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The direct parts of an expression."""
    match expression:
        case And(items) | Or(items):
            return items
        case Not(item) | IsNull(item) | IsTruth(item) | Like(item) | Matches(item) | Cast(item):
            return (item,)
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return (left, right)
        case IsDistinct(left, right) | Concat(left, right):
            return (left, right)
        case In(item, choices):
            return (item, *choices)
        case Case(branches, default):
            return (*(part for branch in branches for part in branch), default)
        case Call(_, arguments):
            return arguments
        case _:
            return ()


def all_parts(expression: Expression) -> Iterator[Expression]:
    """An expression and everything in it."""
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += parts_of(part)


def uses_value(expression: Expression) -> bool:
    return any(isinstance(part, Path) for part in all_parts(expression))


def uses_row(expression: Expression) -> bool:
    """True if an expression uses anything but the value."""
    return any(isinstance(part, Column | HeaderOf | Now) for part in all_parts(expression))


def uses_record(expression: Expression) -> bool:
    """True if an expression may differ between the records of a partition."""
    for part in all_parts(expression):
        match part:
            case Column(ColumnName.PARTITION | ColumnName.TOPIC):
                continue
            case Path() | HeaderOf() | Column():
                return True
    return False


def uses_time(expression: Expression) -> bool:
    """True if an expression depends on the time at which it is evaluated."""
    return any(isinstance(part, Now) for part in all_parts(expression))
