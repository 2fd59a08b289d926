"""JSON values by a JSON Schema as columns, without Spark: types, what does not fit, and references."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding, SchemaError
from forebay.spark.schemas.registry import JSON, Schema, frame

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "price": {"type": ["number", "null"]},
        "paid": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "address": {"$ref": "address.json#/definitions/address"},
        "any": {},
        "tree": {"$ref": "#/$defs/tree"},
    },
    "required": ["id"],
    "$defs": {
        "line": {"properties": {"n": {"type": "integer"}}},
        "tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}},
    },
}
ADDRESS = {
    "definitions": {"address": {"type": "object", "properties": {"town": {"$ref": "#/definitions/town"}}}}
}
ADDRESS["definitions"]["town"] = {"type": "string"}
VALUE = {
    "id": 7,
    "price": 2,
    "paid": True,
    "lines": [{"n": 1}, {}],
    "tags": {"a": "b"},
    "address": {"town": "Köln"},
    "any": [1, None],
    "tree": {"next": {"next": {}}},
}
ROW = {
    "id": 7,
    "price": 2.0,
    "paid": True,
    "lines": [{"n": 1}, {"n": None}],
    "tags": [("a", "b")],
    "address": {"town": "Köln"},
    "any": "[1, null]",
    "tree": {"next": '{"next": {}}'},
}


def decoding(schema: Any = ORDER, *references: tuple[str, Any]) -> Decoding:
    others = references or (("address.json", ADDRESS),)
    texts = tuple((name, json.dumps(one)) for name, one in others)
    return Decoding(schema=Schema(JSON, json.dumps(schema), texts), schema_id=1)


def value(content: Any) -> bytes:
    return frame(1) + json.dumps(content).encode()


def decoded(how: Decoding, *values: bytes | None) -> list[dict[str, Any]]:
    """By way of Arrow, as in a worker."""
    result = pa.schema([*codecs.fields(how), pa.field(codecs.CORRUPT, pa.string())])
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    (found,) = codecs.decoder(how, result)(iter([batch]))
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def test_every_type_both_ways() -> None:
    """What has no type of its own, and what holds itself, is text."""
    how = decoding()
    good, small, null = decoded(how, value(VALUE), value({"id": 1.0}), None)
    assert good == {**ROW, codecs.CORRUPT: None}
    assert small == {**dict.fromkeys(ROW), "id": 1, codecs.CORRUPT: None}
    assert null == {**dict.fromkeys(ROW), codecs.CORRUPT: None}
    written = codecs.writer(how)(ROW)
    assert written[:5] == frame(1)
    assert json.loads(written[5:]) == VALUE


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (value({"id": -1}), "-1 is less than the minimum of 0 at id"),
        (value({"price": 1}), '"id" is a required property'),
        (value({"id": 1, "address": {"town": 5}}), "at address/town"),
        (value({"id": 2**63}), "has more than 64 bits"),
        (frame(1) + b"{", "JSONDecodeError"),
        (b"{}", "does not begin with the five bytes"),
    ],
)
def test_a_value_that_does_not_fit_is_told_of(bad: bytes, problem: str) -> None:
    (row,) = decoded(decoding(), bad)
    assert problem in row[codecs.CORRUPT]


def test_the_least_and_the_greatest_integer() -> None:
    how = decoding({"properties": {"n": {"type": "integer"}}})
    assert [row["n"] for row in decoded(how, value({"n": -(2**63)}), value({"n": 2**63 - 1}))] == [
        -(2**63),
        2**63 - 1,
    ]


def test_half_a_character_is_no_text_and_stops_nobody() -> None:
    how = decoding({"properties": {"text": {"type": "string"}, "any": {}}})
    values = [value(one) for one in ({"text": "a"}, {"text": "\ud800"}, {"any": "\ud800"})]
    good, half, other = decoded(how, *values)
    assert good == {"text": "a", "any": None, codecs.CORRUPT: None}
    assert (half["text"], other["any"]) == (None, None)
    assert half[codecs.CORRUPT] and other[codecs.CORRUPT]


def test_references_by_the_address_that_they_become() -> None:
    schema = {
        "$id": "http://example.com/shop/order.json",
        "type": "object",
        "properties": {"to": {"$ref": "address.json"}},
    }
    address = {
        "$id": "http://example.com/shop/address.json",
        "type": "object",
        "properties": {"town": {"type": "string"}},
    }
    how = decoding(schema, ("address.json", address))
    assert decoded(how, value({"to": {"town": "Rom"}}))[0]["to"] == {"town": "Rom"}
    assert "at to/town" in decoded(how, value({"to": {"town": 1}}))[0][codecs.CORRUPT]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([], "has to be an object with properties"),
        ({"type": "string"}, "has to be an object with properties"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "refers to #/nowhere, which is not there"),
        ({"properties": {"a": {"$ref": "lost.json"}}}, "refers to lost.json, and the registry"),
    ],
)
def test_what_has_no_columns_is_said(schema: Any, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        codecs.fields(decoding(schema))


def test_schemas_and_rows_that_are_wrong() -> None:
    with pytest.raises(SchemaError, match="this is no JSON Schema: Expecting"):
        codecs.fields(Decoding(schema=Schema(JSON, "{")))
    with pytest.raises(SchemaError, match="this is no JSON Schema: "):
        codecs.reader(decoding({"properties": {"a": {"type": "objekt"}}}))
    with pytest.raises(ValueError, match="has no property other"):
        codecs.writer(decoding())({"other": 1})
    with pytest.raises(ValueError, match='"id" is a required property'):
        codecs.writer(decoding())({"price": 1.0})
