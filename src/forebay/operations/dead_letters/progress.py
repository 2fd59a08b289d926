"""The dead letters of a partition that have been moved back, as a redrive commits them with its messages.

A redrive may skip letters, by a filter or because a record is not available. So an offset alone does not say
what was moved. The *position* is the first letter that was not moved; the *note* committed with it has the
letters after it that were, as a compressed bitmap. Brokers take notes of 4,096 bytes: that is enough for any
24,000 letters after the position, and for millions that were moved in long runs.

Committed positions expire (`offsets.retention.minutes`). A letter younger than that was not moved before if
there is no position; for an older one nobody knows. `unsure_below` keeps the end of those, so that they are
moved on request only.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import field

from forebay.lazy import dataclass

NOTE_CHARACTERS_MAX = 4_096
BITMAP_BYTES_MAX = 1 << 22
_FORMAT = "redrive1"


class NoteTooLongError(ValueError):
    """The moved letters are too scattered to be recorded."""


@dataclass(slots=True, kw_only=True)
class Progress:
    position: int
    unsure_below: int = 0
    moved: set[int] = field(default_factory=set)
    """The moved letters at and after the position."""
    read_to: int = 0
    """The offset after the last one that this redrive has read."""
    left: int | None = None
    """The first letter that this redrive has seen and not moved."""

    def is_moved(self, offset: int) -> bool:
        return offset < self.position or offset in self.moved

    def leave(self, offset: int) -> None:
        self.left = offset if self.left is None else min(self.left, offset)

    def advance(self) -> None:
        """Everything that was read is decided: advance the position to the first letter that was left."""
        self.position = max(self.position, self.read_to if self.left is None else self.left)
        self.moved = {offset for offset in self.moved if offset >= self.position}

    def note(self) -> str:
        unsure = self.unsure_below if self.unsure_below > self.position else 0
        bitmap = bytearray()
        if self.moved:
            span = max(self.moved) - self.position + 1
            if span > BITMAP_BYTES_MAX * 8:
                raise NoteTooLongError
            bitmap = bytearray(span // 8 + 1)
            for offset in self.moved:
                at = offset - self.position
                bitmap[at // 8] |= 1 << at % 8
        packed = base64.b64encode(zlib.compress(bytes(bitmap), 9)).decode() if bitmap else ""
        text = f"{_FORMAT};{unsure};{packed}"
        if len(text) > NOTE_CHARACTERS_MAX:
            raise NoteTooLongError
        return text


def progress_of(position: int, note: str | None) -> Progress:
    """The committed progress. A position without a valid note was set by somebody else: it counts alone."""
    name, _, rest = (note or "").partition(";")
    unsure, _, packed = rest.partition(";")
    try:
        if name != _FORMAT:
            raise ValueError
        unsure_below = int(unsure)
        bitmap = _unpack(packed) if packed else b""
    except (ValueError, binascii.Error, zlib.error):
        return Progress(position=position, read_to=position)
    moved = {
        position + at * 8 + bit
        for at, byte in enumerate(bitmap)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    }
    return Progress(position=position, unsure_below=unsure_below, moved=moved, read_to=position)


def _unpack(packed: str) -> bytes:
    return zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), BITMAP_BYTES_MAX + 1)
