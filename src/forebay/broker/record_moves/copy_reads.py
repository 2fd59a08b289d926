"""Reading what a partition has committed, to be copied to another: in threads, a limited amount at a time."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import field
from functools import partial
from typing import TypeAlias

from forebay.broker.worker_threads import WorkerThreads
from forebay.core.partition.compaction.batch_filter import TransactionTrack, note_keys, raise_keys
from forebay.core.partition.compaction.offset_map import OffsetMap
from forebay.core.record_moves.key_copies import size_of
from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.lazy import dataclass
from forebay.storage.log.log import Log
from forebay.storage.log.segment.batch_file import Stretch
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import BatchHeader, records
from forebay.wire.compression import Codec, OutputTooLarge
from forebay.wire.records import Record

BYTES_MAX = 512 * 1024
"""Of the records of one move; one record may be larger."""
RECORDS_MAX = 4_000

_IsWanted: TypeAlias = Callable[[BatchHeader], bool]
"""True if the records of a batch are to be copied."""


@dataclass(slots=True, eq=False)
class CopyRead:
    """The records that were found in a part of a log."""

    end: int
    """Everything before it was looked at."""
    found: dict[int, Record] = field(default_factory=dict)
    """By offset, rising."""
    codec: int = Codec.NONE
    """Under which the last of them is stored."""
    size: int = 0

    def take(self, record: Record) -> bool:
        """Add a record; False if there is no room for it. The first always finds room."""
        size = size_of(record)
        if self.found and (self.size + size > BYTES_MAX or len(self.found) == RECORDS_MAX):
            return False
        self.found[record.offset] = record
        self.size += size
        return True


async def latest_offsets(
    log: Log, start: int, end: int, workers: WorkerThreads, buffer_bytes: int
) -> OffsetMap:
    """Where each key is last in [start, end), of the keys for which the memory is enough. Raises KafkaError.

    The map ends before the first key for which it is not, but has been told of the log up to the end. A value
    that is replaced behind the end of the map is not copied: the next leader may not have what replaces it.
    """
    offsets = OffsetMap(start, buffer_bytes)
    entering = _Entering(offsets, TransactionTrack(await _aborted(log, start, end, workers), start), log, end)
    for stretch in log.stretches(start):
        if not await workers.run(partial(entering.take, stretch)):
            break
    if not entering.is_full:
        offsets.end_offset = max(offsets.end_offset, end)
    return offsets


@dataclass(slots=True, eq=False)
class _Entering:
    offsets: OffsetMap
    track: TransactionTrack
    log: Log
    end: int
    is_full: bool = False

    def take(self, stretch: Stretch) -> bool:
        """In a thread. False if the end was reached."""
        for batch, header in stretch.batches():
            if header.base_offset >= self.end:
                return False
            if header.next_offset <= self.offsets.end_offset:
                continue
            try:
                self._enter(batch, header)
            except OutputTooLarge as error:
                raise _not_copied(self.log, header, error) from error
        return True

    def _enter(self, batch: memoryview, header: BatchHeader) -> None:
        pass_over, max_bytes = self.log.unreadable.pass_over, self.log.config.decompress_max_bytes
        if not self.is_full:
            self.is_full = not note_keys(batch, header, self.offsets, self.track, pass_over, max_bytes)
        if self.is_full:
            raise_keys(batch, header, self.offsets, self.track, max_bytes)


async def read_latest(log: Log, start: int, latest: OffsetMap, workers: WorkerThreads) -> CopyRead:
    """The first records from an offset on that are the last of their key, as the map says. Raises KafkaError.

    What was aborted is left out. So is what has no key: compaction deletes it.
    """
    end = latest.end_offset
    track = TransactionTrack(await _aborted(log, start, end, workers), start)

    def is_wanted(header: BatchHeader) -> bool:
        if header.is_control:
            track.end(header)
            return False
        return not track.is_aborted(header)

    read = CopyRead(start)
    for stretch in log.stretches(start):
        whole = partial(_collect, log, stretch, read, start, end, is_wanted, latest=latest)
        if not await workers.run(whole):
            return read
    read.end = end
    return read


async def _aborted(log: Log, start: int, end: int, workers: WorkerThreads) -> list[AbortedTxn]:
    return await workers.run(partial(log.aborted_transactions, start, end))


async def read_again(log: Log, offsets: Sequence[int], workers: WorkerThreads) -> CopyRead:
    """Those of the offsets that the log still has. Raises KafkaError."""
    start, end = max(offsets[0], log.start_offset), offsets[-1] + 1
    read = CopyRead(start)
    if start >= end:
        return read
    wanted = frozenset(offsets)
    for stretch in log.stretches(start):
        whole = partial(_collect, log, stretch, read, start, end, _has_records, wanted=wanted)
        if not await workers.run(whole):
            break
    return read


def _has_records(header: BatchHeader) -> bool:
    return not header.is_control


def _collect(
    log: Log,
    stretch: Stretch,
    read: CopyRead,
    start: int,
    end: int,
    is_wanted: _IsWanted,
    *,
    latest: OffsetMap | None = None,
    wanted: Container[int] = (),
) -> bool:
    """In a thread. False if there was no room for all, or the end was reached.

    Takes the last ones of their keys, or else those that are wanted. Raises CorruptBatch if the disk has
    damaged a batch: another replica may have it whole.
    """
    for batch, header in stretch.batches():
        if header.base_offset >= end:
            read.end = end
            return False
        if header.next_offset > start and is_wanted(header) and header.record_count:
            for record in _records(log, batch, header):
                if not start <= record.offset < end or record.key is None:
                    continue
                if latest is None:
                    if record.offset not in wanted:
                        continue
                    read.found[record.offset] = record
                elif record.offset < latest.latest(record.key):
                    continue
                elif not read.take(record):
                    read.end = record.offset
                    return False
                read.codec = header.codec
        read.end = min(max(read.end, header.next_offset), end)
    return True


def _records(log: Log, batch: memoryview, header: BatchHeader) -> Sequence[Record]:
    """Raises KafkaError if they cannot be had, because they unpack to too much or make no sense.

    Some consumer may read them all the same, so the fold waits until they can be read or are gone.
    """
    try:
        return list(records(batch, log.config.decompress_max_bytes))
    except ProtocolError as error:
        raise _not_copied(log, header, error) from error


def _not_copied(log: Log, header: BatchHeader, error: ProtocolError) -> KafkaError:
    log.unreadable.pass_over(header.base_offset, str(error))
    what_to_do = (
        "raise forebay.decompress.max.bytes"
        if isinstance(error, OutputTooLarge)
        else "delete the records before the next offset, or keep the partitions"
    )
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"the batch at offset {header.base_offset} cannot be copied: {error}; {what_to_do}",
    )
