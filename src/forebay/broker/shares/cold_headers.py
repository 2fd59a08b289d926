"""The headers of batches that are not in memory, or not checked yet: a thread reads them first.

A slice may have a header on each of its pages, and each would be a read of the device. So a cold slice is
loaded as a whole, like one that is sent. That also checks its CRCs. Fetches wait for it as they wait for new
records. If some of it is damaged, or the disk does not return it, a thread finds the intact batches one by
one.

Batches that are in the object store only come by chunks (`tiers/remote_reads.py`), which are checked. Fetches
wait for a chunk in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from forebay.broker.fetch.cold_reads import ColdReads, Outcomes
from forebay.broker.partition.partition import Partition
from forebay.broker.tiers.missed_chunk import ChunkRange, Missed
from forebay.errors import KafkaError, ProtocolError, StorageError
from forebay.storage.log.intact_reads import Unreadable, read_intact
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.batch import BatchHeader, crc_ok, read_header
from forebay.wire.parts import RangeFile
from forebay.wire.record_spans import payload_of, readable_spans

if TYPE_CHECKING:
    from forebay.broker.tiers.remote_reads import RemoteReads

RETRY_MS = 1_000
"""The pause before a failed read is tried again."""
_BYTES_MAX = 1 << 20
"""The most that is read at once of a log that is not in memory; one batch may be larger."""
_SEGMENTS_MAX = 8
"""The most segments that are searched for an intact batch: compaction leaves some without batches."""
_LAST_RECORDS_MAX = 64
"""The number of batches whose last record is remembered."""


class ColdHeaders:
    """The headers for one share partition, whose reads all begin at the same offset."""

    def __init__(
        self,
        partition: Partition,
        cold_reads: ColdReads,
        remote_reads: Callable[[], RemoteReads | None],
        loaded: Callable[[], None],
    ) -> None:
        """`loaded` is called when a read can be tried again. `remote_reads`: None without an object store."""
        self._partition = partition
        self._remote_reads = remote_reads
        self._log = partition.log
        self._cold_reads = cold_reads
        self._on_loaded = loaded
        self._is_loading = False
        self._loaded: tuple[int, LogSlice | Unreadable] | None = None
        """The last result, with its first offset, until it is read. It is used once even if it is cold
        again."""
        self._last_records: dict[BatchHeader, int | None] = {}
        """None while a thread looks for it."""

    def read(self, offset: int, max_bytes: int, *, end: int) -> tuple[LogSlice | Unreadable | None, bool]:
        """A slice whose headers can be read at once, or the reason why it cannot be read; and True if all of
        it may be sent at once.

        None while it is being loaded. Raises KafkaError.
        """
        part: LogSlice | None = None
        if self._partition.remote is not None and offset < self._log.start_offset:
            part = self._read_remote(offset, max_bytes)
            if part is None or isinstance(part.range, ChunkRange):
                return part, part is not None
            offset = self._log.start_offset  # the offsets in between belong to no message
        try:
            for size in (max_bytes, min(max_bytes, _BYTES_MAX)):
                part = self._log.read(offset, size, upper_offset=end)
                if self._log.is_warm(part):
                    return part, True
        except StorageError:
            part = None  # damage on the way to it; a thread looks for another
        if self._loaded is not None and self._loaded[0] == offset:
            found, self._loaded = self._loaded[1], None
            return _shorter(found, part), False
        if not self._is_loading:
            self._is_loading = True
            if part is None:
                self._look_closer(offset, end)
            else:
                done = partial(self._slice_loaded, offset, end, part)
                self._cold_reads.load([(self._log.files, part)], done)
        return None, False

    def _read_remote(self, offset: int, max_bytes: int) -> LogSlice | None:
        """Batches that are in the object store only; None until their chunk is here. Raises KafkaError."""
        reads = self._remote_reads()
        if reads is None:
            return None
        found = reads.read(self._partition, offset, max_bytes, min_one=True)
        if isinstance(found, Missed):
            reads.notify(found, self._on_loaded)
            return None
        return found

    def of(self, part: LogSlice) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch of a slice. Raises StorageError."""
        if isinstance(part.range, ChunkRange):
            return part.range.headers()
        return self._log.headers(part)

    def last_record(self, found: LogSlice, position: int, header: BatchHeader) -> int | None:
        """The offset of the last record of a batch; None while a thread looks for it."""
        assert found.range is not None
        if header not in self._last_records:
            if len(self._last_records) >= _LAST_RECORDS_MAX:
                self._last_records.clear()
            self._last_records[header] = None
            max_bytes = self._log.config.decompress_max_bytes
            work = partial(_last_record, found.range.file, position, header, max_bytes)
            self._cold_reads.run(work, partial(self._last_record_found, header))
        return self._last_records[header]

    def _last_record_found(self, header: BatchHeader, found: int | KafkaError) -> None:
        self._last_records[header] = header.last_offset if isinstance(found, KafkaError) else found
        self._on_loaded()

    def _slice_loaded(self, offset: int, end: int, part: LogSlice, outcomes: Outcomes) -> None:
        if outcomes[0] is None:
            self._found(offset, end, part)
        else:
            self._look_closer(offset, end)

    def _look_closer(self, offset: int, end: int) -> None:
        """Have a thread find the intact batches."""
        try:
            stretches = list(islice(self._log.files_from(offset), _SEGMENTS_MAX))
        except StorageError as error:
            self._found(offset, end, error)
            return
        work = partial(read_intact, stretches, offset, _BYTES_MAX, end=end)
        self._cold_reads.run(work, partial(self._found, offset, end))

    def _found(self, offset: int, end: int, found: LogSlice | Unreadable | KafkaError) -> None:
        if isinstance(found, KafkaError):
            found = Unreadable(offset, end - 1, found, is_lasting=False)
        self._is_loading, self._loaded = False, (offset, found)
        self._on_loaded()


def _last_record(file: RangeFile, position: int, header: BatchHeader, max_bytes: int) -> int:
    """Runs in a thread. Returns the batch's last offset if the batch is invalid, or too large unpacked."""
    last = header.last_offset
    try:
        batch = memoryview(file.pread(header.size, position))
        if len(batch) == header.size and read_header(batch) == header and crc_ok(batch, 0, header.size):
            for span in readable_spans(payload_of(batch, header, max_bytes), header):
                last = header.base_offset + span.offset_delta
    except OSError as error:
        raise StorageError(f"cannot read the batch at offset {header.base_offset}: {error}") from error
    except ProtocolError:
        return header.last_offset
    return last


def _shorter(found: LogSlice | Unreadable, part: LogSlice | None) -> LogSlice | Unreadable:
    """The loaded slice, or the part of it that is wanted now: no header beyond it is checked."""
    if isinstance(found, Unreadable) or part is None or found.range is None or part.range is None:
        return found
    is_at_the_same_place = part.segment is found.segment and part.range.position == found.range.position
    return part if is_at_the_same_place and part.range.length < found.range.length else found
