"""Avro in Spark without a jar: fastavro decodes in the workers, Arrow carries the result.

Only what a column can be is taken: a union other than "something or null" has no type in Spark, and neither
has a record that holds itself.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forebay.spark.pipelines.extras import require
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.registry import FRAME_BYTES, Registry, RegistryError, schema_id_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CORRUPT = "_corrupt_record"
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


def decode(rows: DataFrame, schema: str, *, framed: bool, registry: str = "") -> DataFrame:
    """The fields of `value` in its place, the other columns behind them.

    `framed`: values begin with the five bytes of a schema registry. With its address, the schema that a value
    was written with is asked for; without, it is `schema`.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    others = [field for field in rows.schema if field.name != "value"]
    fields = columns(schema)
    known = to_arrow_schema(type(rows.schema)(others), timezone="UTC")
    result = pa.schema([*fields, pa.field(CORRUPT, pa.string()), *known])
    spark_schema = from_arrow_schema(result)
    return rows.mapInArrow(decoder(schema, result, framed, registry), spark_schema)


def columns(schema: str) -> list[pa.Field]:
    """What the fields of a record are in Arrow."""
    fastavro = require("fastavro.schema", "avro")
    try:
        expanded = fastavro.expand_schema(parsed(schema))
    except (ValueError, KeyError, TypeError, fastavro.SchemaParseException) as error:
        raise PipelineError(f"this is no Avro schema: {error}") from None
    return arrow_fields(expanded)


def parsed(schema: str) -> Any:
    """Spark has no type for a UUID: it stays the text that it is."""

    def without_uuid(part: dict[str, Any]) -> dict[str, Any]:
        if part.get("logicalType") == "uuid":
            return {name: value for name, value in part.items() if name != "logicalType"}
        return part

    return json.loads(schema, object_hook=without_uuid)


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


def decoder(
    schema: str, result: pa.Schema, framed: bool, registry: str = ""
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = reader(schema, framed=framed, registry=registry)
        fields = pa.struct(list(result)[: result.get_field_index(CORRUPT) + 1])
        for batch in batches:
            decoded = [read(value) for value in batch.column("value").to_pylist()]
            arrays = pa.array(decoded, fields).flatten()
            others = [batch.column(name) for name in result.names[len(arrays) :]]
            yield pa.RecordBatch.from_arrays([*arrays, *others], schema=result)

    return run


def reader(schema: str, *, framed: bool, registry: str = "") -> Callable[[bytes | None], dict[str, Any]]:
    """Decodes a value; what does not fit has the reason in the field CORRUPT."""
    fastavro = require("fastavro", "avro")
    wanted = fastavro.parse_schema(parsed(schema))
    known = Registry(registry) if framed and registry else None

    @functools.cache
    def written_with(schema_id: int) -> Any:
        assert known is not None
        return fastavro.parse_schema(parsed(known.schema(schema_id)))

    def read(value: bytes | None) -> dict[str, Any]:
        if value is None:
            return {}
        try:
            stream = io.BytesIO(value[FRAME_BYTES:] if framed else value)
            writer = wanted if known is None else written_with(schema_id_of(value))
            reads_as = None if writer is wanted else wanted
            decoded: dict[str, Any] = fastavro.schemaless_reader(stream, writer, reads_as)
            return decoded
        except RegistryError:
            raise  # it is not the value that is wrong
        except Exception as error:
            # Bytes of another schema fail in any way that decoding can.
            return {CORRUPT: f"{type(error).__name__}: {error}"}

    return read
