"""The headers of batches that are not in memory, or not checked yet: a thread reads them first.

A header may be on each page of a slice, and the device is asked for one after the other. So a slice that is
cold is loaded like one that is sent, which also checks its CRCs, and fetches wait for it as they wait for new
records. If some of it is damaged, or the disk does not give it, a thread finds out what is intact, batch by
batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from forebay.broker.fetch.cold_reads import ColdReads, Outcomes
from forebay.errors import KafkaError, ProtocolError, StorageError
from forebay.storage.disk import File
from forebay.storage.log.intact_reads import Unreadable, read_intact
from forebay.storage.log.log import Log
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.batch import BatchHeader, crc_ok, read_header
from forebay.wire.record_spans import payload_of, readable_spans

RETRY_MS = 1_000
"""The pause before what the disk did not give, or not intact, is tried again."""
_BYTES_MAX = 1 << 20
"""What is read at once of a log that is not in memory; one batch may be larger."""
_SEGMENTS_MAX = 8
"""How many are looked at for what is intact: compaction leaves some without batches."""
_LAST_RECORDS_MAX = 64
"""How many batches are remembered whose last record was looked for."""


class ColdHeaders:
    """Of one share partition, whose reads all begin at the same offset."""

    def __init__(self, log: Log, cold_reads: ColdReads, loaded: Callable[[], None]) -> None:
        """`loaded` is called when a read can be tried again."""
        self._log = log
        self._cold_reads = cold_reads
        self._on_loaded = loaded
        self._is_loading = False
        self._loaded: tuple[int, LogSlice | Unreadable] | None = None
        """What was found last, from which offset on, until it is read: it is read once though it is cold
        again."""
        self._last_records: dict[BatchHeader, int | None] = {}
        """None while a thread looks for it."""

    def read(self, offset: int, max_bytes: int, *, end: int) -> tuple[LogSlice | Unreadable | None, bool]:
        """A slice whose headers can be read at once, and whether all of it may be sent at once; or what is
        in the way.

        None while it is loaded. Raises KafkaError.
        """
        part: LogSlice | None = None
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

    def last_record(self, found: LogSlice, position: int, header: BatchHeader) -> int | None:
        """The offset behind which a batch of a slice has no record; None while a thread looks for it."""
        assert found.segment is not None
        if header not in self._last_records:
            if len(self._last_records) >= _LAST_RECORDS_MAX:
                self._last_records.clear()
            self._last_records[header] = None
            max_bytes = self._log.config.decompress_max_bytes
            work = partial(_last_record, found.segment.file, position, header, max_bytes)
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
        """Find out what is intact."""
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


def _last_record(file: File, position: int, header: BatchHeader, max_bytes: int) -> int:
    """In a thread. Of a batch that makes no sense, or unpacks to too much, any offset may be one."""
    last = header.last_offset
    try:
        batch = memoryview(file.pread(header.size, position))
        if len(batch) == header.size and read_header(batch) == header and crc_ok(batch, 0, header.size):
            for span in readable_spans(payload_of(batch, header, max_bytes), header):
                last = header.base_offset + span.offset_delta
    except OSError as error:
        raise StorageError(f"cannot read {file.path}: {error}") from error
    except ProtocolError:
        return header.last_offset
    return last


def _shorter(found: LogSlice | Unreadable, part: LogSlice | None) -> LogSlice | Unreadable:
    """What was loaded, or the part of it that is wanted now: no header beyond it is checked."""
    if isinstance(found, Unreadable) or part is None or found.range is None or part.range is None:
        return found
    is_at_the_same_place = part.segment is found.segment and part.range.position == found.range.position
    return part if is_at_the_same_place and part.range.length < found.range.length else found
