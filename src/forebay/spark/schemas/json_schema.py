"""JSON with a JSON Schema, as columns: jsonschema-rs checks each value, the schema's types are the columns'.

Schemas say more than columns can: a part that may be of several types, that has none, or that holds itself is
a column with its JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urldefrag

import pyarrow as pa

from forebay.lazy import dataclass
from forebay.spark.extras import require
from forebay.spark.schemas.decoding import Decoding, ReadValue, Row, SchemaError, WriteValue
from forebay.spark.schemas.registry import FRAME_BYTES, Schema, frame, schema_id_of

_LONGS = range(-(2**63), 2**63)
_SIMPLE: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
}


def fields(how: Decoding) -> list[pa.Field]:
    return list(_column(how.schema).type)


def reader(how: Decoding) -> ReadValue:
    check = _validator(how.schema)
    column = _column(how.schema)

    def read(value: bytes) -> Row:
        schema_id_of(value)
        found = json.loads(value[FRAME_BYTES:])
        check(found)
        row: Row = column.to_row(found)
        return row

    return read


def writer(how: Decoding) -> WriteValue:
    check = _validator(how.schema)
    column = _column(how.schema)
    assert how.schema_id is not None
    head = frame(how.schema_id)

    def write(row: Row) -> bytes:
        value = column.from_row(row)
        check(value)
        return head + json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

    return write


# -- columns ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    """A part of a schema in Arrow, and its values both ways; none of them is given a null."""

    type: pa.DataType
    to_row: Callable[[Any], Any]
    from_row: Callable[[Any], Any]


def _column(schema: Schema) -> _Column:
    documents = _Documents(schema)
    column = _of_part(documents.root, documents, ())
    if not pa.types.is_struct(column.type):
        raise SchemaError("the JSON Schema of a topic has to be an object with properties")
    return column


def _of_part(part: Any, documents: _Documents, around: tuple[int, ...]) -> _Column:
    """`around` are the parts that this one is in."""
    part = _single(documents.resolved(part), documents)
    if not isinstance(part, dict) or id(part) in around:
        return _TEXT
    inside = (*around, id(part))
    kind = part.get("type", "object" if "properties" in part else None)
    if kind == "object" and part.get("properties"):
        named = {name: _of_part(one, documents, inside) for name, one in part["properties"].items()}
        return _struct(named)
    if kind == "object" and isinstance(part.get("additionalProperties"), dict):
        return _map(_of_part(part["additionalProperties"], documents, inside))
    if kind == "array" and isinstance(part.get("items"), dict):
        return _list(_of_part(part["items"], documents, inside))
    found = _SIMPLE.get(kind) if isinstance(kind, str) else None
    return _TEXT if found is None else _scalar(found)


def _single(part: Any, documents: _Documents) -> Any:
    """Without the possibility of a null, which every column has."""
    if not isinstance(part, dict):
        return part
    for name in ("oneOf", "anyOf", "allOf"):
        if name in part and "properties" not in part:
            rest = [documents.resolved(one) for one in part[name]]
            rest = [one for one in rest if not (isinstance(one, dict) and one.get("type") == "null")]
            return _single(rest[0], documents) if len(rest) == 1 else None
    if isinstance(part.get("type"), list):
        kinds = [kind for kind in part["type"] if kind != "null"]
        # The same part must stay the same object: it is known by it.
        part["type"] = kinds[0] if len(kinds) == 1 else None
    return part


def _struct(named: Mapping[str, _Column]) -> _Column:
    def to_row(value: Mapping[str, Any]) -> Row:
        return {name: _given(column.to_row, value.get(name)) for name, column in named.items()}

    def from_row(row: Mapping[str, Any]) -> dict[str, Any]:
        unknown = row.keys() - named.keys()
        if unknown:
            raise ValueError(f"the JSON Schema has no property {', '.join(sorted(unknown))}")
        return {name: named[name].from_row(value) for name, value in row.items() if value is not None}

    kind = pa.struct([pa.field(name, column.type) for name, column in named.items()])
    return _Column(kind, to_row, from_row)


def _map(column: _Column) -> _Column:
    return _Column(
        pa.map_(pa.string(), column.type),
        lambda value: [(name, _given(column.to_row, one)) for name, one in value.items()],
        lambda pairs: {name: _given(column.from_row, one) for name, one in pairs},
    )


def _list(column: _Column) -> _Column:
    return _Column(
        pa.list_(column.type),
        lambda value: [_given(column.to_row, one) for one in value],
        lambda value: [_given(column.from_row, one) for one in value],
    )


def _scalar(kind: pa.DataType) -> _Column:
    if pa.types.is_floating(kind):
        return _Column(kind, float, float)
    return _Column(kind, _long if pa.types.is_integer(kind) else _same, _same)


def _long(value: int | float) -> int:
    number = int(value)  # 1.0 is an integer of JSON Schema
    if number not in _LONGS:
        raise ValueError(f"{number} has more than 64 bits")
    return number


def _same(value: Any) -> Any:
    return value


def _given(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


_TEXT = _Column(pa.string(), lambda value: json.dumps(value, ensure_ascii=False), json.loads)


# -- schemas ------------------------------------------------------------------------------------------------


class _Documents:
    """A schema and what it refers to, by name."""

    def __init__(self, schema: Schema) -> None:
        self.root = _loaded(schema.text)
        self._others = {name: _loaded(text) for name, text in schema.references}
        self._home = {id(part): self.root for part in _parts(self.root)}
        for document in self._others.values():
            self._home.update({id(part): document for part in _parts(document)})

    def resolved(self, part: Any) -> Any:
        seen: set[int] = set()
        while isinstance(part, dict) and isinstance(part.get("$ref"), str) and id(part) not in seen:
            seen.add(id(part))
            name, pointer = urldefrag(part["$ref"])
            document = self.named(name) if name else self._home[id(part)]
            part = _pointed(document, pointer, part["$ref"])
        return part

    def named(self, uri: str) -> Any:
        """References are named as in the schema, or by the address that this becomes with its $id."""
        for name, document in self._others.items():
            if uri == name or uri.endswith(f"/{name}") or uri == document.get("$id"):
                return document
        if uri == self.root.get("$id"):
            return self.root
        raise SchemaError(f"the JSON Schema refers to {uri}, and the registry does not say what that is")


def _parts(document: Any) -> list[Any]:
    found, waiting = [], [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            found.append(part)
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return found


def _pointed(document: Any, pointer: str, reference: str) -> Any:
    part = document
    for piece in pointer.lstrip("/").split("/") if pointer.strip("/") else ():
        name = piece.replace("~1", "/").replace("~0", "~")
        if not isinstance(part, dict) or name not in part:
            raise SchemaError(f"the JSON Schema refers to {reference}, which is not there")
        part = part[name]
    return part


def _loaded(text: str) -> Any:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SchemaError(f"this is no JSON Schema: {error}") from None
    if not isinstance(document, dict):
        raise SchemaError("the JSON Schema of a topic has to be an object with properties")
    return document


def _validator(schema: Schema) -> Callable[[Any], None]:
    """Raises for a value that the schema does not allow; nothing is fetched from other machines."""
    jsonschema_rs = require("jsonschema_rs", "json-schema")
    documents = _Documents(schema)
    try:
        made = jsonschema_rs.validator_for(documents.root, retriever=documents.named)
    except ValueError as error:
        raise SchemaError(f"this is no JSON Schema: {_said(error)}") from None

    def check(value: Any) -> None:
        try:
            made.validate(value)
        except ValueError as error:
            raise ValueError(_said(error)) from None

    return check


def _said(error: ValueError) -> str:
    """In one line, with the place in the value."""
    where = "/".join(map(str, getattr(error, "instance_path", ())))
    return str(error).splitlines()[0] + (f" at {where}" if where else "")
