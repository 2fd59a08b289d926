"""Values in the formats of schema registries as functions on columns, without a jar.

    from_avro("value", registry="http://127.0.0.1:8081", subject="orders-value")

The latest schema of the subject is looked up when the query is planned, and is the type of the column. Avro
and Protobuf values name the schema that they were written with, and are decoded from it into the latest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forebay.errors import ConfigError, ForebayError
from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding, Row, WriteValue
from forebay.spark.schemas.registry import AVRO, JSON, PAUSES_S, PROTOBUF, Registry, Schema

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

FAILFAST, PERMISSIVE = MODES = ("FAILFAST", "PERMISSIVE")


def from_avro(
    column: Column | str, *, registry: str, subject: str, mode: str = FAILFAST, corrupt: str | None = None
) -> Column:
    """A struct of the fields. As in Spark's own, `mode` says to fail at a value that does not fit, or to make
    it null.

    With PERMISSIVE, `corrupt` names a field more: the reason, in a struct of nulls, for a value that does not
    fit. It is what a dead letter needs (`forebay.spark.dead_letters`).
    """
    return _decoded_column(column, AVRO, registry, subject, mode, corrupt=corrupt)


def from_protobuf(
    column: Column | str,
    *,
    registry: str,
    subject: str,
    message: str = "",
    mode: str = FAILFAST,
    corrupt: str | None = None,
) -> Column:
    """The same for Protobuf; `message` names one of several messages in the schema."""
    return _decoded_column(column, PROTOBUF, registry, subject, mode, message, corrupt=corrupt)


def from_json_schema(
    column: Column | str, *, registry: str, subject: str, mode: str = FAILFAST, corrupt: str | None = None
) -> Column:
    """The same for JSON; values that the schema does not allow do not fit."""
    return _decoded_column(column, JSON, registry, subject, mode, corrupt=corrupt)


def to_avro(column: Column | str, *, registry: str, subject: str, schema: str | None = None) -> Column:
    """A struct as a value for readers with a registry, by this schema, which is registered, or by the latest
    of the subject."""
    return _encoded_column(column, AVRO, registry, subject, schema)


def to_protobuf(
    column: Column | str, *, registry: str, subject: str, schema: str | None = None, message: str = ""
) -> Column:
    return _encoded_column(column, PROTOBUF, registry, subject, schema, message)


def to_json_schema(column: Column | str, *, registry: str, subject: str, schema: str | None = None) -> Column:
    return _encoded_column(column, JSON, registry, subject, schema)


def _decoded_column(
    column: Column | str,
    kind: str,
    registry: str,
    subject: str,
    mode: str,
    message: str = "",
    *,
    corrupt: str | None,
) -> Column:
    if mode not in MODES:
        raise ConfigError(f"there is no mode {mode}: choose {' or '.join(MODES)}")
    if corrupt is not None and mode != PERMISSIVE:
        raise ConfigError(f"corrupt={corrupt} needs mode={PERMISSIVE}: otherwise a misfit is an error")
    return decoded(column, latest(kind, registry, subject, message), mode, corrupt)


def latest(kind: str, registry: str, subject: str, message: str = "", *, patient: bool = True) -> Decoding:
    """Values of a registry, into the latest schema of a subject."""
    pauses_s = PAUSES_S if patient else ()
    schema_id, schema = Registry(registry, pauses_s=pauses_s).latest(subject, kind)
    return Decoding(schema=schema, schema_id=schema_id, registry=registry, message=message)


def decoded(column: Column | str, how: Decoding, mode: str, corrupt: str | None = None) -> Column:
    from pyspark.sql.pandas.types import from_arrow_type

    how = codecs.planned(how)
    known = codecs.fields(how)
    if corrupt is not None and corrupt in (field.name for field in known):
        raise ConfigError(f"corrupt={corrupt} is a field of the schema: give another name")
    kind = pa.struct([*known, *([] if corrupt is None else [pa.field(corrupt, pa.string())])])

    def decode(values: pa.Array) -> pa.Array:
        read = _reader(how)
        rows = [_decoded(read, value, mode, corrupt) for value in values.to_pylist()]
        return codecs.array_of(rows, kind, lambda problem: _misfit(problem, mode, corrupt))

    return _applied(decode, from_arrow_type(kind), column)


def _encoded_column(
    column: Column | str, kind: str, registry: str, subject: str, schema: str | None, message: str = ""
) -> Column:
    from pyspark.sql.types import BinaryType

    from forebay.spark.schemas import codecs

    if schema is None:
        how = codecs.planned(latest(kind, registry, subject, message))
    else:
        given = Schema(kind, schema)
        how = codecs.planned(Decoding(schema=given, message=message))
        codecs.fields(how)  # a schema that cannot be understood is not registered
        how = codecs.numbered(how, Registry(registry).register(subject, given))

    def encode(values: pa.Array) -> pa.Array:
        write = _writer(how)
        return pa.array([None if row is None else write(row) for row in values.to_pylist()], pa.binary())

    return _applied(encode, BinaryType(), column)


def _applied(work: Callable[[pa.Array], pa.Array], result: DataType, column: Column | str) -> Column:
    from pyspark.sql.functions import arrow_udf

    made: Any = arrow_udf  # its overloads do not know a type and a function together
    applied: Column = made(work, result)(column)
    return applied


def _decoded(
    read: Callable[[bytes | None], Row], value: bytes | None, mode: str, corrupt: str | None
) -> Row | None:
    if value is None:
        return None
    row = read(value)
    problem = codecs.problem_of(row)
    return row if problem is None else _misfit(problem, mode, corrupt)


def _misfit(problem: str, mode: str, corrupt: str | None) -> Row | None:
    """A value that does not fit becomes an error, a null, or its reason."""
    if mode == FAILFAST:
        raise ForebayError(f"a value does not fit: {problem}; mode={PERMISSIVE} makes it null")
    return None if corrupt is None else {corrupt: problem}


@functools.cache
def _reader(how: Decoding) -> Callable[[bytes | None], Row]:
    """One for each worker: it keeps the schemas that it was sent."""
    return codecs.reader(how)


@functools.cache
def _writer(how: Decoding) -> WriteValue:
    return codecs.writer(how)
