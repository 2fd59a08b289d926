"""The dead letters of one share partition, as the source of a mover.

A group without a dead-letter topic has none. If the setting is removed while letters wait, they are dropped,
like later ones. So an administrator can end the wait for a topic that cannot be written.

A move that was planned before the log lost messages (power, an unclean election) may name offsets that other
messages have now. If these become dead letters, they have to be moved themselves, so they are not confused
with those of the move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from forebay.broker.broker_time import BrokerTime
from forebay.broker.partition.partition import Partition
from forebay.broker.record_moves.live_mover import MoverHost
from forebay.broker.shares.dead_letters.record_reads import BadSector, RecordsRead, read_records
from forebay.broker.shares.dead_letters.target_topic import DeadLetterTargets, Target
from forebay.broker.telemetry.metrics import Metrics
from forebay.config import ShareGroupSettings
from forebay.core.record_moves.move import Move
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.dead_letter_headers import (
    DeadLetterBatch,
    NoCopy,
    Origin,
    below,
    dead_letter,
    first_of,
    leading,
    only,
    overlap,
)
from forebay.core.shares.partition.record_window import Range
from forebay.core.shares.partition.share_partition import DeadLetters, SharePartition
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.lazy import dataclass
from forebay.storage.log.leader_epochs import UNDEFINED_OFFSET
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.batch import HEADER_SIZE
from forebay.wire.records import Record

if TYPE_CHECKING:
    from forebay.broker.tiers.remote_reads import RemoteReads

log = logging.getLogger(__name__)

_BYTES_MAX = 512 * 1024
"""The most bytes of the records of one move; one record may be larger."""
_REMOTE_S_MAX = 10.0
"""The longest wait for records from the object store, before the mover tries again."""
_OVERHEAD_BYTES = 400
"""The most bytes of a dead letter besides the copied record, and the names of topic and group."""


class Share(Protocol):
    """The share partition whose dead letters these are."""

    key: ShareKey
    partition: Partition
    settings: ShareGroupSettings
    machine: SharePartition | None

    @property
    def is_current(self) -> bool: ...

    def changed(self) -> None: ...

    def await_write(self, number: int, done: Callable[[KafkaError | None], None]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeadLetterHost:
    """The parts of the broker that the dead letters of every share partition use."""

    mover: MoverHost
    targets: DeadLetterTargets
    remote_reads: Callable[[], RemoteReads | None]
    """Reads what is in the object store only; None without one."""
    metrics: Metrics
    time: BrokerTime


class DeadLetterSource:
    def __init__(self, share: Share, host: DeadLetterHost) -> None:
        self._share = share
        self._host = host
        self._read: tuple[bytes, RecordsRead] | None = None
        """The records of the last planned move, with its entries. Mostly this move is sent next."""
        self._failing_since_ms: int | None = None
        """The time since which the disk does not return a record for a letter."""

    # -- planning --------------------------------------------------------------------------------------

    async def plan(self) -> Move | None:
        """The next dead letters that have a record, in the order of their offsets. Raises KafkaError."""
        while True:
            letters, is_unreadable = leading(first_of(self._machine().dead_letters()))
            if not letters:
                return None
            topic = self._share.settings.dead_letter_topic
            if not topic:
                self._give_up(letters)
                continue
            source = self._share.partition
            target = await self._host.targets.find(topic, (source.topic, source.index))
            bytes_max = min(_BYTES_MAX, self._room(topic, target))
            if is_unreadable:
                read = self._without_records(letters, bytes_max)
            else:
                read = await self._records(letters, bytes_max)
            machine = self._machine()
            found, damaged = _planned(letters, read)
            batch = DeadLetterBatch(machine.state_epoch, found, machine.leader_epoch, damaged)
            self._drop_missing(letters, read)
            if not batch.letters:
                continue
            entries = batch.pack()
            self._read = entries, read
            return Move(
                topic_id=target.topic_id,
                partition=target.partition,
                record_count=batch.record_count,
                entries=entries,
                revision=target.revision,
            )

    def _machine(self) -> SharePartition:
        """Raises KafkaError if this broker does not lead the partition any more."""
        machine = self._share.machine
        if machine is None or not self._share.is_current:
            raise self._share.partition.not_leader()
        return machine

    @property
    def _overhead(self) -> int:
        names = self._share.partition.topic + self._share.key.group_id
        return _OVERHEAD_BYTES + len(names.encode())

    def _room(self, topic: str, target: Target) -> int:
        """The bytes of letters that the target accepts at once. Raises KafkaError if not even one letter
        fits."""
        room = target.bytes_max - HEADER_SIZE
        if room < self._overhead:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"max.message.bytes={target.bytes_max} of topic {topic!r} is too little for a dead letter",
            )
        return room

    async def _records(self, letters: Sequence[DeadLetters], bytes_max: int) -> RecordsRead:
        """Raises StorageError. A bad sector is retried for as long as in a delivery."""
        now_ms, since_ms = self._host.time.uptime_ms(), self._failing_since_ms
        patience_ms = self._share.settings.unreadable_timeout_ms
        self._failing_since_ms = None
        try:
            return await read_records(
                self._share.partition.log,
                list(_offsets(letters)),
                self._host.mover.workers,
                bytes_max=bytes_max,
                overhead=self._overhead,
                read_old=self._read_old,
                passes_bad_sectors=since_ms is not None and now_ms - since_ms >= patience_ms,
            )
        except BadSector:
            self._failing_since_ms = now_ms if since_ms is None else since_ms
            raise

    async def _read_old(self, offset: int) -> LogSlice | int:
        """Batches that are in the object store only, from the one that holds an offset, or where the
        partition begins if that is later. Raises KafkaError, also if they do not come in time."""
        partition, reads = self._share.partition, self._host.remote_reads()
        start_offset = partition.known_start_offset
        if start_offset is not None and offset < start_offset:
            return start_offset
        found = None
        if reads is not None:
            found = await reads.read_soon(partition, offset, _BYTES_MAX, timeout_s=_REMOTE_S_MAX)
        if found is None:
            raise StorageError(f"offset {offset} of {partition} cannot be read from the object store now")
        return found

    def _without_records(self, letters: Sequence[DeadLetters], bytes_max: int) -> RecordsRead:
        """The result for letters with unreadable records: the disk is not asked again."""
        read = RecordsRead(bytes_max, self._overhead)
        for offset in _offsets(letters):
            if not read.take(offset, NoCopy.DAMAGED):
                break
        return read

    def _drop_missing(self, letters: Sequence[DeadLetters], read: RecordsRead) -> None:
        """Finish offsets without a record, which compaction has left."""
        missing = [offset for offset in _offsets(letters) if offset < read.end and offset not in read.found]
        if missing:
            self._done([(each.first, each.last) for each in only(letters, missing)])

    def _give_up(self, letters: Sequence[DeadLetters]) -> None:
        count = sum(each.last - each.first + 1 for each in letters)
        log.warning(
            "dead letters are given up: their group has no dead-letter topic any more",
            extra={
                "group": self._share.key.group_id,
                "partition": str(self._share.partition),
                "count": count,
            },
        )
        self._done([(each.first, each.last) for each in letters])

    # -- moving ----------------------------------------------------------------------------------------

    def wants(self, move: Move) -> bool:
        batch, machine = DeadLetterBatch.unpack(move.entries), self._machine()
        is_same_state = batch.state_epoch == machine.state_epoch
        return is_same_state and any(True for _ in overlap(self._kept(batch), machine.dead_letters()))

    def _kept(self, batch: DeadLetterBatch) -> list[DeadLetters]:
        """The letters whose records the log has not lost."""
        partition = self._share.partition
        _, end_offset = partition.end_of_epoch(batch.leader_epoch, partition.log.end_offset)
        return batch.letters if end_offset == UNDEFINED_OFFSET else below(batch.letters, end_offset)

    async def records(self, move: Move, *, is_too_large: bool) -> Sequence[Record]:
        """Raises KafkaError."""
        batch = DeadLetterBatch.unpack(move.entries)
        offsets = [(offset, each) for each in batch.letters for offset in range(each.first, each.last + 1)]
        copies: dict[int, Record | NoCopy] = {}
        if not self._share.settings.dead_letter_copies_record:
            without = NoCopy.NOT_WANTED
        elif is_too_large:
            without = NoCopy.TOO_LARGE
        else:
            without, copies = NoCopy.DELETED, await self._copies(move, batch)
        partition, now_ms = self._share.partition, self._host.time.now_ms()
        origin = Origin(partition.topic, partition.index, self._share.key.group_id)
        return [
            dead_letter(number, offset, each, origin, copies.get(offset, without), now_ms)
            for number, (offset, each) in enumerate(offsets)
        ]

    async def _copies(self, move: Move, batch: DeadLetterBatch) -> dict[int, Record | NoCopy]:
        """The copies of the records, by offset; offsets that are not in it were deleted.

        A record that was damaged when the move was planned has no copy, even if this broker can read it. The
        move has no room for one.
        """
        if self._read is not None and self._read[0] == move.entries:
            return self._read[1].found
        copies: dict[int, Record | NoCopy] = dict.fromkeys(
            _offsets(each for each in batch.letters if each.first in batch.damaged), NoCopy.DAMAGED
        )
        kept = [each for each in self._kept(batch) if each.first not in batch.damaged]
        if kept:
            read = await self._records(kept, _BYTES_MAX)
            # Only if the move was planned by an older broker, which does not note damage.
            no_room = (offset for offset in _offsets(kept) if offset >= read.end)
            copies |= read.found | dict.fromkeys(no_room, NoCopy.TOO_LARGE)
        return copies

    async def confirm(self, move: Move) -> None:
        """Raises KafkaError if this broker does not lead the partition any more."""
        batch, machine = DeadLetterBatch.unpack(move.entries), self._machine()
        waiting = list(overlap(self._kept(batch), machine.dead_letters()))
        self._read = None
        if waiting:
            self._done(waiting)
        await self._written(machine.changes)
        self._host.metrics.dead_letters += move.record_count

    async def _written(self, number: int) -> None:
        """Returns once this write of the share partition is persisted. Raises KafkaError."""
        written: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()

        def done(error: KafkaError | None) -> None:
            if not written.done():
                written.set_result(error)

        self._share.await_write(number, done)
        error = await written
        if error is not None:
            raise error

    def _done(self, ranges: Sequence[Range]) -> None:
        self._machine().dead_lettered(ranges)
        self._share.changed()


def _offsets(letters: Iterable[DeadLetters]) -> Iterator[int]:
    return (offset for each in letters for offset in range(each.first, each.last + 1))


def _planned(letters: Sequence[DeadLetters], read: RecordsRead) -> tuple[list[DeadLetters], frozenset[int]]:
    """The letters that were found, in order, and the first offsets of those that cannot be copied."""
    damaged = {offset for offset, found in read.found.items() if found is NoCopy.DAMAGED}
    others = only(letters, sorted(read.found.keys() - damaged))
    without_copy = only(letters, sorted(damaged))
    return sorted(others + without_copy), frozenset(each.first for each in without_copy)
