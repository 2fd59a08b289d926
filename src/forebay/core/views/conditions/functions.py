"""The functions that expressions may call, on known values.

The result is NULL for NULL, or for a value of an unsupported type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import eq
from typing import NamedTuple

from forebay.core.views.conditions.values import Value, compare, fitting, is_number

COALESCE = "coalesce"
"""Not in the table: it evaluates its arguments only as far as necessary."""
_DIGITS_MAX = 300


class Function(NamedTuple):
    apply: Callable[..., Value]
    arguments_min: int
    arguments_max: int
    result: type | None
    """The type of the result, if it is always the same or NULL."""


def _lower(text: Value) -> Value:
    return text.lower() if type(text) is str else None


def _upper(text: Value) -> Value:
    return text.upper() if type(text) is str else None


def _trim(text: Value) -> Value:
    return text.strip(" ") if type(text) is str else None


def _length(value: Value) -> Value:
    """The number of characters of a text, or of elements of an array."""
    return len(value) if type(value) is str or type(value) is list else None


def _starts_with(text: Value, start: Value) -> Value:
    return text.startswith(start) if type(text) is str and type(start) is str else None


def _ends_with(text: Value, end: Value) -> Value:
    return text.endswith(end) if type(text) is str and type(end) is str else None


def _contains(text: Value, part: Value) -> Value:
    return part in text if type(text) is str and type(part) is str else None


def _substring(text: Value, start: Value, length: Value = math.inf) -> Value:
    """Characters are counted from 1; positions before the beginning count, and are empty."""
    if type(text) is not str or type(start) is not int or not is_number(length) or length < 0:
        return None
    stop = min(start - 1 + length, len(text))
    return text[max(start - 1, 0) : max(int(stop), 0)]


def _abs(number: Value) -> Value:
    return abs(number) if is_number(number) else None


def _floor(number: Value) -> Value:
    return fitting(math.floor(number)) if is_number(number) else None


def _ceil(number: Value) -> Value:
    return fitting(math.ceil(number)) if is_number(number) else None


def _round(number: Value, digits: Value = 0) -> Value:
    """Halves are rounded away from zero, as in SQL, not to the even neighbour, as in Python."""
    if not is_number(number) or type(digits) is not int or not 0 <= digits <= _DIGITS_MAX:
        return None
    if type(number) is int:
        return number
    scale = 10.0**digits
    scaled = abs(number) * scale
    if not math.isfinite(scaled):
        return number
    whole = math.floor(scaled)  # scaled + 0.5 may be rounded itself
    rounded = (whole + (scaled - whole >= 0.5)) / scale
    return math.copysign(rounded, number)


def _nullif(value: Value, other: Value) -> Value:
    return None if compare(eq, value, other) else value


FUNCTIONS: dict[str, Function] = {
    "lower": Function(_lower, 1, 1, str),
    "upper": Function(_upper, 1, 1, str),
    "trim": Function(_trim, 1, 1, str),
    "length": Function(_length, 1, 1, int),
    "starts_with": Function(_starts_with, 2, 2, bool),
    "ends_with": Function(_ends_with, 2, 2, bool),
    "contains": Function(_contains, 2, 2, bool),
    "substring": Function(_substring, 2, 3, str),
    "abs": Function(_abs, 1, 1, float),
    "floor": Function(_floor, 1, 1, float),
    "ceil": Function(_ceil, 1, 1, float),
    "round": Function(_round, 1, 2, float),
    "nullif": Function(_nullif, 2, 2, None),
}
