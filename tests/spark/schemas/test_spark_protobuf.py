"""Protobuf values as columns, without Spark: types, bytes, versions of a schema, and what has no type."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration  # type: ignore[import-untyped]

from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding, SchemaError
from forebay.spark.schemas.registry import PROTOBUF, Registry, Schema, frame
from support.spark.schema_registry import SchemaRegistry, running_registry

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  uint64 large = 3;
  uint32 unsigned = 4;
  bytes raw = 5;
  double price = 6;
  bool paid = 7;
  enum State { NEW = 0; PAID = 1; }
  State state = 8;
  repeated int32 counts = 9;
  map<string, Line> lines = 10;
  message Line { int32 n = 1; }
  Line first = 11;
  google.protobuf.Timestamp at = 12;
  google.protobuf.Duration took = 13;
  google.protobuf.StringValue maybe = 14;
  oneof choice { string left = 15; int32 right = 16; }
  repeated State states = 17;
  map<string, uint64> sizes = 18;
}
message Second { message Inner { string text = 1; } }
"""
ROW = {
    "id": -7,
    "note": None,
    "large": decimal.Decimal(2**64 - 1),
    "unsigned": 2**32 - 1,
    "raw": b"\x00\xff",
    "price": 1.5,
    "paid": True,
    "state": "PAID",
    "counts": [3, -1],
    "lines": [("a", {"n": 1})],
    "first": {"n": 0},
    "at": dt.datetime(1969, 12, 31, 23, 59, 59, 500_000, dt.UTC),
    "took": dt.timedelta(seconds=-1, microseconds=250_000),
    "maybe": "",
    "left": None,
    "right": 5,
    "states": ["NEW", "PAID"],
    "sizes": [("b", decimal.Decimal(9))],
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as running:
        yield running


def decoding(text: str, registry: str = "http://127.0.0.1:1", **more: Any) -> Decoding:
    how = Decoding(schema=Schema(PROTOBUF, text), registry=registry, **{"schema_id": 1, **more})
    return codecs.planned(how)


def decoded(how: Decoding, *values: bytes | None) -> list[dict[str, Any]]:
    """By way of Arrow, as in a worker."""
    result = pa.schema([*codecs.fields(how), pa.field(codecs.CORRUPT, pa.string())])
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    (found,) = codecs.decoder(how, result)(iter([batch]))
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def test_every_type_that_spark_has_both_ways() -> None:
    how = decoding(ORDER)
    value = codecs.writer(how)(ROW)
    assert value[:6] == frame(1) + b"\0"
    good, bad, null = decoded(how, value, value[:-1], None)
    assert good == {**ROW, codecs.CORRUPT: None}
    assert bad[codecs.CORRUPT].startswith("DecodeError")
    assert null == {**dict.fromkeys(ROW), codecs.CORRUPT: None}


def test_fields_that_are_not_there() -> None:
    """Those that can tell it are null, the others have their default; an unknown number stays one."""
    (row,) = decoded(decoding(ORDER), frame(1) + b"\0" + b"\x40\x09")
    assert {name for name, value in row.items() if value is None} == {
        *("note", "first", "at", "took", "maybe", "left", "right"),
        codecs.CORRUPT,
    }
    assert (row["id"], row["state"], row["counts"], row["lines"]) == (0, "9", [], [])


@pytest.mark.parametrize("field", ["at", "took"])
@pytest.mark.parametrize("seconds", [2**62, -(2**40)])
def test_a_time_that_protobuf_does_not_have_stops_nobody(field: str, seconds: int) -> None:
    how = decoding(ORDER)
    good = codecs.writer(how)({"id": 1})
    number = {"at": b"\x62", "took": b"\x6a"}[field]
    of_time = b"\x08" + varint(seconds % 2**64)
    bad = frame(1) + b"\0" + number + bytes([len(of_time)]) + of_time
    first, second, third = decoded(how, good, bad, good)
    assert (first["id"], third["id"], second[field]) == (1, 1, None)
    assert f"{seconds} seconds are outside of what a google.protobuf." in second[codecs.CORRUPT]


@pytest.mark.parametrize("micros", [-1_500_000, -250_000, -2_000_000, -1, 0, 1, 1_500_000])
def test_durations_are_those_of_other_libraries(micros: int) -> None:
    """Seconds and nanoseconds have the same sign; others refuse a duration where they have not."""
    how = decoding(ORDER)
    wanted = Duration()
    wanted.FromMicroseconds(micros)
    encoded = wanted.SerializeToString()
    value = frame(1) + b"\0\x6a" + bytes([len(encoded)]) + encoded
    took = dt.timedelta(microseconds=micros)
    assert codecs.writer(how)({"took": took}) == value
    assert decoded(how, value)[0]["took"] == took


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def test_the_message_of_a_value_is_named_by_its_place() -> None:
    inner = decoding(ORDER, message="Second.Inner")
    value = codecs.writer(inner)({"text": "x"})
    assert value == frame(1) + bytes([4, 2, 0]) + b"\x0a\x01x"
    assert decoded(inner, value)[0]["text"] == "x"
    order = decoding(ORDER, message="shop.Order")
    for other, problem in (
        (value, "the value is a shop.Second.Inner, not a shop.Order"),
        (frame(1) + bytes([2, 10]), "has no message number 5"),
        (frame(1), "does not say which message it is"),
        (frame(1) + b"\xff\xff\xff\xff\xff\x0f", "does not say which message it is"),
        (b"{}", "does not begin with the five bytes"),
    ):
        assert problem in decoded(order, other)[0][codecs.CORRUPT]


def test_a_value_of_an_older_schema(registry: SchemaRegistry) -> None:
    """The message had another place in it, and fewer fields."""
    old = 'syntax = "proto3"; message A { int32 x = 1; } message B { string y = 1; int32 gone = 9; }'
    new = 'syntax = "proto3"; message B { string y = 1; optional int32 z = 2; }'
    known = Registry(registry.address)
    old_id, new_id = (known.register("b", Schema(PROTOBUF, text)) for text in (old, new))
    value = codecs.writer(decoding(old, schema_id=old_id, message="B"))({"y": "text", "gone": 3})
    found = decoded(decoding(new, registry.address, schema_id=new_id), value)
    assert found == [{"y": "text", "z": None, codecs.CORRUPT: None}]
    assert [path for path in registry.asked if "ids" in path] == [f"/schemas/ids/{old_id}"]


def test_a_schema_that_refers_to_others() -> None:
    line = 'syntax = "proto3"; package shop; import "a.proto"; message Line { a.A of = 1; }'
    references = (
        ("a.proto", 'syntax = "proto3"; package a; message A { int32 n = 1; }'),
        ("shop/line.proto", line),
    )
    order = 'syntax = "proto3"; import "shop/line.proto"; message Order { repeated shop.Line lines = 1; }'
    how = codecs.planned(Decoding(schema=Schema(PROTOBUF, order, references), schema_id=3))
    (found,) = codecs.fields(how)
    assert found.type == pa.list_(pa.struct([("of", pa.struct([("n", pa.int32())]))]))
    for name in ("../up.proto", "/etc/x.proto", ""):
        with pytest.raises(SchemaError, match="which is no name of a file"):
            codecs.planned(Decoding(schema=Schema(PROTOBUF, order, ((name, line),))))


@pytest.mark.parametrize(
    ("schema", "message", "problem"),
    [
        ("message {", "", "this is no Protobuf schema: .*forebay_value.proto"),
        ('syntax = "proto3"; message A { A a = 1; }', "", "A holds itself"),
        ('syntax = "proto3"; message A { int32 x = 1; }', "B", "has no message B: it has A"),
        ('syntax = "proto3"; enum E { X = 0; }', "", "has no message number 0"),
    ],
)
def test_what_has_no_column_type_is_said(schema: str, message: str, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        codecs.fields(decoding(schema, message=message))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"other": 1}, "has no field other"),
        ({"state": "LOST"}, "has no LOST"),
        ({"id": decimal.Decimal("1.7")}, "id is 1.7, which is no whole number"),
    ],
)
def test_rows_that_are_no_messages(row: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        codecs.writer(decoding(ORDER))(row)
