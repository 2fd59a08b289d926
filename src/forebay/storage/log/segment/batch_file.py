"""A file of record batches: read past damage, and checked against CRCs once before it is served.

**Reading batches.** A header may be damaged like any other byte: a count, a flag or a length is trusted only
after the CRC of its batch has been checked. So there is one way to read batches, and it checks:

- `read` yields `WholeBatch` for intact batches, and `DamagedPart` for the rest. It continues with the next
  whole batch after the damage. The caller decides how to handle a damaged part.
- `batches` is `read` for callers that need every batch: it raises CorruptBatch at a damaged one.

What only finds positions in the file compares no CRC (`batch_walk.py`).

Bytes that this process has not checked itself (`trusted_from` says where its own begin) are checked against
their CRC before they are first served: `verify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from weakref import ref

from forebay.errors import StorageError
from forebay.storage.disk import File, FileClosed
from forebay.storage.log.segment.batch_parts import CorruptBatch, DamagedPart, WholeBatch
from forebay.storage.log.segment.batch_walk import LENGTH_PREFIX, NO_NEXT, READ_CHUNK_BYTES, BatchWalk
from forebay.wire.batch import HEADER_SIZE, MAGIC, BatchHeader, read_header

_MAGIC_POSITION = 16
_PLACE = Struct(">qi")
_SECTOR_BYTES = 4096
_BAD_SECTORS_MAX = 64
"""The number of unreadable sectors in a row that are skipped. Beyond it the disk has failed."""
_SEARCHED_BYTES_MAX = 64 << 20
"""The limit of one search in bytes that look like batches and are not: messages may be full of them. Then the
index is used."""


class LentFile:
    """The file of a segment, lent to those who read ranges of it: it tells when nobody has a range any more.

    A segment lends the same one to all its readers, and forgets it when it is deleted. From then on it lives
    as long as a response that is being sent, or a read in a thread, has a range of it.
    """

    __slots__ = ("__weakref__", "file")

    def __init__(self, file: File) -> None:
        self.file = file

    def fileno(self) -> int:
        return self.file.fileno()

    def pread(self, length: int, position: int) -> bytes:
        return self.file.pread(length, position)

    def cached(self, position: int, length: int) -> bool:
        return self.file.cached(position, length)


class Readers:
    """Those who read a segment that was deleted."""

    __slots__ = ("_lent",)

    def __init__(self, lent: LentFile | None) -> None:
        self._lent = None if lent is None else ref(lent)

    def __bool__(self) -> bool:
        return self._lent is not None and self._lent() is not None


class BatchFile(BatchWalk):
    __slots__ = ("lent", "trusted_from", "verified")

    def __init__(self, file: File, base_offset: int) -> None:
        super().__init__(file, base_offset)
        self.trusted_from = self.size
        self.verified = (0, 0)
        self.lent: LentFile | None = None

    def lend(self) -> LentFile:
        """The file, for those who read it. It stays readable for as long as they hold it, within limits."""
        if self.lent is None:
            self.lent = LentFile(self.file)
        return self.lent

    def readers(self) -> Readers:
        """Those who read it now. Only for a segment that nobody begins to read any more."""
        lent, self.lent = self.lent, None
        return Readers(lent)

    def read(
        self, position: int = 0, *, end: int | None = None, min_offset: int | None = None
    ) -> Iterator[WholeBatch | DamagedPart]:
        """The batches from here to `end`, each compared with its CRC; a chunk in memory at a time.

        A batch is yielded if what follows does not contradict its offset.

        Raises OSError if many sectors in a row are unreadable. Blocks; any thread.
        """
        end = self.size if end is None else end
        expected, at_start = self.base_offset if min_offset is None else min_offset, min_offset is None
        while position < end:
            bad: CorruptBatch | OSError | None = None
            last: WholeBatch | None = None
            before = expected
            try:
                for whole in self._whole_batches(position, end, expected):
                    if last is not None:
                        yield last
                    last, before = whole, expected
                    position, expected = whole.position + whole.header.size, whole.header.next_offset
                    at_start = False
            except FileClosed:
                raise
            except (CorruptBatch, OSError) as error:
                bad = error
            misplaced = None if last is None or bad is None else self._misplaced(last, before, end)
            if misplaced is not None:
                yield misplaced
                position, expected = misplaced.end, before
                continue
            if last is not None:
                yield last
            if bad is None:
                return
            damaged = self._damaged_part(position, end, expected, at_start, bad)
            yield damaged
            position, expected, at_start = damaged.end, damaged.next_offset or expected, False

    def next_whole_batch(self, position: int, end: int, expected: int) -> WholeBatch | None:
        """The first whole batch after a damaged one that begins at `position`.

        It begins where the length of the damaged one says, else wherever one can be found.
        """
        unreadable: OSError | None = None
        searched = 0
        for candidate, size in self._candidates(position, end, expected):
            searched += size
            if searched > _SEARCHED_BYTES_MAX:
                return self._next_indexed_batch(candidate, end, expected)
            try:
                return next(self._walk(candidate, end, expected, HEADER_SIZE), None)
            except FileClosed:
                raise
            except CorruptBatch:
                continue
            except OSError as error:
                unreadable = error
        if unreadable is not None:
            raise unreadable
        return None

    def _next_indexed_batch(self, position: int, end: int, expected: int) -> WholeBatch | None:
        """The first whole batch after `position` whose beginning is known. Others before it are skipped."""
        while (indexed := self.position_after(position)) is not None and indexed < end:
            try:
                return next(self._walk(indexed, end, expected, HEADER_SIZE), None)
            except CorruptBatch:
                position = indexed
        return None

    def position_after(self, _position: int) -> int | None:
        """The start of a batch after this position, if an index has one."""
        return None

    # --- damage --------------------------------------------------------------------------------------------

    def _damaged_part(
        self, position: int, end: int, expected: int, at_start: bool, bad: CorruptBatch | OSError
    ) -> DamagedPart:
        resumed = self.next_whole_batch(position, end, expected)
        next_offset: int | None = None
        if resumed is not None:
            misplaced = self._misplaced(resumed, expected, end)
            end, next_offset = resumed.position, resumed.header.base_offset
            if misplaced is not None:
                end, next_offset = misplaced.end, misplaced.next_offset
        elif end >= self.size and self.next_base != NO_NEXT:
            next_offset = self.next_base
        claimed, first_offset = self._header(position), expected
        if at_start and claimed is not None:  # the part may begin in the middle of the file
            base_offset = claimed.base_offset
            if expected <= base_offset <= (base_offset if next_offset is None else next_offset):
                first_offset = base_offset
        return DamagedPart(position, end, first_offset, next_offset, bad, claimed)

    def _misplaced(self, batch: WholeBatch, before: int, end: int) -> DamagedPart | None:
        """Return the batch as damaged, with others like it after it, if the following ones show that its
        offset is too high: the CRC does not cover the base offset.

        None if the offset of the next one is too low, or if nobody can tell.
        """
        if batch.header.base_offset == before:
            return None
        try:
            behind = self.next_whole_batch(batch.position, end, before)
        except FileClosed:
            raise
        except OSError:
            return None
        limit = batch.header.next_offset
        if behind is None or behind.header.base_offset >= limit:
            return None
        while (after := self._whole_at(behind.position + behind.header.size, end, before)) is not None:
            if after.header.base_offset == behind.header.next_offset:
                break
            if after.header.base_offset > behind.header.next_offset:
                return None
            behind = after  # the one before it has a wrong offset as well
        if behind.header.base_offset >= limit:
            return None
        why = f"offset {batch.header.base_offset} does not belong here"
        error = CorruptBatch(self.file.path, batch.position, why)
        next_offset = behind.header.base_offset
        return DamagedPart(batch.position, behind.position, before, next_offset, error, batch.header)

    def _whole_at(self, position: int, end: int, expected: int) -> WholeBatch | None:
        """The batch at a position, if it is whole."""
        try:
            return next(self._walk(position, end, expected, HEADER_SIZE), None)
        except FileClosed:
            raise
        except (CorruptBatch, OSError):
            return None

    def _header(self, position: int) -> BatchHeader | None:
        """The header as it is, unchecked; None if it cannot be read."""
        try:
            data = self._pread(HEADER_SIZE, position)
        except FileClosed:
            raise
        except OSError:
            return None
        return read_header(data) if len(data) == HEADER_SIZE else None

    def _candidates(self, bad_position: int, end: int, expected: int) -> Iterator[tuple[int, int]]:
        """Positions after a damaged batch at which a batch may begin, and the cost of looking."""
        claimed = self._header(bad_position)
        if claimed is not None and bad_position < bad_position + claimed.size < end:
            yield bad_position + claimed.size, HEADER_SIZE
        for start, chunk in self._readable_chunks(bad_position + 1, end):
            at = chunk.find(MAGIC, _MAGIC_POSITION)
            while at >= 0:
                place = at - _MAGIC_POSITION
                base_offset, length = _PLACE.unpack_from(chunk, place)
                fits = HEADER_SIZE - LENGTH_PREFIX <= length <= end - start - place - LENGTH_PREFIX
                if fits and expected <= base_offset < self.next_base:
                    yield start + place, length + HEADER_SIZE
                at = chunk.find(MAGIC, at + 1)

    def _readable_chunks(self, position: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Positions and bytes of readable parts; each but the first begins with the end of the last."""
        careful, bad = False, 0
        while position + HEADER_SIZE <= end:
            stop = _end_of_sector(position) if careful else position + READ_CHUNK_BYTES
            try:
                chunk = self._pread(min(stop, end) - position, position)
            except FileClosed:
                raise
            except OSError:
                bad += careful
                if bad > _BAD_SECTORS_MAX:
                    raise
                if careful:
                    position += _SECTOR_BYTES - position % _SECTOR_BYTES
                careful = True
                continue
            if len(chunk) < HEADER_SIZE:
                return
            bad = 0
            yield position, chunk
            position += len(chunk) - HEADER_SIZE + 1

    # --- trust ---------------------------------------------------------------------------------------------

    def trusts(self, position: int, length: int) -> bool:
        """True if these bytes were written or checked by this process."""
        if position >= self.trusted_from:
            return True
        start, end = self.verified
        return start <= position and min(position + length, self.trusted_from) <= end

    def verify(self, position: int, length: int) -> None:
        """Check the CRC of every batch in the range, once. Blocks; any thread."""
        end = min(position + length, self.trusted_from)
        for _ in self.batches(position, end=end):
            pass
        start, known = self.verified
        if position <= known and start <= position:
            self.verified = (start, max(known, end))
        else:
            self.verified = (position, end)


class Stretch(NamedTuple):
    """A range of a file, of whole batches. Its owner finds it; any thread reads it, which may block."""

    file: BatchFile
    position: int
    end: int

    def read(self) -> Iterator[WholeBatch | DamagedPart]:
        """The batches, and the parts in which none can be trusted. Raises StorageError if the disk fails."""
        try:
            yield from self.file.read(self.position, end=self.end)
        except OSError as error:
            raise StorageError(f"cannot read {self.file.file.path}: {error}") from error

    def batches(self) -> Iterator[tuple[memoryview, BatchHeader]]:
        """The batches. Raises CorruptBatch at a damaged one, StorageError if the disk cannot read it."""
        try:
            for _, batch, header in self.file.batches(self.position, end=self.end):
                yield batch, header
        except OSError as error:
            raise StorageError(f"cannot read {self.file.file.path}: {error}") from error


def _end_of_sector(position: int) -> int:
    """The first end of a sector that leaves room for a header."""
    end = position + HEADER_SIZE
    return end + -end % _SECTOR_BYTES
