"""How far the groups that this broker coordinates are behind, in messages and in seconds.

The coordinator of a group knows what is committed; the leaders of partitions know where those end, and how
old the next message of the group is. What other brokers lead is asked of them, once for all groups. The age
is remembered for as long as a group stays where it is: one that does not move costs one look.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.topic_partition import TopicPartition
from forebay.errors import KafkaError
from forebay.wire.messages.describe_positions import (
    DescribePositionsRequest,
    DescribePositionsResponse,
    PositionsPartition,
    PositionsTopic,
)

if TYPE_CHECKING:
    from forebay.broker.cluster.peers.peers import Peers
    from forebay.broker.coordinators.groups import Groups
    from forebay.broker.fetch.positions import FoundPartition, Positions
    from forebay.broker.partition.table import PartitionTable
    from forebay.coordination.metadata import Metadata

_ASKING_S_MAX = 2.0
_AT_ONCE = 500

Wanted: TypeAlias = dict[TopicPartition, set[int]]
Found: TypeAlias = "dict[TopicPartition, FoundPartition]"


class Committed(NamedTuple):
    group: str
    topic: str
    """The topic or view that the group reads."""
    partition: int
    offset: int
    source: TopicPartition
    """Where its messages are."""


class Lag(NamedTuple):
    messages: int
    timestamp_ms: int | None
    """Of the next message; None if it is unknown."""


class GroupLags:
    def __init__(
        self,
        groups: Callable[[], Groups | None],
        positions: Positions,
        partitions: PartitionTable,
        peers: Peers,
        metadata: Metadata,
        *,
        node_id: int,
        committed_max: Callable[[], int],
    ) -> None:
        """`groups`: the coordinator, if there is one here. `committed_max`: how many offsets it looks at."""
        self._groups = groups
        self._positions = positions
        self._partitions = partitions
        self._peers = peers
        self._metadata = metadata
        self._node_id = node_id
        self._committed_max = committed_max
        self._found: Found = {}
        self._timestamps: dict[tuple[bytes, int, int], int] = {}
        """By topic id, partition and position."""
        self.committed: list[Committed] = []
        self.left_out = 0
        """Offsets that there was no room for."""

    async def refresh(self) -> None:
        wanted: Wanted = {}
        self.committed, self.left_out = [], 0
        for number, each in enumerate(self._all_committed()):
            if number >= self._committed_max():
                self.left_out += 1
                continue
            self.committed.append(each)
            positions = wanted.setdefault(each.source, set())
            if self._key(each.source, each.offset) not in self._timestamps:
                positions.add(each.offset)
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
        self._found = await self._find(wanted)
        self._remember()

    def of(self, committed: Committed) -> Lag | None:
        """None if the leader has not answered."""
        found = self._found.get(committed.source)
        if found is None:
            return None
        position = max(committed.offset, found.start_offset)
        timestamp = self._timestamps.get(self._key(committed.source, committed.offset))
        return Lag(max(found.end_offset - position, 0), timestamp)

    def _all_committed(self) -> Iterator[Committed]:
        groups = self._groups()
        for shard in groups.coordinator.ready_shards() if groups is not None else ():
            for group in list(shard.machine.offsets.group_ids()):
                for topic, partitions in list(shard.machine.offsets.of_group(group).items()):
                    source = self._partitions.source_of(topic)
                    for index, offset in list(partitions.items()):
                        yield Committed(group, topic, index, offset.offset, (source, index))

    # -- asking leaders --------------------------------------------------------------------------------

    async def _find(self, wanted: Wanted) -> Found:
        by_leader: dict[int, Wanted] = {}
        for at, positions in wanted.items():
            state = self._metadata.image.partition(*at)
            if state is not None and state.leader != NO_LEADER:
                by_leader.setdefault(state.leader, {})[at] = positions
        answers = await asyncio.gather(*(self._ask(*each) for each in by_leader.items()))
        return {at: found for answer in answers for at, found in answer.items()}

    async def _ask(self, leader: int, wanted: Wanted) -> Found:
        if leader == self._node_id:
            return await self._positions.find({at: list(each) for at, each in wanted.items()})
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(_ASKING_S_MAX):  # which connecting takes from, too
                response = await self._peers.ask(leader, _request(wanted), version=0)
            assert isinstance(response, DescribePositionsResponse)
            return _read(wanted, response)
        return {}

    def _remember(self) -> None:
        before, self._timestamps = self._timestamps, {}
        for each in self.committed:
            key, found = self._key(each.source, each.offset), self._found.get(each.source)
            known = before.get(key, None if found is None else found.timestamps.get(each.offset))
            if known is not None:
                self._timestamps[key] = known

    def _key(self, at: TopicPartition, position: int) -> tuple[bytes, int, int]:
        topic = self._metadata.image.topics.get(at[0])
        return b"" if topic is None else topic.topic_id, at[1], position


def _request(wanted: Wanted) -> DescribePositionsRequest:
    topics: dict[str, PositionsTopic] = {}
    for (topic, index), positions in wanted.items():
        partition = PositionsPartition(partition_index=index, positions=list(positions))
        topics.setdefault(topic, PositionsTopic(name=topic)).partitions.append(partition)
    return DescribePositionsRequest(topics=list(topics.values()))


def _read(wanted: Wanted, response: DescribePositionsResponse) -> Found:
    from forebay.broker.fetch.positions import FoundPartition

    found: Found = {}
    for topic in response.topics:
        for each in topic.partitions:
            at = (topic.name, each.partition_index)
            if not each.error_code and at in wanted:
                known = zip(wanted[at], each.timestamps, strict=True)
                timestamps = {position: timestamp for position, timestamp in known if timestamp >= 0}
                found[at] = FoundPartition(each.start_offset, each.end_offset, timestamps)
    return found


def oldest_timestamp(lags: Iterable[Lag | None], now_ms: int) -> int | None:
    """The time of the oldest message that one of them waits for, now if none does; None if it is unknown."""
    oldest = now_ms
    for lag in lags:
        if lag is None or (lag.messages and lag.timestamp_ms is None):
            return None
        if lag.messages and lag.timestamp_ms is not None:
            oldest = min(oldest, lag.timestamp_ms)
    return oldest
