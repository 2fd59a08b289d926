"""A column of an archive with the fields of its values, beside the values themselves.

The column has the fields of the subject's latest schema, and those of all schemas before it since the archive
was made (evolution.py). A value that does not fit has no fields; nothing is lost by that, since the bytes are
there too.
"""

from __future__ import annotations

import base64
import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from forebay.errors import ForebayError
from forebay.lazy import dataclass
from forebay.spark.pipelines.archiving.evolution import widened
from forebay.spark.pipelines.archiving.layout import FIELDS, ICEBERG, SCHEMA, Position
from forebay.spark.pipelines.queries.values import KINDS, ValueFormat, registered
from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding, SchemaError

log = logging.getLogger(__name__)

AddFields = Callable[[pa.Table], pa.Table]
_SUBJECT = "subject"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    format: str
    """One of `DECODED_FORMATS`."""
    registry: str
    subject: str | None = None
    """`<topic>-value` unless given."""
    message: str = ""
    """Protobuf: which message of the schema; the first unless given."""

    def subject_of(self, topic: str) -> str:
        return self.subject or f"{topic}-value"


DECODED_FORMATS = tuple(KINDS)


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """How values become the column FIELDS; goes to every task."""

    how: Decoding
    field: pa.Field


def looked_up(settings: DecodeSettings, topic: str) -> dict[str, Any]:
    """The latest schema, as the position of an archive keeps it."""
    subject = settings.subject_of(topic)
    found = registered(settings.format, settings.registry, subject, settings.message)
    _column(_planned(found.decoding()))
    return {**found.to_keep(), _SUBJECT: subject}


def decoding(position: Position, settings: DecodeSettings | None = None) -> DecodedColumn | None:
    """How the archive decodes; the address of the registry is that of now, which may have a password."""
    if position.decoded is None:
        return None
    how = _planned(_kept(position.decoded, settings).decoding())
    return DecodedColumn(how, _column(how) if position.columns is None else _from_text(position.columns))


def file_schema(position: Position) -> pa.Schema:
    """The columns of the archive's files."""
    column = decoding(position)
    return SCHEMA if column is None else SCHEMA.append(column.field)


# -- a schema that changes -----------------------------------------------------------------------------------


class Evolved(NamedTuple):
    position: Position
    added: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """As in `evolution.Widened`."""


def evolved(position: Position, settings: DecodeSettings | None = None) -> Evolved:
    """The position with the latest schema of its subject, and with its new fields as columns.

    A registry that does not answer is no reason to stop: values of a schema that is known can be decoded.
    """
    kept = position.decoded
    subject = None if kept is None else _subject(kept, settings, position.topic)
    if kept is None or subject is None:
        return Evolved(position)
    before = _kept(kept, settings)
    try:
        found = registered(before.format, before.registry, subject, before.message, patient=False)
        if found.schema_id == before.schema_id:
            return Evolved(position)
        column = _column(_planned(found.decoding()))
    except ForebayError as error:
        log.warning("the archive of %s keeps its schema: %s", position.topic, error)
        return Evolved(position)
    known = decoding(position)
    assert known is not None
    wider = widened(known.field.type, column.type, promotes=position.format == ICEBERG)
    after = replace(
        position,
        decoded={**found.to_keep(), _SUBJECT: subject},
        columns=_to_text(pa.field(FIELDS, wider.kind)),
    )
    return Evolved(after, wider.added, wider.kept)


def _subject(kept: Mapping[str, Any], settings: DecodeSettings | None, topic: str) -> str | None:
    """Archives of earlier versions do not say which subject it was."""
    known: str | None = kept.get(_SUBJECT)
    return known if known is not None or settings is None else settings.subject_of(topic)


def _kept(decoded: Mapping[str, Any], settings: DecodeSettings | None) -> ValueFormat:
    kept = ValueFormat(**{name: value for name, value in decoded.items() if name != _SUBJECT})
    return kept if settings is None else replace(kept, registry=settings.registry)


def _to_text(field: pa.Field) -> str:
    return base64.b64encode(pa.schema([field]).serialize().to_pybytes()).decode()


def _from_text(text: str) -> pa.Field:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field(0)


# -- in a worker ---------------------------------------------------------------------------------------------


def adder(column: DecodedColumn) -> AddFields:
    """Makes the rows with their fields."""

    def add(rows: pa.Table) -> pa.Table:
        return rows.append_column(column.field, decoded_values(column, rows.column("value"))[0])

    return add


def decoded_values(column: DecodedColumn, values: pa.ChunkedArray) -> tuple[pa.Array, list[str | None]]:
    """The fields of values, null for those that do not fit; and the reason for each of these."""
    read = _reader(column.how)
    given = values.to_pylist()
    rows = [None if value is None else read(value) for value in given]
    reasons = [None if row is None else codecs.problem_of(row) for row in rows]
    fields = [row if reason is None else None for row, reason in zip(rows, reasons, strict=True)]
    array = codecs.array_of(fields, column.field.type, lambda _problem: None)
    if array.null_count > fields.count(None):
        for n, fits in enumerate(array.is_valid().to_pylist()):
            if not fits and fields[n] is not None:
                reasons[n] = _problem(fields[n], column.field.type)
    return array, reasons


def _problem(row: Any, kind: pa.DataType) -> str:
    """The reason why a value that can be decoded does not fit its column."""
    problems: list[str] = []
    codecs.array_of([row], kind, problems.append)
    return problems[0] if problems else "the column cannot hold it"


@functools.cache
def _planned(how: Decoding) -> Decoding:
    return codecs.planned(how)


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
