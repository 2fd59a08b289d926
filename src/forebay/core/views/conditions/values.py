"""The values of expressions, and the operators on them.

Values have the types of JSON: text, number, boolean, object, array; NULL is None. Times are numbers of
milliseconds since 1970. Types are known only when a record is read, so nothing here raises: an impossible
operation is NULL, for which no condition is true. Numbers and texts are never compared with each other, and
`true` is not a number, unlike in Python.

Integers are exact within 64 bits; larger ones become floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import orjson

from forebay.core.views.conditions.expressions import CastType

Value = Any
"""None, bool, int, float, str, dict or list."""

_NUMBER, _TEXT, _BOOLEAN = 1, 2, 3
KIND_OF: dict[type, int] = {int: _NUMBER, float: _NUMBER, str: _TEXT, bool: _BOOLEAN}
"""The types of values that have an order; two values are compared if they have the same type."""

KIND_NAMES = {_NUMBER: "number", _TEXT: "text", _BOOLEAN: "boolean"}

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": eq,
    "<>": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""The range of integers in JSON documents, signed or not."""
CONCAT_CHARS_MAX = 1 << 20
DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,4})?", re.ASCII)
_TIME_CHARS_MAX = 40


def compare(operator: Callable[[Any, Any], bool], left: Value, right: Value) -> bool | None:
    kind = KIND_OF.get(type(left))
    if kind is None or kind != KIND_OF.get(type(right)):
        return None
    return operator(left, right)


def is_distinct(left: Value, right: Value) -> bool:
    """IS DISTINCT FROM: NULL is a value like others, and values of different types differ."""
    if left is None or right is None:
        return left is not right
    kind, other = KIND_OF.get(type(left)), KIND_OF.get(type(right))
    if kind is None and other is None:
        first = json_of(left, orjson.OPT_SORT_KEYS)
        return first is None or first != json_of(right, orjson.OPT_SORT_KEYS)
    return kind != other or bool(left != right)


def json_of(value: Value, option: int = 0) -> bytes | None:
    """None for a value that is nested too deeply."""
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:
        return None


def is_number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def fitting(number: int | float) -> int | float | None:
    """The number, as a float if it is an integer beyond 64 bits; NULL if it is not a number any more."""
    if type(number) is int:
        return number if INT_MIN <= number <= INT_MAX else float(number)
    return number if math.isfinite(number) else None


def add(left: Value, right: Value) -> Value:
    return fitting(left + right) if is_number(left) and is_number(right) else None


def subtract(left: Value, right: Value) -> Value:
    return fitting(left - right) if is_number(left) and is_number(right) else None


def multiply(left: Value, right: Value) -> Value:
    return fitting(left * right) if is_number(left) and is_number(right) else None


def divide(left: Value, right: Value) -> Value:
    """The quotient, always as a float: 7 / 2 is 3.5; NULL when divided by zero."""
    if not is_number(left) or not is_number(right) or right == 0:
        return None
    return fitting(left / right)


def modulo(left: Value, right: Value) -> Value:
    """The remainder with the sign of the dividend."""
    if not is_number(left) or not is_number(right) or right == 0:
        return None
    if type(left) is int and type(right) is int:
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return math.fmod(left, right)


ARITHMETIC: dict[str, Callable[[Value, Value], Value]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": modulo,
}


def concat(left: Value, right: Value) -> Value:
    """NULL if the result would be too long: each part may be a whole document."""
    first, second = to_text(left), to_text(right)
    if first is None or second is None or len(first) + len(second) > CONCAT_CHARS_MAX:
        return None
    return first + second


def to_text(value: Value) -> str | None:
    """Numbers, booleans, objects and arrays as in JSON."""
    if value is None or type(value) is str:
        return value
    text = json_of(value)
    return None if text is None else text.decode()


def to_integer(value: Value) -> int | None:
    """Decimals lose their fraction."""
    if type(value) is bool:
        return int(value)
    if type(value) is str:
        text = value.strip()
        if _INTEGER.fullmatch(text):
            value = int(text)
        else:
            value = to_float(text)
    if not is_number(value) or not math.isfinite(value):
        return None
    whole = int(value)
    return whole if INT_MIN <= whole <= INT_MAX else None


def to_float(value: Value) -> float | None:
    if type(value) is str:
        text = value.strip()
        if not _DECIMAL.fullmatch(text):
            return None
        value = float(text)
    elif not isinstance(value, int | float):  # true is 1
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def to_boolean(value: Value) -> bool | None:
    if type(value) is str:
        return {"true": True, "false": False}.get(value.strip().lower())
    if is_number(value):
        return bool(value != 0)
    return value if type(value) is bool else None


def to_timestamp(value: Value) -> int | None:
    """Milliseconds since 1970 of an ISO 8601 text, in UTC if it names no zone; numbers stay as they are."""
    if is_number(value):
        return to_integer(value)
    if type(value) is not str or len(value) > _TIME_CHARS_MAX:
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def to_date(value: Value) -> int | None:
    """The start of the day in UTC."""
    moment = to_timestamp(value)
    if moment is None or moment - moment % DAY_MS < INT_MIN:
        return None
    return moment - moment % DAY_MS


CASTS: dict[CastType, Callable[[Value], Value]] = {
    CastType.BIGINT: to_integer,
    CastType.DOUBLE: to_float,
    CastType.BOOLEAN: to_boolean,
    CastType.VARCHAR: to_text,
    CastType.TIMESTAMP: to_timestamp,
    CastType.DATE: to_date,
}
