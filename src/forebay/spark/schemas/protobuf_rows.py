"""Messages of Protobuf as rows, and rows as messages.

A field that a message can tell to be absent is null in its row; others have their default value. Enums are
their names. Timestamps, durations and the wrappers of single values are what they stand for.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from forebay.spark.schemas.decoding import Row, SchemaError

# The numbers of FieldDescriptor.TYPE_*, which Protobuf never changes.
_ENUM, _MESSAGE_TYPES = 14, (10, 11)
_SIMPLE: Mapping[int, pa.DataType] = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),  # int64
    4: pa.decimal128(20, 0),  # uint64
    5: pa.int32(),  # int32
    6: pa.decimal128(20, 0),  # fixed64
    7: pa.int64(),  # fixed32
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),  # uint32
    _ENUM: pa.string(),
    15: pa.int32(),  # sfixed32
    16: pa.int64(),  # sfixed64
    17: pa.int32(),  # sint32
    18: pa.int64(),  # sint64
}
_LARGE = (4, 6)
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_TIMES_US: Mapping[str, range] = {
    _TIMESTAMP: range(-62_135_596_800_000_000, 253_402_300_800_000_000),
    _DURATION: range(-315_576_000_000_000_000, 315_576_000_000_000_001),
}
"""Bounds of Protobuf: the years 1 to 9999, and about as many years either way."""
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)

Convert = Callable[[Any], Any]


# -- types --------------------------------------------------------------------------------------------------


def arrow_fields(message: Any, around: tuple[str, ...] = ()) -> list[pa.Field]:
    """`around` are the messages that this one is in."""
    if message.full_name in around:
        raise SchemaError(
            f"the Protobuf message {message.full_name} holds itself, which has no column type in Spark"
        )
    inside = (*around, message.full_name)
    return [pa.field(field.name, _field_type(field, inside)) for field in message.fields]


def _field_type(field: Any, around: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_single_type(key, around), _single_type(value, around))
    kind = _single_type(field, around)
    return pa.list_(kind) if field.is_repeated else kind


def _single_type(field: Any, around: tuple[str, ...]) -> pa.DataType:
    if field.type not in _MESSAGE_TYPES:
        return _SIMPLE[field.type]
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return pa.timestamp("us", "UTC")
    if name == _DURATION:
        return pa.duration("us")
    if name in _WRAPPERS:
        return _SIMPLE[field.message_type.fields_by_name["value"].type]
    return pa.struct(arrow_fields(field.message_type, around))


def _is_map(field: Any) -> bool:
    return bool(field.type == 11 and field.message_type.GetOptions().map_entry)


# -- messages to rows ---------------------------------------------------------------------------------------


def row_maker(message: Any) -> Convert:
    """Makes a function for messages of this type, which yields rows; all is decided once."""
    getters = [(field.name, _getter(field)) for field in message.fields]

    def to_row(found: Any) -> Row:
        return {name: get(found) for name, get in getters}

    return to_row


def _getter(field: Any) -> Convert:
    name = field.name
    if _is_map(field):
        key, value = (_from_single(field.message_type.fields_by_name[part]) for part in ("key", "value"))
        return lambda message: [(key(k), value(v)) for k, v in getattr(message, name).items()]
    convert = _from_single(field)
    if field.is_repeated:
        return lambda message: [convert(one) for one in getattr(message, name)]
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _from_single(field: Any) -> Convert:
    if field.type in _LARGE:
        return decimal.Decimal
    if field.type == _ENUM:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    if field.type not in _MESSAGE_TYPES:
        return _same
    name = field.message_type.full_name
    if name in _TIMES_US:
        return _time_us
    if name in _WRAPPERS:
        convert = _from_single(field.message_type.fields_by_name["value"])
        return lambda found: convert(found.value)
    return row_maker(field.message_type)


def _time_us(found: Any) -> int:
    time_us: int = found.seconds * 1_000_000 + int(found.nanos / 1_000)
    if time_us not in _TIMES_US[found.DESCRIPTOR.full_name]:
        raise ValueError(f"{found.seconds} seconds are outside of what a {found.DESCRIPTOR.full_name} may be")
    return time_us


def _same(value: Any) -> Any:
    return value


# -- rows to messages ---------------------------------------------------------------------------------------


def fill(message: Any, row: Row) -> None:
    """Nulls stay unset; ValueError for a field that the schema does not have."""
    known = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        field = known.get(name)
        if field is None:
            raise ValueError(f"the Protobuf message {message.DESCRIPTOR.full_name} has no field {name}")
        if value is not None:
            _set(message, field, value)


def _set(message: Any, field: Any, value: Any) -> None:
    if _is_map(field):
        _fill_map(getattr(message, field.name), field.message_type.fields_by_name["value"], value)
    elif field.type in _MESSAGE_TYPES:
        target = getattr(message, field.name)
        if field.is_repeated:
            for one in value:
                _fill_single(target.add(), one)
        else:
            target.SetInParent()
            _fill_single(target, value)
    elif field.is_repeated:
        getattr(message, field.name).extend(_to_scalar(field, one) for one in value)
    else:
        setattr(message, field.name, _to_scalar(field, value))


def _fill_map(target: Any, field: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
    for key, value in pairs:
        if field.type in _MESSAGE_TYPES:
            _fill_single(target[key], value)
        else:
            target[key] = _to_scalar(field, value)


def _fill_single(target: Any, value: Any) -> None:
    name = target.DESCRIPTOR.full_name
    if name in _TIMES_US:
        time_us = _microseconds(value)
        # Both parts of a negative duration are negative; those of a timestamp count upwards.
        sign = -1 if name == _DURATION and time_us < 0 else 1
        seconds, micros = divmod(sign * time_us, 1_000_000)
        target.seconds, target.nanos = sign * seconds, sign * micros * 1_000
    elif name in _WRAPPERS:
        target.value = _to_scalar(target.DESCRIPTOR.fields_by_name["value"], value)
    else:
        fill(target, value)


def _microseconds(value: dt.datetime | dt.timedelta) -> int:
    if isinstance(value, dt.datetime):
        value = (value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)) - _EPOCH
    return value // _MICROSECOND


def _to_scalar(field: Any, value: Any) -> Any:
    if field.type == _ENUM and isinstance(value, str):
        named = field.enum_type.values_by_name.get(value)
        if named is None:
            raise ValueError(f"the Protobuf enum {field.enum_type.full_name} has no {value}")
        return named.number
    if isinstance(value, decimal.Decimal):
        if value != value.to_integral_value():
            raise ValueError(f"{field.full_name} is {value}, which is no whole number: cast it")
        return int(value)
    return value
