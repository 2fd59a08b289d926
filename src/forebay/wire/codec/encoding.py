"""Writes the encoder of one message in one version.

The generated function adds to a buffer that is already there (a frame begins with its header) and returns the
buffer to continue with. That is a new one if records were passed by reference: everything before them is then
complete, and goes to the list of parts together with them.

Fixed-width fields, and the length of what follows them, are packed together. A tagged section is a zero byte
unless a tagged field differs from its default; a pad byte in the packing writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from struct import pack as pack_by_format
from typing import Any

from forebay.wire.codec.layout import Layout, Source, pack, uvarint
from forebay.wire.fields import FORMATS, Field, Message, Struct, default_source
from forebay.wire.parts import FileRange, Part, size_of

Encoder = Callable[[Any, bytearray, list[Part]], bytearray]
StepwiseEncoder = Callable[[Any, bytearray, list[Part]], Generator[None, None, bytearray]]

# Records shorter than this are copied after their header: one slightly larger send is cheaper than two.
COPIED_BYTES_MAX = 4096

STEP_ELEMENTS = 256
"""Between two yields of a stepwise encoder."""


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    """A function (value, buffer to add to, finished parts) -> the buffer that now ends the message."""
    writer = _EncoderWriter(Layout(cls, version))
    writer.write_message()
    encoder: Encoder = writer.source.function("encode")
    return encoder


def compile_stepwise_encoder(cls: type[Message], version: int) -> StepwiseEncoder:
    """Like `compile_encoder`, as a generator that yields after every STEP_ELEMENTS and returns the buffer."""
    writer = _EncoderWriter(Layout(cls, version), steps=True)
    writer.write_message()
    encoder: StepwiseEncoder = writer.source.function("encode")
    return encoder


def records_size(records: Part | Sequence[Part]) -> int:
    if isinstance(records, FileRange):
        return records.length
    if isinstance(records, (bytes, bytearray, memoryview)):
        return len(records)
    return size_of(records)


def add_records(records: Part | Sequence[Part], out: bytearray, parts: list[Part]) -> bytearray:
    """Add records after `out`, and return the buffer to continue with."""
    if isinstance(records, (bytes, bytearray, memoryview, FileRange)):
        records = (records,)
    for part in records:
        if isinstance(part, FileRange) or len(part) >= COPIED_BYTES_MAX:
            if out:
                parts.append(out)
                out = bytearray()
            parts.append(part)
        else:
            out += part
    return out


class _EncoderWriter:
    def __init__(self, layout: Layout, *, steps: bool = False) -> None:
        self.layout = layout
        self._steps = steps
        self.source = Source()
        self.source.names |= {
            "pack": pack_by_format,
            "uvarint": uvarint,
            "records_size": records_size,
            "add_records": add_records,
        }
        # Fixed-width values that wait to be packed together: their formats, and the expressions.
        self._formats: list[str] = []
        self._values: list[str] = []
        # Functions for tagged fields, written when the function that calls them is complete.
        self._later: list[tuple[str, type[Struct]]] = []

    def write_message(self) -> None:
        self.source.line("def encode(o, out, parts):")
        self.source.indent()
        if self._steps:
            self.source.line("step = 0")
        self._struct("o", self.layout.cls)
        self._flush()
        if self._steps:
            self.source.line("yield")
        self.source.line("return out")
        self.source.dedent()
        self._steps = False  # tagged fields are few
        while self._later:
            self._tag_function(*self._later.pop())

    # Fixed-width values

    def _put(self, fmt: str, value: str | None = None) -> None:
        self._formats.append(fmt)
        if value is not None:
            self._values.append(value)

    def _packed(self) -> str:
        """The expression that packs the pending values."""
        packer = self.source.constant("pack_", pack("".join(self._formats)))
        return f"{packer}({', '.join(self._values)})"

    def _flush(self) -> None:
        if self._formats == ["x"]:
            self.source.line("out.append(0)")
        elif self._formats:
            self.source.line(f"out += {self._packed()}")
        self._formats.clear()
        self._values.clear()

    def _put_length(self, length: str, field: Field) -> None:
        """Packs the pending values, and the length of the next variable field; null has the length -1."""
        if self.layout.flexible:
            self._put_compact_length(length)
        else:
            self._put(self.layout.length_format(field), length)
        self._flush()

    def _put_compact_length(self, length: str) -> None:
        line = self.source.line
        line(f"{length} += 1")
        line(f"if {length} > 127:")
        prefix = f"{self._packed()} + " if self._formats else ""
        line(f" out += {prefix}uvarint({length})")
        line("else:")
        if not self._formats:
            line(f" out.append({length})")
            return
        self._put("B", length)
        line(f" out += {self._packed()}")
        self._formats.clear()
        self._values.clear()

    # Fields

    def _struct(self, value: str, cls: type[Struct]) -> None:
        for name, field in self.layout.plain(cls):
            self._field(f"{value}.{name}", field)
        if self.layout.flexible:
            self._tags(value, cls)

    def _field(self, value: str, field: Field) -> None:
        if field.kind in FORMATS:
            self._put(FORMATS[field.kind], value)
        elif field.struct is not None:
            self._struct_field(value, field)
        else:
            self._variable(value, field)

    def _struct_field(self, value: str, field: Field) -> None:
        assert field.struct is not None
        inner = self.source.fresh("o")
        self.source.line(f"{inner} = {value}")
        if not self.layout.nullable(field):
            self._struct(inner, field.struct)
            return
        self._flush()
        self.source.line(f"if {inner} is None: out += b'\\xff'")
        self.source.line("else:")
        self.source.indent()
        self._put("b", "1")
        self._struct(inner, field.struct)
        self._flush()
        self.source.dedent()

    def _variable(self, value: str, field: Field) -> None:
        content, length = self.source.fresh("v"), self.source.fresh("n")
        line = self.source.line
        line(f"{content} = {value}")
        if self.layout.nullable(field):
            line(f"if {content} is None: {length} = -1; {content} = b''")
            line("else:")
            self.source.indent()
            self._measure(content, length, field)
            self.source.dedent()
        else:
            self._measure(content, length, field)
        self._put_length(length, field)
        self._content(content, field)

    def _measure(self, content: str, length: str, field: Field) -> None:
        if field.kind == "string":
            self.source.line(f"{content} = {content}.encode()")
        measure = "records_size" if field.kind == "records" else "len"
        self.source.line(f"{length} = {measure}({content})")

    def _content(self, content: str, field: Field) -> None:
        line = self.source.line
        if field.kind == "records":
            line(f"out = add_records({content}, out, parts)")
        elif field.kind != "array":
            line(f"out += {content}")
        else:
            assert field.element is not None
            self._elements(content, field.element)

    def _elements(self, content: str, element: Field) -> None:
        if element.kind == "uuid":
            self.source.line(f"out += b''.join({content})")
            return
        if element.kind in FORMATS:
            self.source.line(f"out += pack(f'>{{len({content})}}{FORMATS[element.kind]}', *{content})")
            return
        value = self.source.fresh("o")
        self.source.line(f"for {value} in {content}:")
        self.source.indent()
        if element.struct is not None:
            self._struct(value, element.struct)
        else:
            self._field(value, element)
        self._flush()
        if self._steps:
            self.source.line("step += 1")
            self.source.line(f"if step > {STEP_ELEMENTS}: yield; step = 0")
        self.source.dedent()

    # Tagged fields

    def _tags(self, value: str, cls: type[Struct]) -> None:
        tagged = self.layout.tagged(cls)
        if not tagged:
            self._put("x")
            return
        self._flush()
        function = self.source.fresh("add_tags_")
        self._later.append((function, cls))
        all_default = " and ".join(self._is_default(f"{value}.{name}", field) for name, field in tagged)
        self.source.line(f"if {all_default}: out.append(0)")
        self.source.line(f"else: {function}({value}, out)")

    def _is_default(self, value: str, field: Field) -> str:
        """The expression that is true for a value that needs no bytes."""
        if field.default is None:
            return f"{value} is None"
        if field.struct is not None:
            shared = default_source(field, self.source.names)
            return f"({value} is {shared} or {value} == {shared})"
        if field.kind == "array":
            return f"{value} == []" if self.layout.nullable(field) else f"not {value}"
        return f"{value} == {default_source(field, self.source.names)}"

    def _tag_function(self, function: str, cls: type[Struct]) -> None:
        """Most messages carry no tagged fields, so the code that writes them is a separate function."""
        line = self.source.line
        line(f"def {function}(o, message):")
        self.source.indent()
        line("parts = []; count = 0; section = bytearray()")
        for name, field in self.layout.tagged(cls):
            line(f"if not ({self._is_default(f'o.{name}', field)}):")
            self.source.indent()
            line("out = bytearray()")
            self._field(f"o.{name}", field)
            self._flush()
            line(f"section += {uvarint(field.tag or 0)!r} + uvarint(len(out)) + out")
            line("count += 1")
            self.source.dedent()
        line("message += uvarint(count) + section")
        self.source.dedent()
