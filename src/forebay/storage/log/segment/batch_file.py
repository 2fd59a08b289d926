"""A file of record batches: walked from header to header, read in chunks, checked against their CRCs.

Every hop is checked (magic, lengths, growing offsets), so a damaged file or a wrong index shows as
`CorruptBatch` and never as bytes that begin in the middle of a batch.

Bytes that this process has not checked itself (`trusted_from` says where its own begin) are checked against
their CRC before they are first served: `verify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from forebay.errors import ErrorCode, StorageError
from forebay.storage.disk import File
from forebay.wire.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_ok, read_header

MAX_RELATIVE_OFFSET = 2**31 - 1
NO_NEXT = 2**63
"""The active segment has no segment after it: no offset reaches this."""

_PREFIX = Struct(">qiibIhiqq")
_LENGTH_PREFIX = 12
_HOP_CHUNK_BYTES = 8 << 10
_READ_CHUNK_BYTES = 1 << 20


class CorruptBatch(StorageError):
    """The file holds something else than the batch that should be there."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {why}")
        self.code = ErrorCode.CORRUPT_MESSAGE
        self.position = position


class Hop(NamedTuple):
    """What must be known of a batch to pass over it."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int

    @classmethod
    def over(cls, head: BatchHeader, position: int) -> Hop:
        offsets, times = (head.base_offset, head.last_offset), (head.base_timestamp, head.max_timestamp)
        return cls(position, head.size, *offsets, *times)


class BatchFile:
    __slots__ = ("base_offset", "file", "next_base", "size", "trusted_from", "verified")

    def __init__(self, file: File, base_offset: int) -> None:
        self.file = file
        self.base_offset = base_offset
        self.next_base = NO_NEXT
        self.size = file.size()
        """Of the whole batches in the file."""
        self.trusted_from = self.size
        self.verified = (0, 0)

    def hops(self, position: int = 0, min_offset: int | None = None) -> Iterator[Hop]:
        """Batch after batch to the written end, headers only. Raises CorruptBatch where they do not fit."""
        expected = self.base_offset if min_offset is None else min_offset
        chunk, chunk_start = b"", position
        while position < self.size:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = self._pread(_HOP_CHUNK_BYTES, position), position, 0
            hop = self.hop_at(chunk, at, position, expected)
            yield hop
            position += hop.size
            expected = hop.last_offset + 1

    def headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from here to `end`. Raises CorruptBatch like `hops`.

        Large batches are passed over without reading more than their headers.
        """
        chunk, chunk_start, wanted, expected = b"", position, _HOP_CHUNK_BYTES, 0
        while position < end:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk = self.file.pread(min(wanted, self.size - position), position)
                chunk_start, at = position, 0
                if len(chunk) < HEADER_SIZE:
                    self._check_length(chunk, 0, position)
            header = read_header(chunk, at)
            size = self._check(position, header[0], header[1], header[3], header[6], expected)
            yield position, header
            position += size
            expected = header[0] + header[6] + 1
            wanted = _HOP_CHUNK_BYTES if size < _HOP_CHUNK_BYTES else HEADER_SIZE

    def hop_at(self, chunk: bytes | memoryview, at: int, position: int, expected: int) -> Hop:
        self._check_length(chunk, at, position)
        base_offset, length, _, magic, _, _, last_offset_delta, base_timestamp, max_timestamp = (
            _PREFIX.unpack_from(chunk, at)
        )
        size = self._check(position, base_offset, length, magic, last_offset_delta, expected)
        last_offset = base_offset + last_offset_delta
        return Hop(position, size, base_offset, last_offset, base_timestamp, max_timestamp)

    def _check_length(self, chunk: bytes | memoryview, at: int, position: int) -> None:
        if len(chunk) - at < HEADER_SIZE:
            raise CorruptBatch(self.file.path, position, "a batch header is cut short")

    def _check(
        self, position: int, base_offset: int, length: int, magic: int, last_offset_delta: int, expected: int
    ) -> int:
        """The size of a batch whose header says this, if it can be there; else CorruptBatch is raised."""
        size = length + _LENGTH_PREFIX
        if magic != MAGIC or size < HEADER_SIZE or last_offset_delta < 0 or position + size > self.size:
            raise CorruptBatch(self.file.path, position, "this is not the header of a whole batch")
        last_offset = base_offset + last_offset_delta
        too_far = last_offset >= self.next_base or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        if base_offset < expected or too_far:
            raise CorruptBatch(self.file.path, position, f"offset {base_offset} does not belong here")
        return size

    def batches(
        self, position: int = 0, *, end: int | None = None, min_offset: int | None = None
    ) -> Iterator[tuple[int, memoryview, BatchHeader]]:
        """Whole batches with their bytes, a chunk in memory at a time. Headers are checked, CRCs are not."""
        end = self.size if end is None else end
        expected = self.base_offset if min_offset is None else min_offset
        chunk, chunk_start = memoryview(b""), position
        while position < end:
            at = position - chunk_start
            header_there = at + HEADER_SIZE <= len(chunk)
            size = self.hop_at(chunk, at, position, expected).size if header_there else 0
            if not header_there or at + size > len(chunk):
                wanted = max(_READ_CHUNK_BYTES, size)
                chunk, chunk_start = memoryview(self._pread(wanted, position)), position
                if len(chunk) < max(size, HEADER_SIZE):
                    raise CorruptBatch(self.file.path, position, "a batch is cut short")
                continue
            header = read_header(chunk, at)
            yield position, chunk[at : at + size], header
            position += size
            expected = header.last_offset + 1

    def checked_batches(
        self, position: int = 0, *, end: int | None = None, min_offset: int | None = None
    ) -> Iterator[tuple[int, memoryview, BatchHeader]]:
        """Like `batches`, but raises CorruptBatch where the CRC is wrong, too."""
        for at, batch, header in self.batches(position, end=end, min_offset=min_offset):
            if not crc_ok(batch, 0, header.size):
                why = f"the batch at offset {header.base_offset} fails its CRC"
                raise CorruptBatch(self.file.path, at, why)
            yield at, batch, header

    def _pread(self, length: int, position: int) -> bytes:
        return self.file.pread(min(length, self.size - position), position)

    # --- trust ---------------------------------------------------------------------------------------------

    def trusts(self, position: int, length: int) -> bool:
        """Whether these bytes were written or checked by this process."""
        if position >= self.trusted_from:
            return True
        start, end = self.verified
        return start <= position and min(position + length, self.trusted_from) <= end

    def verify(self, position: int, length: int) -> None:
        """Check the CRC of every batch in the range, once. Blocks; any thread."""
        end = min(position + length, self.trusted_from)
        for _ in self.checked_batches(position, end=end):
            pass
        start, known = self.verified
        if position <= known and start <= position:
            self.verified = (start, max(known, end))
        else:
            self.verified = (position, end)


class Stretch(NamedTuple):
    """A part of a file, of whole batches. Its owner finds it; any thread reads it, which may block."""

    file: BatchFile
    position: int
    end: int

    def batches(self) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Reads a chunk at a time. Raises StorageError when the disk does not give it."""
        try:
            for _, batch, header in self.file.batches(self.position, end=self.end):
                yield batch, header
        except OSError as error:
            raise StorageError(f"cannot read {self.file.file.path}: {error}") from error
