"""A column of an archive with the fields of its values, beside the values themselves.

The schema is the one that the subject had when the archive was made: all files have the same columns.
Values of later schemas are read into it. A value that does not fit has no fields; nothing is lost by that,
since the bytes are there too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from forebay.lazy import dataclass
from forebay.spark.pipelines.archiving.layout import FIELDS, SCHEMA, Position
from forebay.spark.pipelines.queries.values import KINDS, ValueFormat, registered
from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding, SchemaError

AddFields = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    format: str
    """One of `DECODED_FORMATS`."""
    registry: str
    subject: str | None = None
    """`<topic>-value` unless given."""
    message: str = ""
    """Protobuf: which message of the schema; the first unless given."""


DECODED_FORMATS = tuple(KINDS)


def looked_up(settings: DecodeSettings, topic: str) -> dict[str, Any]:
    """The latest schema, as the position of an archive keeps it."""
    subject = settings.subject or f"{topic}-value"
    found = registered(settings.format, settings.registry, subject, settings.message)
    _column(_planned(found.decoding()))
    return found.to_keep()


def decoding(position: Position, settings: DecodeSettings | None = None) -> Decoding | None:
    """How the archive decodes; the address of the registry is that of now, which may have a password."""
    if position.decoded is None:
        return None
    kept = ValueFormat(**position.decoded)
    return _planned((kept if settings is None else replace(kept, registry=settings.registry)).decoding())


def file_schema(position: Position) -> pa.Schema:
    """The columns of the archive's files."""
    how = decoding(position)
    return SCHEMA if how is None else SCHEMA.append(_column(how))


@functools.cache
def _planned(how: Decoding) -> Decoding:
    return codecs.planned(how)


def adder(how: Decoding) -> AddFields:
    """For a worker: the rows with their fields."""
    field = _column(how)
    read = _reader(how)

    def add(rows: pa.Table) -> pa.Table:
        decoded = (None if value is None else read(value) for value in rows.column("value").to_pylist())
        fields = [None if row is None or codecs.CORRUPT in row else row for row in decoded]
        return rows.append_column(field, codecs.array_of(fields, field.type, lambda _problem: None))

    return add


@functools.cache
def _reader(how: Decoding) -> Callable[[bytes | None], dict[str, Any]]:
    return codecs.reader(how)


def _column(how: Decoding) -> pa.Field:
    return _stored(pa.field(FIELDS, pa.struct(codecs.fields(how))))


def _stored(field: pa.Field) -> pa.Field:
    """Files have no durations: they are microseconds there, which is how they are decoded."""
    return pa.field(field.name, _stored_type(field.type))


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise SchemaError("an archive has no column for a message without fields: leave out --decode")
        return pa.struct([_stored(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _stored_type(kind.item_type))
    return pa.list_(_stored_type(kind.value_type)) if pa.types.is_list(kind) else kind
