"""Writes the decoder of one message in one version.

Malformed bytes are caught without a cost for every field: the position only grows, because negative lengths
are refused where they are read. Reading a number past the end raises (IndexError or struct.error, turned into
ProtocolError at one place), and a slice past the end, which Python silently shortens, leaves the position
beyond the end. Nothing can be read there, and the last line of the function detects it. Counts are compared
with the remaining bytes before any element is created.

A length or count of the flexible versions is read as one byte together with the fixed fields in front of it;
only if that byte says so is the rest of the varint fetched.

A decoder comes in three forms. The plain one counts nothing: it is for frames so short that they cannot hold
many elements. The bounded one counts the elements of all arrays, and unknown tagged fields, before it creates
them, and raises TooManyElements. The stepwise one does the same as a generator that yields every STEP_BYTES,
for callers that have other work in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import calcsize
from struct import error as struct_error
from struct import unpack_from as unpack
from typing import Any

from forebay.errors import ProtocolError, TooManyElements
from forebay.wire.codec.layout import (
    STRING_BYTES_MAX,
    UNKNOWN_TAGS_MAX,
    Layout,
    Source,
    read_long_uvarint,
    read_uvarint,
    skip_tags,
    unpack_from,
)
from forebay.wire.fields import FORMATS, Field, Message, Struct, default_source

Decoder = Callable[[memoryview, int], tuple[Any, int]]
BoundedDecoder = Callable[[memoryview, int, int], tuple[Any, int]]
StepwiseDecoder = Callable[[memoryview, int, int], Generator[None, None, tuple[Any, int]]]

STEP_BYTES = 2048
"""The distance between two yields of a stepwise decoder: about a millisecond of work with small elements."""


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    """A function from (buffer, position) to (value, position after it)."""
    decoder: Decoder = _written(_DecoderWriter(Layout(cls, version)))
    return decoder


def compile_bounded(cls: type[Message], version: int) -> BoundedDecoder:
    """Like `compile_decoder`, with a maximum of elements. Raises TooManyElements."""
    decoder: BoundedDecoder = _written(_DecoderWriter(Layout(cls, version), counts=True))
    return decoder


def compile_stepwise(cls: type[Message], version: int) -> StepwiseDecoder:
    """Like `compile_bounded`, as a generator that returns the value and the position after it."""
    decoder: StepwiseDecoder = _written(_DecoderWriter(Layout(cls, version), counts=True, steps=True))
    return decoder


def _written(writer: _DecoderWriter) -> Any:
    writer.write_message()
    return writer.source.function("decode")


class _DecoderWriter:
    def __init__(self, layout: Layout, *, counts: bool = False, steps: bool = False) -> None:
        self.layout = layout
        self._counts = counts
        self._steps = steps
        self.source = Source()
        self.source.names |= {
            "new": object.__new__,
            "unpack": unpack,
            "read_uvarint": read_uvarint,
            "read_long_uvarint": read_long_uvarint,
            "skip_tags": skip_tags,
            "ProtocolError": ProtocolError,
            "TooManyElements": TooManyElements,
            "malformed": (IndexError, struct_error, UnicodeDecodeError, OverflowError),
        }
        # Fixed-width reads that wait to be done in one unpack: their formats, and where the values go.
        self._formats: list[str] = []
        self._targets: list[str] = []
        # Functions for tagged fields, written when the function that calls them is complete.
        self._later: list[tuple[str, type[Struct]]] = []
        self._in_tags = False

    @property
    def _title(self) -> str:
        return f"{self.layout.cls.__name__} v{self.layout.version}"

    def write_message(self) -> None:
        cls, line, title = self.layout.cls, self.source.line, self._title
        line("def decode(view, pos, left):" if self._counts else "def decode(view, pos):")
        self.source.indent()
        line("size = len(view)")
        if self._counts:
            line("most = left")
        if self._steps:
            line(f"step = pos + {STEP_BYTES}")
        line("try:")
        self.source.indent()
        value = self._struct(cls)
        self._flush()
        self.source.dedent()
        line("except malformed as problem:")
        line(f" raise ProtocolError(f'{title}: {{problem}}') from None")
        if self._steps:
            line("yield")
        line("if pos > size:")
        line(f" raise ProtocolError('{title}: cut short')")
        line(f"return {value}, pos")
        self.source.dedent()
        while self._later:
            self._tag_function(*self._later.pop())

    # Fixed-width reads

    def _read(self, fmt: str, target: str) -> None:
        self._formats.append(fmt)
        self._targets.append(target)

    def _flush(self) -> None:
        if not self._formats:
            return
        fmt = "".join(self._formats)
        if fmt == "B":
            self.source.line(f"{self._targets[0]} = view[pos]")
        else:
            reader = self.source.constant("unpack_", unpack_from(fmt))
            self.source.line(f"{', '.join(self._targets)}, = {reader}(view, pos)")
        self.source.line(f"pos += {calcsize('>' + fmt)}")
        self._formats.clear()
        self._targets.clear()

    def _length(self, name: str, field: Field) -> str:
        """Reads the length before a variable field; null is then -1, and nothing is less."""
        length = self.source.fresh("n")
        line = self.source.line
        if self.layout.flexible:
            self._read("B", length)
            self._flush()
            self._long_length(name, field, length)
            line(f"{length} -= 1")
        else:
            self._read(self.layout.length_format(field), length)
            self._flush()
        least = -1 if self.layout.nullable(field) else 0
        line(f"if {length} < {least}: raise ProtocolError(f'{name}: the length is {{{length}}}')")
        return length

    def _long_length(self, name: str, field: Field, length: str) -> None:
        """Reads the rest of a length that does not fit into one byte: only those can be too large."""
        line = self.source.line
        line(f"if {length} > 127:")
        self.source.indent()
        line(f"{length}, pos = read_long_uvarint(view, {length}, pos)")
        if field.kind == "string" and self.layout.bounds_strings:
            line(
                f"if {length} > {STRING_BYTES_MAX + 1}: raise ProtocolError("
                f"f'{name}: a string of {{{length} - 1}} bytes; {STRING_BYTES_MAX} are the most')"
            )
        self.source.dedent()

    # Fields

    def _struct(self, cls: type[Struct]) -> str:
        """Reads a struct into a fresh object, which it names."""
        value = self.source.fresh("o")
        self.source.line(f"{value} = new({self.source.constant('class_', cls)})")
        for name, field in self.layout.left_out(cls):
            default = default_source(field, self.source.names)
            self.source.line(f"{value}.{name} = {default}")
        for name, field in self.layout.plain(cls):
            self._field(f"{value}.{name}", name, field)
        if self.layout.flexible:
            self._tags(value, cls)
        return value

    def _field(self, target: str, name: str, field: Field) -> None:
        if field.kind in FORMATS:
            self._read(FORMATS[field.kind], target)
        elif field.struct is not None:
            self._struct_field(target, name, field)
        else:
            self._variable(target, name, field)

    def _struct_field(self, target: str, name: str, field: Field) -> None:
        assert field.struct is not None
        if not self.layout.nullable(field):
            self.source.line(f"{target} = {self._struct(field.struct)}")
            return
        marker = self.source.fresh("n")
        self._read("b", marker)
        self._flush()
        self.source.line(f"if {marker} == -1: {target} = None")
        self.source.line(f"elif {marker} != 1: raise ProtocolError('{name}: neither present nor null')")
        self.source.line("else:")
        self.source.indent()
        value = self._struct(field.struct)
        self._flush()
        self.source.line(f"{target} = {value}")
        self.source.dedent()

    def _variable(self, target: str, name: str, field: Field) -> None:
        length = self._length(name, field)
        if self.layout.nullable(field):
            self.source.line(f"if {length} < 0: {target} = None")
            self.source.line("else:")
            self.source.indent()
            self._content(target, name, field, length)
            self.source.dedent()
        else:
            self._content(target, name, field, length)

    def _content(self, target: str, name: str, field: Field, length: str) -> None:
        line = self.source.line
        if field.kind == "array":
            self._array(target, name, field, length)
            return
        line(f"end = pos + {length}")
        if field.kind == "string":
            line(f"{target} = str(view[pos:end], 'utf-8')")
        elif field.kind == "bytes":
            line(f"{target} = bytes(view[pos:end])")
        else:
            line(f"{target} = view[pos:end]")
        line("pos = end")

    def _array(self, target: str, name: str, field: Field, count: str) -> None:
        element = field.element
        assert element is not None
        line = self.source.line
        width = self.layout.size_min(element)
        assert width > 0, f"elements of {name} take no bytes"
        line(
            f"if {count} * {width} > size - pos:"
            f" raise ProtocolError(f'{name}: {{{count}}} elements do not fit into the rest of the frame')"
        )
        self._count(count)
        if element.kind == "uuid":
            line(f"{target} = [bytes(view[at:at + 16]) for at in range(pos, pos + 16 * {count}, 16)]")
            line(f"pos += {count} * 16")
            return
        if element.kind in FORMATS:
            line(f"{target} = [*unpack(f'>{{{count}}}{FORMATS[element.kind]}', view, pos)]")
            line(f"pos += {count} * {width}")
            return
        values = self.source.fresh("a")
        line(f"{target} = {values} = []")
        line(f"for _ in range({count}):")
        self.source.indent()
        self._element(values, name, element)
        if self._steps and not self._in_tags:
            line(f"if pos > step: yield; step = pos + {STEP_BYTES}")
        self.source.dedent()

    def _count(self, count: str) -> None:
        """Counts elements before anything is made of them."""
        if self._counts:
            self.source.line(f"left -= {count}")
            self.source.line(f"if left < 0: raise TooManyElements('{self._title}', most, most - left)")

    def _element(self, values: str, name: str, element: Field) -> None:
        if element.struct is not None:
            value = self._struct(element.struct)
            self._flush()
        else:
            value = self.source.fresh("v")
            self._field(value, name, element)
        self.source.line(f"{values}.append({value})")

    # Tagged fields

    def _tags(self, value: str, cls: type[Struct]) -> None:
        count = self.source.fresh("n")
        self._read("B", count)
        self._flush()
        self.source.line(f"if {count}:")
        self.source.indent()
        self._count(count)  # the first byte is enough: a longer count is refused
        if not self.layout.tagged(cls):
            self.source.line(f"pos = skip_tags(view, {count}, pos)")
        else:
            function = self.source.fresh("read_tags_")
            self._later.append((function, cls))
            if self._counts:
                self.source.line(f"pos, left = {function}(view, size, {count}, pos, {value}, left, most)")
            else:
                self.source.line(f"pos = {function}(view, size, {count}, pos, {value})")
        self.source.dedent()

    def _tag_function(self, function: str, cls: type[Struct]) -> None:
        """Most messages carry no tagged fields, so the code that reads them is a separate function."""
        line, self._in_tags = self.source.line, True
        line(f"def {function}(view, size, count, pos, o{', left, most' if self._counts else ''}):")
        self.source.indent()
        line("if count > 127: count, pos = read_long_uvarint(view, count, pos)")
        line(f"if count > {UNKNOWN_TAGS_MAX}: raise ProtocolError(f'{{count}} tagged fields')")
        line("for _ in range(count):")
        self.source.indent()
        line("tag, pos = read_uvarint(view, pos)")
        line("length, pos = read_uvarint(view, pos)")
        line("behind = pos + length")
        for name, field in self.layout.tagged(cls):
            line(f"if tag == {field.tag}:")
            self.source.indent()
            self._field(f"o.{name}", name, field)
            self._flush()
            line(f"if pos != behind: raise ProtocolError('{name}: the size of the tagged field is wrong')")
            self.source.dedent()
        line("pos = behind")
        self.source.dedent()
        line("return pos, left" if self._counts else "return pos")
        self.source.dedent()
