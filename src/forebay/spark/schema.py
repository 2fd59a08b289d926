"""The columns of a topic: those of Spark's Kafka source, in its order.

Spark tells a Python source nothing about the columns that a query needs. So a schema that the user gives is
taken as the choice of columns: what is not in it is neither decoded nor sent to the JVM.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from forebay.errors import ConfigError

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADER_TYPES = (pa.string(), pa.binary())

COLUMNS: dict[str, tuple[DataType, pa.DataType]] = {
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", "UTC")),
    "timestampType": (IntegerType(), pa.int32()),
    "headers": (ArrayType(_HEADER), pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
}
"""Name to the types of Spark and Arrow; headers only when they are asked for."""


def spark_schema(*, headers: bool) -> StructType:
    names = [name for name in COLUMNS if headers or name != "headers"]
    return StructType([StructField(name, COLUMNS[name][0]) for name in names])


def check_columns(schema: StructType, *, headers: bool) -> None:
    """ConfigError when a schema asks for what a topic does not have."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise ConfigError(f"a topic has no column {field.name}; there are {', '.join(COLUMNS)}")
        wanted = COLUMNS[field.name][0]
        if _plain(field.dataType) != _plain(wanted):
            raise ConfigError(
                f"column {field.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}:"
                " give the schema with the type of the source and cast the column afterwards"
            )
        if field.name == "headers" and not headers:
            raise ConfigError("the schema has the column headers: set includeHeaders=true")
    if not schema.fields:
        raise ConfigError("the schema has no columns: name at least one")


def _plain(kind: DataType) -> str:
    """Types are compared by name: whether they admit nulls is not the user's to say."""
    return kind.simpleString()


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark compares a batch with, field by field: a column is as nullable as the schema has it."""
    return pa.schema([pa.field(field.name, _arrow_type(field), field.nullable) for field in schema.fields])


def _arrow_type(field: StructField) -> pa.DataType:
    if not isinstance(field.dataType, ArrayType):
        return COLUMNS[field.name][1]
    header = field.dataType.elementType
    assert isinstance(header, StructType)
    parts = [
        pa.field(part.name, kind, part.nullable) for part, kind in zip(header, _HEADER_TYPES, strict=True)
    ]
    return pa.list_(pa.field("element", pa.struct(parts), field.dataType.containsNull))
