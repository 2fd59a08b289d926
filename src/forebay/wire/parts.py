"""What a response is made of: pieces of memory, and ranges of files that never enter it.

A connection sends memory with `send` and a `FileRange` with `sendfile`, in the order of the list. The
wire layer only has to know how long each piece is.
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
        """Whether reading the range is likely not to wait for the device."""


@dataclass(slots=True)
class FileRange:
    file: RangeFile
    position: int
    length: int


Part: TypeAlias = bytes | bytearray | memoryview | FileRange

# What a `records` field may be given. Decoding always yields a memoryview or None.
Records: TypeAlias = Part | Sequence[Part] | None


def size_of(parts: Iterable[Part]) -> int:
    """How many bytes the parts are on the wire."""
    return sum([part.length if isinstance(part, FileRange) else len(part) for part in parts])


def join(parts: Iterable[Part]) -> bytes:
    """The parts in one piece. File ranges are read into memory, so this is not for the data path."""
    return b"".join(
        [
            part.file.pread(part.length, part.position) if isinstance(part, FileRange) else part
            for part in parts
        ]
    )
