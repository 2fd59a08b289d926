"""Constants, types and intervals as the parser returns them."""

from __future__ import annotations

import math

from sqlglot import exp

from forebay.core.views.conditions.expressions import CastType, Const
from forebay.core.views.conditions.values import DAY_MS, INT_MAX, INT_MIN
from forebay.core.views.sql.syntax import Source

_DIGITS_MAX = 400
_INTERVAL_MS = {
    "MILLISECOND": 1,
    "SECOND": 1000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": DAY_MS,
    "WEEK": 7 * DAY_MS,
}
_TYPES = {
    CastType.BIGINT: ["BIGINT", "INT", "INTEGER", "SMALLINT", "TINYINT", "LONG"],
    CastType.DOUBLE: ["DOUBLE", "FLOAT", "REAL", "DECIMAL", "NUMERIC"],
    CastType.BOOLEAN: ["BOOLEAN", "BOOL"],
    CastType.VARCHAR: ["VARCHAR", "TEXT", "STRING", "CHAR", "NVARCHAR"],
    CastType.TIMESTAMP: ["TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "TIMESTAMPLTZ", "DATETIME"],
    CastType.DATE: ["DATE"],
}
_TYPE_OF_NAME = {name: to for to, names in _TYPES.items() for name in names}


def read_literal(source: Source, node: exp.Literal) -> Const:
    text = str(node.this)
    if node.is_string:
        return Const(text)
    if len(text) > _DIGITS_MAX:
        raise source.error(node, "the number has too many digits")
    if text.isascii() and text.isdigit() and INT_MIN <= int(text) <= INT_MAX:
        return Const(int(text))
    try:
        number = float(text)
    except ValueError:
        raise source.error(node, f"{text} is no number") from None
    if not math.isfinite(number):
        raise source.error(node, f"{text} is too large for a number")
    return Const(number)


def read_type(source: Source, node: exp.Expression, to: exp.Expression) -> CastType:
    name = str(getattr(to.this, "value", to.this)).upper()
    if name not in _TYPE_OF_NAME or to.expressions:
        names = ", ".join(one.value for one in CastType)
        raise source.error(node, f"{to.sql()} is no type of a view; there are {names}")
    return _TYPE_OF_NAME[name]


def read_interval(source: Source, node: exp.Interval) -> Const:
    """An interval as milliseconds. Months and years have no fixed length, and are refused."""
    unit = str(node.unit.name if node.unit is not None else "").upper()
    unit_ms = _INTERVAL_MS.get(unit) or _INTERVAL_MS.get(unit.removesuffix("S"))
    negative = isinstance(node.this, exp.Neg)
    amount = node.this.this if negative else node.this
    if unit_ms is None or not isinstance(amount, exp.Literal):
        raise source.error(node, "an interval is written so: INTERVAL '5 minutes'; week is the largest unit")
    try:
        milliseconds = round(float(str(amount.this)) * unit_ms)
    except (ValueError, OverflowError):
        raise source.error(node, f"{amount.this} is no number") from None
    if not INT_MIN <= milliseconds <= -INT_MIN:
        raise source.error(node, f"{amount.this} is too large for an interval")
    return Const(-milliseconds if negative else milliseconds)
