"""The dead letters of one share partition, as the source of a mover: what waits, how it looks, what is done.

A group without a dead-letter topic has none. If the setting is taken away while some wait, those are given
up, as later ones are: that is how an administrator gets out of a topic that cannot be written.

A move that was planned before the log lost messages (power, an unclean election) may name offsets that other
messages have now. If these become dead letters, they have to be moved themselves, so they are not taken for
those of the move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from forebay.broker.broker_time import BrokerTime
from forebay.broker.moves.live_mover import MoverHost
from forebay.broker.partition.partition import Partition
from forebay.broker.shares.dead_letters.record_reads import RecordsRead, read_records
from forebay.broker.shares.dead_letters.target import DeadLetterTargets, Target
from forebay.broker.telemetry.metrics import Metrics
from forebay.config import ShareGroupSettings
from forebay.core.moves.move import Move
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.dead_letter_headers import (
    DeadLetterBatch,
    NoCopy,
    Origin,
    below,
    dead_letter,
    first_of,
    only,
    overlap,
)
from forebay.core.shares.partition.share_partition import DeadLetters, SharePartition
from forebay.errors import ErrorCode, KafkaError
from forebay.storage.log.leader_epochs import UNDEFINED_OFFSET
from forebay.wire.batch import HEADER_SIZE
from forebay.wire.records import Record

log = logging.getLogger(__name__)

_BYTES_MAX = 512 * 1024
"""Of the records of one move; one record may be larger."""
_OVERHEAD_BYTES = 400
"""What a dead letter takes at most besides the record that it copies, and the names of topic and group."""


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
    """What the dead letters of every share partition on this broker need."""

    mover: MoverHost
    targets: DeadLetterTargets
    metrics: Metrics
    time: BrokerTime


class DeadLetterSource:
    def __init__(self, share: Share, host: DeadLetterHost) -> None:
        self._share = share
        self._host = host
        self._read: tuple[bytes, RecordsRead] | None = None
        """The records of the last move that was planned, with its entries: mostly it is sent next."""

    # -- planning --------------------------------------------------------------------------------------

    async def plan(self) -> Move | None:
        """The next dead letters that have a record, in the order of their offsets. Raises KafkaError."""
        while letters := first_of(self._machine().dead_letters()):
            topic = self._share.settings.dead_letter_topic
            if not topic:
                self._give_up(letters)
                continue
            source = self._share.partition
            target = await self._host.targets.find(topic, (source.topic, source.index))
            read = await self._records(letters, min(_BYTES_MAX, self._room(topic, target)))
            machine, found = self._machine(), only(letters, sorted(read.found))
            batch = DeadLetterBatch(machine.state_epoch, found, machine.leader_epoch)
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
        return None

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
        """How many bytes of letters the target takes at once. Raises KafkaError if it takes not even one."""
        room = target.bytes_max - HEADER_SIZE
        if room < self._overhead:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"max.message.bytes={target.bytes_max} of topic {topic!r} is too little for a dead letter",
            )
        return room

    async def _records(self, letters: Sequence[DeadLetters], bytes_max: int) -> RecordsRead:
        wanted = [offset for each in letters for offset in range(each.first, each.last + 1)]
        return await read_records(
            self._share.partition.log,
            wanted,
            self._host.mover.workers,
            bytes_max=bytes_max,
            overhead=self._overhead,
        )

    def _drop_missing(self, letters: Sequence[DeadLetters], read: RecordsRead) -> None:
        """Offsets without a record, which compaction has left, are done."""
        missing = [
            offset
            for each in letters
            for offset in range(each.first, each.last + 1)
            if offset < read.end and offset not in read.found
        ]
        if missing:
            self._done(only(letters, missing))

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
        self._done(letters)

    # -- moving ----------------------------------------------------------------------------------------

    def wants(self, move: Move) -> bool:
        batch, machine = DeadLetterBatch.unpack(move.entries), self._machine()
        is_same_state = batch.state_epoch == machine.state_epoch
        return is_same_state and any(True for _ in overlap(self._kept(batch), machine.dead_letters()))

    def _kept(self, batch: DeadLetterBatch) -> list[DeadLetters]:
        """Those whose records the log has not lost."""
        partition = self._share.partition
        _, end_offset = partition.epochs.end_offset_for(batch.leader_epoch, partition.log.end_offset)
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
        if self._read is not None and self._read[0] == move.entries:
            return self._read[1].found
        kept = self._kept(batch)
        return (await self._records(kept, _BYTES_MAX)).found if kept else {}

    async def confirm(self, move: Move) -> None:
        """Raises KafkaError if this broker does not lead the partition any more."""
        batch, machine = DeadLetterBatch.unpack(move.entries), self._machine()
        waiting = [
            each._replace(first=first, last=last)
            for each in self._kept(batch)
            for first, last in overlap([each], machine.dead_letters())
        ]
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

    def _done(self, letters: Sequence[DeadLetters]) -> None:
        machine = self._machine()
        for each in letters:
            machine.dead_lettered(each.first, each.last)
        self._share.changed()
