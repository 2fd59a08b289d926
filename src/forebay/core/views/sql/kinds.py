"""Static types of expressions, to refuse conditions that could never be true.

Only the value has types that depend on the record. `headers['n'] > 5` compares a text with a number in every
record, and would silently show nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from forebay.core.views.conditions.compiler import Compiler
from forebay.core.views.conditions.expressions import (
    And,
    Arithmetic,
    Call,
    Cast,
    CastType,
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
    parts_of,
)
from forebay.core.views.conditions.functions import FUNCTIONS
from forebay.core.views.conditions.values import KIND_NAMES, KIND_OF
from forebay.core.views.sql.syntax import Source

_NUMBER, _TEXT, _BOOLEAN = KIND_OF[int], KIND_OF[str], KIND_OF[bool]
_HINTS = {
    ColumnName.TIMESTAMP: "; a time is written as TIMESTAMP '2026-01-31 12:00:00'",
    None: "; CAST(... AS BIGINT), AS DOUBLE or AS VARCHAR makes one of the other",
}


def kind_of(expression: Expression) -> int | None:
    """The type of an expression's values, if it is NULL or of one type in all records."""
    match expression:
        case Const(value):
            return None if value is None else KIND_OF[type(value)]
        case Column(ColumnName.KEY | ColumnName.TOPIC) | HeaderOf() | Concat() | Cast(_, CastType.VARCHAR):
            return _TEXT
        case Column() | Now() | Arithmetic():
            return _NUMBER
        case (
            And() | Or() | Not() | Compare() | IsDistinct() | IsNull() | IsTruth() | In() | Like() | Matches()
        ):
            return _BOOLEAN
        case Cast(_, to):
            return _BOOLEAN if to is CastType.BOOLEAN else _NUMBER
        case Call(function, _) if function in FUNCTIONS:
            kind = FUNCTIONS[function].result
            return None if kind is None else KIND_OF[kind]
    return None


def require_one_kind(source: Source, node: exp.Expression, compared: Sequence[Expression]) -> None:
    """Refuse a comparison that is unknown (NULL) in every record."""
    first, *others = compared
    kind = kind_of(first)
    for other in others:
        other_kind = kind_of(other)
        if kind is None or other_kind is None or kind == other_kind:
            continue
        is_time = Column(ColumnName.TIMESTAMP) in (first, other)
        hint = _HINTS[ColumnName.TIMESTAMP if is_time else None]
        raise source.error(
            node,
            f"a {KIND_NAMES[kind]} is compared with a {KIND_NAMES[other_kind]}, which is never true{hint}",
        )


def require_text(source: Source, node: exp.Expression, item: Expression) -> None:
    kind = kind_of(item)
    if kind not in (None, _TEXT):
        raise source.error(node, f"a pattern is for texts, and this is a {KIND_NAMES[kind]}")


def may_be_condition(expression: Expression) -> bool:
    return kind_of(expression) in (None, _BOOLEAN)


def folded(expression: Expression) -> Expression:
    """Fold an expression of constants into a constant, so that it is not computed for every record."""
    parts = parts_of(expression)
    if not isinstance(expression, Arithmetic | Concat | Cast | Call) or not parts:
        return expression
    if not all(isinstance(part, Const) for part in parts):
        return expression
    return Const(Compiler(takes_document=True).value(expression)(None))
