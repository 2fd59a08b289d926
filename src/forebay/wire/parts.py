"""The parts of a response: pieces of memory, and ranges of files that are never read into it.

A connection sends memory with `send` and a `FileRange` with `sendfile`, in the order of the list. The wire
layer only needs the length of each piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from forebay.lazy import dataclass


class RangeFile(Protocol):
    """An open file that stays readable for as long as a range of it is held."""

    def fileno(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes: ...

    def cached(self, position: int, length: int) -> bool:
        """True if reading the range probably does not wait for the device."""


@dataclass(slots=True)
class FileRange:
    file: RangeFile
    position: int
    length: int


Part: TypeAlias = bytes | bytearray | memoryview | FileRange

# The possible values of a `records` field. Decoding always yields a memoryview or None.
Records: TypeAlias = Part | Sequence[Part] | None


def size_of(parts: Iterable[Part]) -> int:
    """The number of bytes that the parts take on the wire."""
    return sum([part.length if isinstance(part, FileRange) else len(part) for part in parts])


def join(parts: Iterable[Part]) -> bytes:
    """The parts in one piece. File ranges are read into memory, so this is not for the data path."""
    return b"".join(
        [
            part.file.pread(part.length, part.position) if isinstance(part, FileRange) else part
            for part in parts
        ]
    )
