"""Avro values as columns, without Spark: types, bytes, and what has no type."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding, SchemaError
from forebay.spark.schemas.registry import AVRO, Schema

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]},
            },
        },
        {"name": "first", "type": ["null", "Line"]},
    ],
}
VALUE = {
    "id": 7,
    "at": dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
    "day": None,
    "price": decimal.Decimal("12.34"),
    "state": "PAID",
    "tags": {"a": "b"},
    "ref": uuid.UUID(int=5),
    "lines": [{"n": 1}, {"n": 2}],
    "first": {"n": 1},
}


def encoded(schema: Any = ORDER, value: Any = VALUE) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def decoded(*values: bytes | None, schema: Any = ORDER, framed: bool = False) -> list[dict[str, Any]]:
    how = Decoding(schema=Schema(AVRO, json.dumps(schema)), framed=framed)
    fields = codecs.fields(how)
    result = pa.schema([*fields, pa.field("_corrupt_record", pa.string()), pa.field("_offset", pa.int64())])
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array(values, pa.binary()), "_offset": pa.array(range(len(values)), pa.int64())}
    )
    (found,) = codecs.decoder(how, result)(iter([batch]))
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def test_every_type_that_spark_has() -> None:
    (row,) = decoded(encoded())
    assert row == {
        **VALUE,
        "tags": [("a", "b")],
        "ref": str(uuid.UUID(int=5)),
        "_corrupt_record": None,
        "_offset": 0,
    }


def test_a_value_that_does_not_fit_is_told_of_and_stops_nobody() -> None:
    good, bad, null = decoded(encoded(), b"\xff", None)
    assert good["_corrupt_record"] is None
    assert bad["_corrupt_record"].startswith(("EOFError", "IndexError"))
    assert (bad["id"], bad["_offset"]) == (None, 1)
    assert (null["id"], null["_corrupt_record"]) == (None, None)


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "x", "fields": [{"name": "y", "type": kind}]}


@pytest.mark.parametrize(
    ("kind", "fitting", "written_as", "large"),
    [
        ("int", 7, "long", 2**40),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4},
            decimal.Decimal(7),
            {"type": "bytes", "logicalType": "decimal", "precision": 12},
            decimal.Decimal(12_345_678),
        ),
    ],
)
def test_a_value_that_its_column_cannot_hold_stops_nobody(
    kind: Any, fitting: Any, written_as: Any, large: Any
) -> None:
    """It can be decoded, and is too large all the same."""
    good, bad = encoded(record(kind), {"y": fitting}), encoded(record(written_as), {"y": large})
    first, second, third = decoded(good, bad, good, schema=record(kind))
    assert (first["y"], third["y"]) == (7, 7)
    assert (second["y"], second["_offset"]) == (None, 1)
    assert second["_corrupt_record"].startswith("ArrowInvalid")


@pytest.mark.parametrize(
    ("logical", "value"), [("timestamp-nanos", 2**60), ("date", 2**60), ("of-our-own", 7), ("decimal", 7)]
)
def test_a_logical_type_that_is_not_known_is_what_is_beneath(logical: str, value: int) -> None:
    schema = record({"type": "long", "logicalType": logical, "precision": 5})
    (row,) = decoded(encoded(record("long"), {"y": value}), schema=schema)
    assert (row["y"], row["_corrupt_record"]) == (value, None)


def test_the_frame_of_a_schema_registry_is_taken_off() -> None:
    (row,) = decoded(b"\0\0\0\0\x09" + encoded(), framed=True)
    assert row["id"] == 7


def test_a_value_with_a_frame_is_not_read_as_one_without() -> None:
    """Its first bytes would be the numbers and texts of a row that nobody has written."""
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    user = {"type": "record", "name": "User", "fields": fields}
    value = encoded(user, {"id": 7, "name": "Ann"})
    good, wrong = decoded(value, b"\x00\x00\x00\x00\x01" + value, schema=user)
    assert (good["id"], good["name"], good["_corrupt_record"]) == (7, "Ann", None)
    assert (wrong["id"], wrong["name"]) == (None, None)
    assert wrong["_corrupt_record"] == "ValueError: 8 bytes are left behind the fields of the schema"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "this is no Avro schema"),
        ('{"type": "record", "name": "x", "fields": [{"name": "y", "type": "colour"}]}', "no Avro schema"),
        ('"string"', "has to be a record"),
        ('{"type": "record", "name": "x", "fields": [{"name": "y", "type": ["int", "string"]}]}', "union"),
        (
            '{"type": "record", "name": "x", "fields":'
            ' [{"name": "y", "type": {"type": "int", "logicalType": "time-millis"}}]}',
            "time-millis has no column type",
        ),
        (
            '{"type": "record", "name": "x", "fields":'
            ' [{"name": "y", "type": {"type": "bytes", "logicalType": "decimal", "precision": 39}}]}',
            "decimal of 39 digits has no column type",
        ),
    ],
)
def test_what_has_no_column_type_is_said(schema: str, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        codecs.fields(Decoding(schema=Schema(AVRO, schema)))


def written(row: dict[str, Any], schema: Any = ORDER) -> dict[str, Any]:
    """What a reader finds in the value that is made of a row."""
    how = Decoding(schema=Schema(AVRO, json.dumps(schema)), schema_id=9)
    value = codecs.writer(how)(row)
    return decoded(value, schema=schema, framed=True)[0]


def test_rows_are_written_as_they_are() -> None:
    row = {**VALUE, "ref": str(VALUE["ref"]), "tags": [("a", "b")]}  # a map as Arrow has it
    assert {name: written(row)[name] for name in row} == row


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({**VALUE, "other": 1, "more": 2}, "the Avro record Order has no field more, other"),
        ({**VALUE, "first": {"n": 1, "m": 2}}, "the Avro record Line has no field m"),
        ({**VALUE, "id": 1.7}, "id is 1.7, which is no Avro long: cast it"),
        ({**VALUE, "id": decimal.Decimal("1.7")}, "which is no Avro long"),
        ({**VALUE, "id": True}, "id is True, which is no Avro long"),
        ({**VALUE, "id": None}, "id is null, which the Avro schema does not allow"),
        ({**VALUE, "lines": [{"n": 1}, {"n": 2.5}]}, r"lines\[\].n is 2.5, which is no Avro int"),
        ({**VALUE, "tags": {"a": 1}}, r"tags\[\] is 1, which is no Avro string"),
        ({**VALUE, "price": 12.5}, "price is 12.5, which is no Avro decimal"),
        ({**VALUE, "day": dt.datetime(2026, 1, 1, 5)}, "which is no Avro date"),
        ({"id": 1}, r"at, lines, price, .* is missing, and has no default"),
    ],
)
def test_a_row_that_is_not_of_the_schema_is_refused(row: dict[str, Any], problem: str) -> None:
    ready = {name: str(value) if name == "ref" else value for name, value in row.items()}
    with pytest.raises(ValueError, match=problem):
        written(ready)


def test_what_a_row_leaves_out_has_its_default_or_is_null() -> None:
    schema = {
        "type": "record",
        "name": "x",
        "fields": [
            {"name": "a", "type": "int", "default": 4},
            {"name": "b", "type": ["null", "int"]},
            {"name": "c", "type": ["int", "null"], "default": 5},
        ],
    }
    found = written({}, schema)
    assert (found["a"], found["b"], found["c"]) == (4, None, 5)
    with pytest.raises(ValueError, match="a is null"):
        written({"a": None}, schema)


def test_a_record_that_holds_itself_is_written() -> None:
    schema = Schema(AVRO, json.dumps(record(["null", "x"])))
    write = codecs.writer(Decoding(schema=schema, schema_id=9))
    assert write({"y": {"y": None}})[5:] == b"\x02\x00"
    with pytest.raises(ValueError, match="has no field z"):
        write({"y": {"z": 1}})


def test_a_schema_that_refers_to_others() -> None:
    line = {"type": "record", "name": "shop.Line", "fields": [{"name": "n", "type": "int"}]}
    lines = {"type": "array", "items": "shop.Line"}
    part = {"type": "record", "name": "shop.Part", "fields": [{"name": "lines", "type": lines}]}
    order = {"type": "record", "name": "Order", "fields": [{"name": "part", "type": "shop.Part"}]}
    references = (("shop.Line", json.dumps(line)), ("shop.Part", json.dumps(part)))
    schema = Schema(AVRO, json.dumps(order), references)
    how = Decoding(schema=schema, framed=False)
    (found,) = codecs.fields(how)
    assert found.type == pa.struct([("lines", pa.list_(pa.struct([("n", pa.int32())])))])
    row = {"part": {"lines": [{"n": 1}]}}
    names: dict[str, Any] = {}
    for one in (line, part):
        fastavro.parse_schema(one, names)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(order, names), row)
    assert codecs.reader(how)(buffer.getvalue()) == row
