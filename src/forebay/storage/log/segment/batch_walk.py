"""Walking a file of record batches from header to header, and reading it in chunks.

Every hop is checked (magic, lengths, growing offsets), so a damaged file or a wrong index shows as
`CorruptBatch` and never as bytes that begin in the middle of a batch.

`hops` and `headers` read no payload and compare no CRC. They find positions in the file, for bytes that are
checked later or sent unchanged. `batches` compares the CRC of every batch, and ends at a damaged one.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from forebay.storage.disk import File, FileClosed
from forebay.storage.log.segment.batch_parts import CorruptBatch, Hop, WholeBatch
from forebay.wire.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_ok, read_header

LENGTH_PREFIX = 12
"""The bytes of a batch before those that its length counts."""
MAX_RELATIVE_OFFSET = 2**31 - 1
NO_NEXT = 2**63
"""The active segment has no segment after it: no offset reaches this."""
READ_CHUNK_BYTES = 1 << 20

_PREFIX = Struct(">qiibIhiqq")
_HOP_CHUNK_BYTES = 8 << 10


class BatchWalk:
    __slots__ = ("base_offset", "file", "next_base", "size")

    def __init__(self, file: File, base_offset: int) -> None:
        self.file = file
        self.base_offset = base_offset
        self.next_base = NO_NEXT
        self.size = file.size()
        """The size of the whole batches in the file."""

    def hops(self, position: int = 0, min_offset: int | None = None) -> Iterator[Hop]:
        """Batch after batch to the written end, headers only. Raises CorruptBatch if inconsistent."""
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

        Only the headers of large batches are read.
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
        """The size of a batch with this header, if it is plausible; else CorruptBatch is raised."""
        size = length + LENGTH_PREFIX
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
        """Position, bytes and header of each batch from here to `end`, compared with its CRC.

        Raises CorruptBatch where one is damaged, OSError where it is unreadable.
        """
        end = self.size if end is None else end
        yield from self._whole_batches(position, end, self.base_offset if min_offset is None else min_offset)

    def _whole_batches(self, position: int, end: int, expected: int) -> Iterator[WholeBatch]:
        """Batches up to the first that is not whole: raises CorruptBatch, or the OSError of the disk."""
        chunk_bytes = READ_CHUNK_BYTES
        while True:
            try:
                for whole in self._walk(position, end, expected, chunk_bytes):
                    yield whole
                    position, expected = whole.position + whole.header.size, whole.header.next_offset
                return
            except FileClosed:
                raise
            except OSError:
                if chunk_bytes == HEADER_SIZE:
                    raise
                chunk_bytes = HEADER_SIZE  # batch by batch: only one of the chunk may be unreadable

    def _walk(self, position: int, end: int, expected: int, chunk_bytes: int) -> Iterator[WholeBatch]:
        chunk, chunk_start = memoryview(b""), position
        while position < end:
            at = position - chunk_start
            header_there = at + HEADER_SIZE <= len(chunk)
            size = self.hop_at(chunk, at, position, expected).size if header_there else 0
            if not header_there or at + size > len(chunk):
                wanted = max(chunk_bytes, size)
                chunk, chunk_start = memoryview(self._pread(wanted, position)), position
                if len(chunk) < max(size, HEADER_SIZE):
                    raise CorruptBatch(self.file.path, position, "a batch is cut short")
                continue
            header = read_header(chunk, at)
            if not crc_ok(chunk, at, size):
                why = f"the batch at offset {header.base_offset} fails its CRC"
                raise CorruptBatch(self.file.path, position, why)
            yield WholeBatch(position, chunk[at : at + size], header)
            position += size
            expected = header.last_offset + 1

    def _pread(self, length: int, position: int) -> bytes:
        """Raises OSError if the disk cannot read all of it. A read ends before an unreadable sector, and only
        the next one says why."""
        length = min(length, self.size - position)
        data = self.file.pread(length, position)
        while len(data) < length:
            more = self.file.pread(length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data
