"""Protobuf in Spark without a jar: protoc compiles the schema once, Google's library decodes in the workers.

Behind the five bytes of a registry a value names its message, by its place in the schema that it was written
with: the numbers of the messages from the outermost to it. A field is known by its number, so the value is
read by the wanted schema whichever version it was written with, provided that it is the same message.

What has no type in Spark is refused when the query is planned: a message that holds itself, such as
google.protobuf.Struct.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from forebay.spark.extras import require
from forebay.spark.schemas import protobuf_rows
from forebay.spark.schemas.decoding import Decoding, ReadValue, Row, SchemaError, WriteValue
from forebay.spark.schemas.registry import FRAME_BYTES, PROTOBUF, Schema, frame, schema_id_of, shared_registry

EXTRA = "protobuf"
_MAIN = "forebay_value.proto"
_COMPILE_SECONDS_MAX = 120


def fields(how: Decoding) -> list[pa.Field]:
    return protobuf_rows.arrow_fields(_File(how.compiled).message(how.message))


def reader(how: Decoding) -> ReadValue:
    message = _File(how.compiled).message(how.message)
    parse = _message_class(message).FromString
    to_row = protobuf_rows.row_maker(message)
    known = shared_registry(how.registry)

    @functools.cache
    def file_of(schema_id: int) -> _File:
        if schema_id == how.schema_id:
            return _File(how.compiled)
        return _File(compiled(known.schema(schema_id, PROTOBUF)))

    @functools.cache
    def check(schema_id: int, indexes: tuple[int, ...]) -> None:
        written = file_of(schema_id).name_at(indexes)
        if written != message.full_name:
            raise ValueError(f"the value is a {written}, not a {message.full_name}")

    def read(value: bytes) -> Row:
        schema_id = schema_id_of(value)
        indexes, start = _indexes(value)
        check(schema_id, indexes)
        row: Row = to_row(parse(value[start:]))
        return row

    return read


def reader_of_any(how: Decoding) -> ReadValue:
    """Reads a value of this schema as the message that it names, whichever that is."""
    file = _File(how.compiled)

    @functools.cache
    def parts(indexes: tuple[int, ...]) -> tuple[Callable[[bytes], Any], Callable[[Any], Row]]:
        message = file.message(file.name_at(indexes))
        return _message_class(message).FromString, protobuf_rows.row_maker(message)

    def read(value: bytes) -> Row:
        indexes, start = _indexes(value)
        parse, to_row = parts(indexes)
        return to_row(parse(value[start:]))

    return read


def writer(how: Decoding) -> WriteValue:
    file = _File(how.compiled)
    message = file.message(how.message)
    make = _message_class(message)
    assert how.schema_id is not None
    head = frame(how.schema_id) + _encoded(file.indexes_of(message))

    def write(row: Row) -> bytes:
        filled = make()
        protobuf_rows.fill(filled, row)
        encoded: bytes = filled.SerializeToString()
        return head + encoded

    return write


# -- schemas ------------------------------------------------------------------------------------------------


def compiled(schema: Schema) -> bytes:
    """A FileDescriptorSet with all that the schema refers to."""
    require("grpc_tools", EXTRA)
    with tempfile.TemporaryDirectory(prefix="forebay-protobuf-") as folder:
        for name, text in [*schema.references, (_MAIN, schema.text)]:
            path = Path(folder, _safe(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        result = Path(folder, "compiled")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
        done = subprocess.run(
            [*command, f"--descriptor_set_out={result}", _MAIN],
            capture_output=True,
            text=True,
            timeout=_COMPILE_SECONDS_MAX,
            check=False,
        )
        if done.returncode:
            said = " ".join(done.stderr.split()) or f"protoc ended with status {done.returncode}"
            raise SchemaError(f"this is no Protobuf schema: {said}")
        return result.read_bytes()


def _safe(name: str) -> PurePosixPath:
    """Names of references come from a registry, and become paths here."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise SchemaError(f"a schema refers to {name!r}, which is no name of a file")
    return path


class _File:
    """A compiled schema, in a pool of its own: two versions have messages of the same names."""

    def __init__(self, compiled: bytes) -> None:
        descriptor_pb2 = require("google.protobuf.descriptor_pb2", EXTRA)
        pool = require("google.protobuf.descriptor_pool", EXTRA).DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
            pool.Add(file)
            if file.name == _MAIN:
                self._proto = file
        self._pool = pool
        self._prefix = f"{self._proto.package}." if self._proto.package else ""

    def message(self, name: str) -> Any:
        """By its name, with or without the package; the first one for no name."""
        if not name:
            return self._pool.FindMessageTypeByName(self.name_at((0,)))
        for full_name in (self._prefix + name, name):
            try:
                return self._pool.FindMessageTypeByName(full_name)
            except KeyError:
                continue
        known = ", ".join(message.name for message in self._proto.message_type)
        raise SchemaError(f"the Protobuf schema has no message {name}: it has {known}")

    def name_at(self, indexes: tuple[int, ...]) -> str:
        messages: Any = self._proto.message_type
        names = []
        for index in indexes:
            if index >= len(messages):
                raise SchemaError(f"the Protobuf schema has no message number {index}")
            names.append(messages[index].name)
            messages = messages[index].nested_type
        return self._prefix + ".".join(names)

    def indexes_of(self, message: Any) -> list[int]:
        names = message.full_name.removeprefix(self._prefix).split(".")
        messages: Any = self._proto.message_type
        indexes = []
        for name in names:
            found = [number for number, one in enumerate(messages) if one.name == name]
            if not found:
                raise SchemaError(
                    f"{message.full_name} is a message of another file: values need one of this"
                )
            indexes += found
            messages = messages[found[0]].nested_type
        return indexes


def _message_class(message: Any) -> Any:
    return require("google.protobuf.message_factory", EXTRA).GetMessageClass(message)


# -- where a message is in its schema -----------------------------------------------------------------------


def _indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """The numbers of the value's message, and where the message begins. No numbers stand for the first."""
    count, at = _number(value, FRAME_BYTES)
    found = []
    for _ in range(count):
        index, at = _number(value, at)
        found.append(index)
    return tuple(found) or (0,), at


def _number(value: bytes, at: int) -> tuple[int, int]:
    """One number as Protobuf writes a sint32, and where the next one begins."""
    result = shift = 0
    while True:
        if at >= len(value) or shift > 28:
            raise ValueError("the value does not say which message it is")
        byte = value[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if result & 1:
        raise ValueError("the value does not say which message it is")
    return result >> 1, at


def _encoded(indexes: Iterable[int]) -> bytes:
    numbers = list(indexes)
    if numbers == [0]:
        return b"\0"
    encoded = bytearray()
    for number in (len(numbers), *numbers):
        rest = number << 1
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
    return bytes(encoded)
