"""Avro in Spark without a jar: fastavro decodes in the workers, Arrow carries the result.

Only what a column can be is taken: a union other than "something or null" has no type in Spark, and neither
has a record that holds itself.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.tables import require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FRAME_BYTES = 5
"""Confluent's framing: a zero byte, and the number of the schema in four more."""
_CORRUPT = "_corrupt_record"
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
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def decode(rows: DataFrame, schema: str, *, framed: bool) -> DataFrame:
    """The fields of `value` in its place, the other columns behind them."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    parsed = parse(schema)
    others = [field for field in rows.schema if field.name != "value"]
    fields = arrow_fields(parsed)
    known = to_arrow_schema(type(rows.schema)(others), timezone="UTC")
    result = pa.schema([*fields, pa.field(_CORRUPT, pa.string()), *known])
    spark_schema = from_arrow_schema(result)
    return rows.mapInArrow(_decoder(json.dumps(parsed), result, framed), spark_schema)


def parse(schema: str) -> Any:
    fastavro = require("fastavro.schema", "avro")
    try:
        return fastavro.expand_schema(json.loads(schema, object_hook=_without_uuid))
    except (ValueError, KeyError, TypeError, fastavro.SchemaParseException) as error:
        raise PipelineError(f"this is no Avro schema: {error}") from None


def _without_uuid(schema: dict[str, Any]) -> dict[str, Any]:
    """Spark has no type for a UUID: it stays the text that it is."""
    if schema.get("logicalType") == "uuid":
        return {name: value for name, value in schema.items() if name != "logicalType"}
    return schema


def arrow_fields(record: Any) -> list[pa.Field]:
    if not isinstance(record, dict) or record.get("type") != "record":
        raise PipelineError("the Avro schema of a topic has to be a record")
    return [pa.field(field["name"], arrow_type(field["type"])) for field in record["fields"]]


def arrow_type(schema: Any) -> pa.DataType:
    if isinstance(schema, list):
        return arrow_type(_without_null(schema))
    if isinstance(schema, str):
        schema = {"type": schema}
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return arrow_type(kind)
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if kind in ("record", "error"):
        return pa.struct(arrow_fields({**schema, "type": "record"}))
    if kind == "array":
        return pa.list_(arrow_type(schema["items"]))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"]))
    found = _SIMPLE.get(logical or kind)
    if found is None:
        raise PipelineError(f"Avro's {logical or kind} has no column type in Spark: leave the field out")
    return found


def _without_null(union: list[Any]) -> Any:
    rest = [member for member in union if member != "null"]
    if len(rest) != 1:
        raise PipelineError(f"the Avro union {json.dumps(union)} has no column type in Spark")
    return rest[0]


def _decoder(
    schema: str, result: pa.Schema, framed: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = _reader(schema, framed)
        fields = pa.struct(list(result)[: result.get_field_index(_CORRUPT) + 1])
        for batch in batches:
            decoded = [read(value) for value in batch.column("value").to_pylist()]
            columns = pa.array(decoded, fields).flatten()
            others = [batch.column(name) for name in result.names[len(columns) :]]
            yield pa.RecordBatch.from_arrays([*columns, *others], schema=result)

    return run


def _reader(schema: str, framed: bool) -> Callable[[bytes | None], dict[str, Any]]:
    fastavro = require("fastavro", "avro")
    parsed = fastavro.parse_schema(json.loads(schema))

    def read(value: bytes | None) -> dict[str, Any]:
        if value is None:
            return {}
        try:
            stream = io.BytesIO(value[_FRAME_BYTES:] if framed else value)
            decoded: dict[str, Any] = fastavro.schemaless_reader(stream, parsed, None)
            return decoded
        except Exception as error:
            # Bytes of another schema fail in any way that decoding can.
            return {_CORRUPT: f"{type(error).__name__}: {error}"}

    return read
