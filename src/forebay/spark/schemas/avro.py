"""Avro in Spark without a jar: fastavro decodes in the workers, Arrow carries the result.

Only what a column can be is taken: a union other than "something or null" has no type in Spark, and neither
has a record that holds itself.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from forebay.spark.extras import require
from forebay.spark.schemas.avro_rows import row_checker
from forebay.spark.schemas.decoding import Decoding, ReadValue, Row, SchemaError, WriteValue
from forebay.spark.schemas.registry import AVRO, FRAME_BYTES, Schema, frame, schema_id_of, shared_registry

_SIMPLE: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL: Mapping[tuple[str, str | None], pa.DataType | None] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("int", "time-millis"): None,
    ("long", "time-micros"): None,
}
"""Types of which fastavro makes more than what lies beneath; None where Spark has no type. As Avro wants it,
all others are read as the type beneath."""
_DECIMAL_DIGITS_MAX = 38


def fields(how: Decoding) -> list[pa.Field]:
    """The fields of a record, as Arrow has them."""
    fastavro = require("fastavro.schema", "avro")
    try:
        expanded = _parsed(how.schema, expand=True)
    except (ValueError, KeyError, TypeError, fastavro.SchemaParseException) as error:
        raise SchemaError(f"this is no Avro schema: {error}") from None
    return _record_fields(expanded)


def reader(how: Decoding) -> ReadValue:
    fastavro = require("fastavro", "avro")
    wanted = _parsed(how.schema)
    known = shared_registry(how.registry) if how.framed and how.registry else None

    @functools.cache
    def written_with(schema_id: int) -> Any:
        assert known is not None
        # No registry is needed for values of the schema that the columns are made of.
        return wanted if schema_id == how.schema_id else _parsed(known.schema(schema_id, AVRO))

    def read(value: bytes) -> Row:
        stream = io.BytesIO(value[FRAME_BYTES:] if how.framed else value)
        writer = wanted if known is None else written_with(schema_id_of(value))
        reads_as = None if writer is wanted else wanted
        decoded: Row = fastavro.schemaless_reader(stream, writer, reads_as)
        if rest := len(stream.read()):
            # Bytes of another schema may be read as any values, but seldom up to their end.
            raise ValueError(f"{rest} bytes are left behind the fields of the schema")
        return decoded

    return read


def writer(how: Decoding) -> WriteValue:
    fastavro = require("fastavro", "avro")
    parsed = _parsed(how.schema)
    assert how.schema_id is not None
    head = frame(how.schema_id)
    checked = row_checker(_parsed(how.schema, expand=True))

    def write(row: Row) -> bytes:
        stream = io.BytesIO()
        stream.write(head)
        fastavro.schemaless_writer(stream, parsed, checked(row))
        return stream.getvalue()

    return write


# -- schemas ------------------------------------------------------------------------------------------------


def _parsed(schema: Schema, *, expand: bool = False) -> Any:
    fastavro = require("fastavro", "avro")
    names: dict[str, Any] = {}
    for _, text in schema.references:
        fastavro.parse_schema(_loaded(text), names, expand=expand)
    return fastavro.parse_schema(_loaded(schema.text), names, expand=expand)


def _loaded(text: str) -> Any:
    """Spark has no type for a UUID: it stays the text that it is."""

    def without_uuid(part: dict[str, Any]) -> dict[str, Any]:
        if part.get("logicalType") == "uuid":
            return {name: value for name, value in part.items() if name != "logicalType"}
        return part

    return json.loads(text, object_hook=without_uuid)


def _record_fields(record: Any) -> list[pa.Field]:
    if not isinstance(record, dict) or record.get("type") != "record":
        raise SchemaError("the Avro schema of a topic has to be a record")
    return [pa.field(field["name"], _arrow_type(field["type"])) for field in record["fields"]]


def _arrow_type(schema: Any) -> pa.DataType:
    if isinstance(schema, list):
        return _arrow_type(_without_null(schema))
    if isinstance(schema, str):
        schema = {"type": schema}
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _arrow_type(kind)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema["precision"], schema.get("scale", 0))
    if kind in ("record", "error"):
        return pa.struct(_record_fields({**schema, "type": "record"}))
    if kind == "array":
        return pa.list_(_arrow_type(schema["items"]))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_type(schema["values"]))
    found = _LOGICAL.get((kind, logical), _SIMPLE.get(kind))
    if found is None:
        raise SchemaError(f"Avro's {logical or kind} has no column type in Spark: leave the field out")
    return found


def _decimal(precision: int, scale: int) -> pa.DataType:
    if precision > _DECIMAL_DIGITS_MAX:
        raise SchemaError(
            f"an Avro decimal of {precision} digits has no column type in Spark, which has"
            f" {_DECIMAL_DIGITS_MAX} at most"
        )
    return pa.decimal128(precision, scale)


def _without_null(union: list[Any]) -> Any:
    rest = [member for member in union if member != "null"]
    if len(rest) != 1:
        raise SchemaError(f"the Avro union {json.dumps(union)} has no column type in Spark")
    return rest[0]
