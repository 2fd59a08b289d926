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

COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
"""The columns of a topic; headers only when they are asked for."""

_ARROW_TYPES: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    StringType: pa.string(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    TimestampType: pa.timestamp("us", "UTC"),
}


def spark_schema(*, headers: bool) -> StructType:
    names = [name for name in COLUMNS if headers or name != "headers"]
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def check_columns(schema: StructType, *, headers: bool) -> None:
    """ConfigError when a schema asks for what a topic does not have."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise ConfigError(f"a topic has no column {field.name}; there are {', '.join(COLUMNS)}")
        wanted = COLUMNS[field.name]
        # Compared by name: whether nulls are admitted is not part of it.
        if field.dataType.simpleString() != wanted.simpleString():
            raise ConfigError(
                f"column {field.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}:"
                " give the schema with the type of the source and cast the column afterwards"
            )
        if field.name == "headers" and not headers:
            raise ConfigError("the schema has the column headers: set includeHeaders=true")
    if not schema.fields:
        raise ConfigError("the schema has no columns: name at least one")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema of batches, which Spark compares field by field: a column is as nullable as in `schema`."""
    return pa.schema(list(_arrow_type(schema)))


def _arrow_type(kind: DataType) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([pa.field(part.name, _arrow_type(part.dataType), part.nullable) for part in kind])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType), kind.containsNull))
    return _ARROW_TYPES[type(kind)]
