"""Values to rows and back in the workers, whatever their format.

A value that does not fit becomes a row of nulls with the reason in the field CORRUPT: it is up to the caller
whether one bad message stops anything. A registry that cannot be reached is another matter, and an error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from forebay.spark.extras import MissingPackageError
from forebay.spark.schemas import avro, json_schema, protobuf
from forebay.spark.schemas.decoding import Decoding, ReadValue, Row, SchemaError, WriteValue
from forebay.spark.schemas.registry import AVRO, JSON, PROTOBUF, RegistryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

CORRUPT = "_corrupt_record"


class Format(Protocol):
    """The functions that the module of a format has."""

    def fields(self, how: Decoding) -> list[pa.Field]:
        """The columns of the schema; SchemaError where Spark has none."""

    def reader(self, how: Decoding) -> ReadValue: ...

    def writer(self, how: Decoding) -> WriteValue: ...


_FORMATS: Mapping[str, Format] = {AVRO: avro, PROTOBUF: protobuf, JSON: json_schema}


def planned(how: Decoding) -> Decoding:
    """With what the driver finds out for all workers."""
    if how.schema.kind != PROTOBUF or how.compiled:
        return how
    return replace(how, compiled=protobuf.compiled(how.schema))


def numbered(how: Decoding, schema_id: int) -> Decoding:
    """The same, as the registry numbers its schema."""
    return replace(how, schema_id=schema_id)


def fields(how: Decoding) -> list[pa.Field]:
    return _FORMATS[how.schema.kind].fields(how)


def reader(how: Decoding) -> Callable[[bytes | None], Row]:
    """Decodes a value; what does not fit has the reason in the field CORRUPT."""
    decode = _FORMATS[how.schema.kind].reader(how)

    def read(value: bytes | None) -> Row:
        if value is None:
            return {}
        try:
            return decode(value)
        except (RegistryError, MissingPackageError):
            raise  # it is not the value that is wrong
        except Exception as error:
            # Bytes of another schema fail in any way that decoding can.
            return corrupt(f"{type(error).__name__}: {error}")

    return read


def array_of(rows: list[Row | None], kind: pa.DataType, instead: Callable[[str], Row | None]) -> pa.Array:
    """Rows that a reader has made, as Arrow.

    A value may be decoded and still not fit its column, a number of 40 bits in an Avro int for example:
    `instead` makes another row, of the reason.
    """
    try:
        return pa.array(rows, kind)
    except Exception:
        return pa.array([_held(row, kind, instead) for row in rows], kind)


def _held(row: Row | None, kind: pa.DataType, instead: Callable[[str], Row | None]) -> Row | None:
    try:
        pa.array([row], kind)
    except Exception as error:
        # As many kinds of errors as Python and Arrow have for values that are too large, or no text.
        return instead(f"{type(error).__name__}: {error}")
    return row


class _Misfit(dict[str, Any]):
    """The row of a value that does not fit. A schema may have a field of the name CORRUPT itself."""


def corrupt(reason: str) -> Row:
    return _Misfit({CORRUPT: reason})


def problem_of(row: Row) -> str | None:
    """The reason why a reader could not decode a value; None if it could."""
    return str(row[CORRUPT]) if isinstance(row, _Misfit) else None


def writer(how: Decoding) -> WriteValue:
    return _FORMATS[how.schema.kind].writer(how)


def decode(rows: DataFrame, how: Decoding) -> DataFrame:
    """The fields of `value` in its place, the other columns behind them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    how = planned(how)
    if CORRUPT in (field.name for field in fields(how)):
        raise SchemaError(
            f"the schema has a field {CORRUPT}, which is the column for values that do not fit: read it with"
            " from_avro, from_protobuf or from_json_schema instead"
        )
    others = [field for field in rows.schema if field.name != "value"]
    known = _arrow_schema(type(rows.schema)(others))
    result = pa.schema([*fields(how), pa.field(CORRUPT, pa.string()), *known])
    return rows.mapInArrow(decoder(how, result), from_arrow_schema(result))


def _arrow_schema(schema: StructType) -> pa.Schema:
    """With timestamps in UTC, which PySpark 4.1 has anyway."""
    from pyspark.sql.pandas.types import to_arrow_schema

    make: Any = to_arrow_schema
    named = "timezone" in inspect.signature(make).parameters
    return make(schema, timezone="UTC") if named else make(schema)


def decoder(
    how: Decoding, result: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = reader(how)
        decoded_type = pa.struct(list(result)[: result.get_field_index(CORRUPT) + 1])
        for batch in batches:
            decoded: list[Row | None] = [read(value) for value in batch.column("value").to_pylist()]
            arrays = array_of(decoded, decoded_type, corrupt).flatten()
            others = [batch.column(name) for name in result.names[len(arrays) :]]
            yield pa.RecordBatch.from_arrays([*arrays, *others], schema=result)

    return run
