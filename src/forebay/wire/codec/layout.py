"""The common part of the compilers of encoders and decoders: versions, layouts and source text.

Both write Python source for one message in one version. Structs are written inline where they occur, so that
a whole message is one function; each nesting level has its own names (`o1`, `o2`, ...). Fields of fixed width
that follow each other become one `struct.Struct`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from struct import Struct as Packing
from struct import calcsize
from typing import Any

from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.fields import FORMATS, ApiMessage, Field, Message, Struct

# The maximum size of a length, count, tag or size.
UVARINT_BYTES = 5

STRING_BYTES_MAX = 2**15 - 1
"""The maximum of a string in a request or response. The older versions cannot say more, nor can the records
in which coordinators keep clients' names; so it holds for the flexible versions too, as in Kafka."""

UNKNOWN_TAGS_MAX = 100
"""The maximum of one struct or header. Kafka's newest messages have a handful; each costs time."""


@cache
def in_range(versions: str, version: int) -> bool:
    """True if a version lies in a range written as "3+", "3-5" or "3"; the empty range has none."""
    if not versions:
        return False
    first, dash, last = versions.rstrip("+").partition("-")
    if versions.endswith("+"):
        return int(first) <= version
    return int(first) <= version <= int(last if dash else first)


class Layout:
    """One version of a message, for its compilers."""

    def __init__(self, cls: type[Message], version: int) -> None:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}",
            )
        self.cls = cls
        self.version = version
        self.flexible = version >= cls.FLEXIBLE_FROM
        self.bounds_strings = issubclass(cls, ApiMessage)
        """Records that are already in an internal topic are read whatever their size."""

    def plain(self, cls: type[Struct]) -> list[tuple[str, Field]]:
        """The fields of this version in wire order."""
        return [(name, field) for name, field in self._present(cls) if field.tag is None]

    def tagged(self, cls: type[Struct]) -> list[tuple[str, Field]]:
        """The tagged fields of this version in the order of their tags."""
        found = [(name, field) for name, field in self._present(cls) if field.tag is not None]
        return sorted(found, key=lambda item: item[1].tag or 0)

    def left_out(self, cls: type[Struct]) -> list[tuple[str, Field]]:
        """The fields for which a decoder may find no bytes: of other versions, and tagged."""
        plain = dict(self.plain(cls))
        return [(name, field) for name, field in cls.FIELDS.items() if name not in plain]

    def nullable(self, field: Field) -> bool:
        return in_range(field.nullable, self.version)

    def size_min(self, field: Field) -> int:
        """The fewest bytes that a value of the field takes."""
        if field.kind in FORMATS:
            return calcsize(">" + FORMATS[field.kind])
        if field.struct is not None:
            if self.nullable(field):
                return 1
            return sum(self.size_min(inner) for _, inner in self.plain(field.struct)) + self.flexible
        return 1 if self.flexible else calcsize(">" + self.length_format(field))

    def length_format(self, field: Field) -> str:
        """The struct format of a length that is not compact."""
        return "h" if field.kind == "string" else "i"

    def _present(self, cls: type[Struct]) -> Iterator[tuple[str, Field]]:
        for name, field in cls.FIELDS.items():
            if in_range(field.versions, self.version):
                yield name, field


class Source:
    """Lines of Python at a growing and shrinking indent, and the objects that they name."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._indent = 0
        self._count = 0

    def line(self, text: str) -> None:
        self._lines.append(" " * self._indent + text)

    def indent(self) -> None:
        self._indent += 1

    def dedent(self) -> None:
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        """A name that no other line uses."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, value: object) -> str:
        """The name under which the lines find an object; one object has one name."""
        for name, known in self.names.items():
            if known is value and name.startswith(prefix):
                return name
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def function(self, name: str) -> Any:
        exec(compile("\n".join(self._lines), f"<forebay {name}>", "exec"), self.names)
        return self.names[name]


@cache
def unpack_from(fmt: str) -> Any:
    return Packing(">" + fmt).unpack_from


@cache
def pack(fmt: str) -> Any:
    return Packing(">" + fmt).pack


def read_uvarint(view: memoryview, pos: int) -> tuple[int, int]:
    """An unsigned varint of any length, and the position after it."""
    byte = view[pos]
    return read_long_uvarint(view, byte, pos + 1) if byte > 127 else (byte, pos + 1)


def read_long_uvarint(view: memoryview, first: int, pos: int) -> tuple[int, int]:
    """An unsigned varint whose first byte, already read, says that more follow."""
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES, 7):
        byte = view[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFF_FFFF:
                raise ProtocolError("a varint is larger than 32 bits")
            return value, pos
    raise ProtocolError(f"a varint is longer than {UVARINT_BYTES} bytes")


def uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def skip_tags(view: memoryview, count: int, pos: int) -> int:
    """The position after unknown tagged fields; the first byte of their count was read."""
    if count > 127:
        count, pos = read_long_uvarint(view, count, pos)
    if count > UNKNOWN_TAGS_MAX or 2 * count > len(view) - pos:
        raise ProtocolError(
            f"{count} unknown tagged fields, more than {UNKNOWN_TAGS_MAX} or than the frame can hold"
        )
    for _ in range(count):
        _, pos = read_uvarint(view, pos)
        size, pos = read_uvarint(view, pos)
        pos += size
    return pos
