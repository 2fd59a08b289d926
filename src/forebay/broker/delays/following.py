"""Keeping the index of a partition's delays in step with its log, on every replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import islice

from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.delays.note_reading import NotesRead, Reached, go_on, read_notes
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.waiting_messages import WaitingMessages
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.worker_threads import LazyThreads
from forebay.lazy import dataclass
from forebay.storage.delays.index import DelayIndex, DelayIndexes, IndexState

_FOLLOWER_PAUSE_S = 0.2
_LEADER_PAUSE_S = 0.002
_SEGMENTS_AT_ONCE = 2
_SAVED_EVERY_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayHost:
    """The parts of the broker that following and delivering need."""

    indexes: DelayIndexes
    threads: LazyThreads
    write_cycle: WriteCycle
    lease: HeldLease
    metrics: Metrics
    background: Background
    time: BrokerTime
    loop: asyncio.AbstractEventLoop


class IndexFollower:
    def __init__(self, host: DelayHost, partition: Partition, waiting: WaitingMessages) -> None:
        self._host = host
        self._partition = partition
        self._waiting = waiting
        self.index: DelayIndex = host.indexes.of(partition.log.directory)
        self._start_offset = -1
        """Where the log began when the index was last told."""
        self._unsaved_since_ms: int | None = None
        self._reached: Reached | None = None
        """Where in its file the log was last read to."""

    @property
    def state(self) -> IndexState:
        assert self._waiting.index is not None
        return self._waiting.index

    @property
    def knows_start(self) -> bool:
        """True if the index has forgotten the messages before the start of the log."""
        return self._partition.log.start_offset == self._start_offset

    async def open(self) -> None:
        """Load the index; one that does not go with this log is made anew from it."""
        partition, log = self._partition, self._partition.log
        await self._host.threads.run(partial(self._host.indexes.keep, log.directory))
        state = await self._host.threads.run(partial(self.index.load, partition.topic_id))
        is_below = state.position <= log.start_offset
        known = is_below or partition.epochs.epoch_at(state.position - 1) == state.leader_epoch
        opened_end = self._waiting.opened_end
        end_offset = log.end_offset if opened_end is None else min(opened_end, log.end_offset)
        if state.position > end_offset or not known:
            await self._host.threads.run(self.index.clear)
            state = IndexState(0, -1, 0, None, None)
        self._waiting.opened_end = None
        self._start_offset = -1
        self._waiting.indexed(state)

    async def follow_start(self) -> None:
        """Forget what lies before the start of the log."""
        start_offset = self._partition.log.start_offset
        if start_offset == self._start_offset:
            return
        state = await self._host.threads.run(partial(self.index.forget_below, start_offset))
        self._start_offset = start_offset
        # The position in memory may be ahead of the one in the file, and its epoch is later then.
        self._waiting.indexed(
            state._replace(
                position=max(state.position, self.state.position, start_offset),
                leader_epoch=max(state.leader_epoch, self.state.leader_epoch),
            )
        )

    async def follow(self) -> bool:
        """Take over what was committed since; whether there was anything."""
        partition, state = self._partition, self.state
        end_offset = partition.high_watermark
        if end_offset <= state.position or partition.closed:
            return False
        if partition.is_leader and state.position >= self._waiting.unindexed.last_offset:
            # This leader has appended all that follows, and no note.
            self._waiting.indexed(state._replace(position=end_offset, leader_epoch=partition.leader_epoch))
            self._unsaved_since_ms = self._unsaved_since_ms or self._host.time.uptime_ms()
            if self._host.time.uptime_ms() - self._unsaved_since_ms > _SAVED_EVERY_MS:
                await self.save()
            return True
        found = list(islice(partition.log.files_from(state.position), _SEGMENTS_AT_ONCE))
        read = partial(
            read_notes,
            go_on(found, self._reached, state.position),
            partition.log.aborted_transactions,
            position=state.position,
            leader_epoch=state.leader_epoch,
            end_offset=end_offset,
        )
        generation = partition.log.generation
        notes, after = await self._host.threads.run(lambda: _take_over(self.index, read))
        if after is None:
            if partition.log.generation != generation:
                return True  # the log was cut while it was read
            after = await self._pass_over(notes)
        self._reached = notes.reached or self._reached
        self._unsaved_since_ms = None
        self._waiting.indexed(after)
        has_moved = after.position > state.position
        if not has_moved or after.position >= partition.high_watermark:
            pause_s = _LEADER_PAUSE_S if partition.is_leader else _FOLLOWER_PAUSE_S
            await asyncio.sleep(pause_s)
        return has_moved

    async def _pass_over(self, notes: NotesRead) -> IndexState:
        """Take over what was read around batches that cannot be read, and say which."""
        for each in notes.passed_over:
            self._partition.log.unreadable.pass_over(*each)
        return await self._host.threads.run(partial(_apply, self.index, notes))

    async def save(self) -> None:
        """Keep in the file how far the index is, where there was nothing else to write."""
        if self._unsaved_since_ms is not None:
            self._unsaved_since_ms = None
            state = self.state
            await self._host.threads.run(partial(self.index.apply, (), state.position, state.leader_epoch))


def _take_over(index: DelayIndex, read: Callable[[], NotesRead]) -> tuple[NotesRead, IndexState | None]:
    """The notes that were read, and the index's state with them; None if not all were readable. In a
    thread."""
    notes = read()
    return notes, None if notes.passed_over else _apply(index, notes)


def _apply(index: DelayIndex, notes: NotesRead) -> IndexState:
    return index.apply(notes.entries, notes.position, notes.leader_epoch)
