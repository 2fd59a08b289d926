"""Sends the writes of share partitions to the share coordinators, gathered by group.

The writes of all share partitions of a group at the end of a turn of the loop are one request, because a
group has one share coordinator: one batch in its log, and one sync of the disk. Each share partition has at
most one write in flight, which is repeated until it is done (see `state_store`).

The write of a first delivery waits for the next one of its share partition, a twentieth of a second at most.
Mostly the next one is the acknowledgement, which replaces it. Written at once, it would cost a sync for every
fetch, and the acknowledgement would have to wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from forebay.broker.background import Background
from forebay.broker.coordinators.share_coordinator import ShareStates
from forebay.broker.shares.persistence.state_store import (
    REFUSED_FOR_GOOD,
    RETRY_S,
    RETRY_S_MAX,
    partition_data,
)
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.writes import StateWrite
from forebay.errors import ErrorCode, KafkaError, known_code
from forebay.lazy import dataclass
from forebay.wire.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteStateData,
)

LATER_S = 0.05
"""How long a first delivery waits for another write of its share partition, at most."""
_WRITES_MAX = 64
"""Share partitions in one request: the loop of the share coordinator decides on all of them in one turn."""


class Writer(Protocol):
    """A share partition."""

    @property
    def key(self) -> ShareKey: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_current(self) -> bool:
        """True while its writes count: this broker leads the partition in the same epoch."""

    def take_write(self) -> tuple[StateWrite, int] | None:
        """The next write and its state epoch; None while a write is in flight, and when nothing has
        changed."""

    def write_done(self) -> None: ...

    def drop(self, error: KafkaError) -> None:
        """Called if a write was refused for good, or no longer counts."""


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    writer: Writer
    data: PartitionData

    @property
    def place(self) -> tuple[bytes, int]:
        return self.writer.key.topic_id, self.writer.key.partition


class StateWrites:
    def __init__(self, states: ShareStates, background: Background, loop: asyncio.AbstractEventLoop) -> None:
        self._states = states
        self._background = background
        self._loop = loop
        self._due: dict[Writer, None] = {}
        """Share partitions whose writes are sent at the end of this turn of the loop."""
        self._later: dict[Writer, None] = {}
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def soon(self, writer: Writer) -> None:
        """Write at the end of this turn: acknowledgements and acquisitions of a request are one write."""
        self._due[writer] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin)

    def later(self, writer: Writer) -> None:
        """Write with its next write, or within LATER_S."""
        self._later[writer] = None
        if self._timer is None:
            self._timer = self._loop.call_later(LATER_S, self._its_later)

    def _its_later(self) -> None:
        self._timer = None
        later, self._later = self._later, {}
        for writer in later:
            self.soon(writer)

    def _begin(self) -> None:
        self._is_scheduled = False
        due, self._due = self._due, {}
        groups: dict[str, list[_Write]] = {}
        for writer in due:
            taken = writer.take_write()
            if taken is not None:
                write, state_epoch = taken
                data = partition_data(writer.key.partition, write, state_epoch, writer.leader_epoch)
                groups.setdefault(writer.key.group_id, []).append(_Write(writer, data))
        for group_id, writes in groups.items():
            doing = f"writing what was delivered to the share group {group_id!r}"
            for first in range(0, len(writes), _WRITES_MAX):
                some = writes[first : first + _WRITES_MAX]
                self._background.spawn(self._write(group_id, some), doing)

    async def _write(self, group_id: str, writes: list[_Write]) -> None:
        delay_s = RETRY_S
        try:
            while writes := _current(writes):
                writes = _settled(writes, await self._results(group_id, writes))
                if writes:
                    await asyncio.sleep(delay_s)
                    delay_s = min(2 * delay_s, RETRY_S_MAX)
        except Exception:
            # A share partition that cannot be written is dropped: its waiters would wait for ever.
            for each in writes:
                each.writer.drop(
                    KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a share partition could not be written")
                )
            raise

    async def _results(
        self, group_id: str, writes: Iterable[_Write]
    ) -> dict[tuple[bytes, int], PartitionResult]:
        """The result of each write; empty if the share coordinator cannot be asked."""
        topics: dict[bytes, list[PartitionData]] = {}
        for each in writes:
            topics.setdefault(each.writer.key.topic_id, []).append(each.data)
        request = WriteShareGroupStateRequest(
            group_id=group_id,
            topics=[
                WriteStateData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )
        try:
            response = await self._states.ask_coordinator(request)
        except KafkaError:
            return {}
        return {
            (topic.topic_id, result.partition): result
            for topic in response.results
            for result in topic.partitions
        }


def _current(writes: Iterable[_Write]) -> list[_Write]:
    """The writes that still count. The share partitions of the others are dropped."""
    current: list[_Write] = []
    for each in writes:
        if each.writer.is_current:
            current.append(each)
        else:
            gone = "this broker does not lead the partition any more"
            each.writer.drop(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, gone))
    return current


def _settled(writes: Iterable[_Write], results: dict[tuple[bytes, int], PartitionResult]) -> list[_Write]:
    """Notify share partitions whose writes are done, or refused for good. Returns the writes to repeat."""
    left: list[_Write] = []
    for each in writes:
        result = results.get(each.place)
        if result is None:
            left.append(each)
            continue
        code = known_code(result.error_code)
        if code == ErrorCode.NONE:
            each.writer.write_done()
        elif code in REFUSED_FOR_GOOD:
            each.writer.drop(KafkaError(code, result.error_message or "the state was refused"))
        else:
            left.append(each)
    return left
