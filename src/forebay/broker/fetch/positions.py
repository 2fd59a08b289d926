"""Where partitions that this broker leads begin and end, and how old their messages are at some positions.

The age of a message needs a look into the log, by a thread. That is bounded in number and time: a position
that was not looked at has no timestamp. Where messages are in an object store only, nothing is read: the
newest message of the segment stands for all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from forebay.core.topic_partition import TopicPartition
from forebay.errors import KafkaError

if TYPE_CHECKING:
    from forebay.broker.fetch.offsets_by_time import OffsetsByTime
    from forebay.broker.fetch.topic_delays import TopicDelays
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable

LOOKING_S_MAX = 1.0
_AT_ONCE = 16
_PARTITIONS_AT_ONCE = 200


class FoundPartition(NamedTuple):
    start_offset: int
    end_offset: int
    """Where what consumers may read ends."""
    timestamps: dict[int, int]
    """By position, of the first message from there on."""


class Positions:
    def __init__(
        self,
        partitions: PartitionTable,
        by_time: OffsetsByTime,
        delays: TopicDelays,
        *,
        ages_max: Callable[[], int],
    ) -> None:
        """`ages_max`: how many positions are looked at for one question."""
        self._partitions = partitions
        self._by_time = by_time
        self._delays = delays
        self._ages_max = ages_max

    async def find(
        self, wanted: Mapping[TopicPartition, Sequence[int]]
    ) -> dict[TopicPartition, FoundPartition]:
        """Of those that this broker surely leads."""
        found: dict[TopicPartition, FoundPartition] = {}
        looks: list[tuple[Partition, int, dict[int, int]]] = []
        for number, (at, positions) in enumerate(wanted.items(), start=1):
            if self._partitions.unused_epoch(*at) is not None:
                found[at] = FoundPartition(0, 0, {})  # it is not opened for this
                continue
            with contextlib.suppress(KafkaError):
                partition = self._partitions.get_with_lease(*at)
                found[at] = self._describe(partition)
                end = found[at].end_offset
                looks += [(partition, each, found[at].timestamps) for each in positions if each < end]
            if not number % _PARTITIONS_AT_ONCE:
                await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOKING_S_MAX):
                await self._look(looks[: self._ages_max()])
        return found

    def _describe(self, partition: Partition) -> FoundPartition:
        end = self._delays.readable_end(partition, committed=False)
        return FoundPartition(partition.start_offset, end, {})

    async def _look(self, looks: Sequence[tuple[Partition, int, dict[int, int]]]) -> None:
        for start in range(0, len(looks), _AT_ONCE):
            await asyncio.gather(*(self._look_at(*look) for look in looks[start : start + _AT_ONCE]))

    async def _look_at(self, partition: Partition, position: int, timestamps: dict[int, int]) -> None:
        if partition.remote is not None and position < partition.log.start_offset:
            segment = None if partition.remote.manifest is None else partition.remote.manifest.find(position)
            if segment is not None and segment.max_timestamp >= 0:
                timestamps[position] = segment.max_timestamp
            return
        with contextlib.suppress(KafkaError):
            first = await self._by_time.first_message_from(partition.log, 0, position)
            if first is not None:
                timestamps[position] = first[0]
