"""Avro with a schema registry as functions on columns, without a jar.

    from_avro("value", registry="http://127.0.0.1:8081", subject="orders-value")

Values are decoded with the schema that they were written with, which they name by its number, into the latest
schema of the subject, as Avro resolves the two. The latest schema is looked up when the query is planned, and
is the type of the column.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forebay.errors import ConfigError, ForebayError
from forebay.spark.pipelines.extras import require
from forebay.spark.pipelines.queries import avro_values
from forebay.spark.registry import Registry, frame

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

FAILFAST, PERMISSIVE = MODES = ("FAILFAST", "PERMISSIVE")


def from_avro(column: Column | str, *, registry: str, subject: str, mode: str = FAILFAST) -> Column:
    """A struct of the fields. As in Spark's own, `mode` says to fail at a value that does not fit, or to make
    it null."""
    from pyspark.sql.pandas.types import from_arrow_type

    if mode not in MODES:
        raise ConfigError(f"there is no mode {mode}: choose {' or '.join(MODES)}")
    schema = Registry(registry).latest(subject).schema
    kind = pa.struct(avro_values.columns(schema))

    def decode(values: pa.Array) -> pa.Array:
        read = _reader(schema, registry)
        return pa.array([_decoded(read, value, mode) for value in values.to_pylist()], kind)

    return _applied(decode, from_arrow_type(kind), column)


def to_avro(column: Column | str, *, registry: str, subject: str, schema: str | None = None) -> Column:
    """A struct as a value for readers with a registry, by this schema, which is registered, or by the latest
    of the subject."""
    from pyspark.sql.types import BinaryType

    known = Registry(registry)
    if schema is None:
        schema_id, text = known.latest(subject)
    else:
        schema_id, text = known.register(subject, schema), schema

    def encode(values: pa.Array) -> pa.Array:
        write = _writer(text, schema_id)
        return pa.array([None if row is None else write(row) for row in values.to_pylist()], pa.binary())

    return _applied(encode, BinaryType(), column)


def _applied(work: Callable[[pa.Array], pa.Array], result: DataType, column: Column | str) -> Column:
    from pyspark.sql.functions import arrow_udf

    made: Any = arrow_udf  # its overloads do not know a type and a function together
    applied: Column = made(work, result)(column)
    return applied


def _decoded(read: Callable[[bytes | None], dict[str, Any]], value: bytes | None, mode: str) -> Any:
    if value is None:
        return None
    row = read(value)
    problem = row.get(avro_values.CORRUPT)
    if problem is None:
        return row
    if mode == FAILFAST:
        raise ForebayError(f"a value does not fit: {problem}; mode={PERMISSIVE} makes it null")
    return None


@functools.cache
def _reader(schema: str, registry: str) -> Callable[[bytes | None], dict[str, Any]]:
    """One for each worker: it keeps the schemas that it was sent."""
    return avro_values.reader(schema, framed=True, registry=registry)


@functools.cache
def _writer(schema: str, schema_id: int) -> Callable[[dict[str, Any]], bytes]:
    fastavro = require("fastavro", "avro")
    parsed = fastavro.parse_schema(avro_values.parsed(schema))
    head = frame(schema_id)

    def write(row: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        stream.write(head)
        fastavro.schemaless_writer(stream, parsed, row)
        return stream.getvalue()

    return write
