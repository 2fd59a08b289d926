"""Finds the start offset of a share group in a partition that is new to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.broker.broker_time import BrokerTime
from forebay.broker.fetch.offsets_by_time import OffsetsByTime
from forebay.broker.fetch.topic_delays import TopicDelays
from forebay.broker.partition.leader_epoch_checks import is_end_known
from forebay.broker.partition.partition import Partition
from forebay.broker.tiers.manifests.known_manifest import known_manifest
from forebay.config import ShareGroupSettings
from forebay.config.offset_reset import EARLIEST, LATEST

if TYPE_CHECKING:
    from forebay.broker.tiers.remote_offsets import RemoteOffsets

_LOOK_S = 0.01
_LOOK_S_MAX = 0.5


class StartOffsets:
    """`share.auto.offset.reset` applied to a partition that this broker leads."""

    def __init__(
        self,
        by_time: OffsetsByTime,
        remote: Callable[[], RemoteOffsets | None],
        delays: TopicDelays,
        time: BrokerTime,
    ) -> None:
        """`remote`: searches what is in the object store only; None without one."""
        self._by_time = by_time
        self._remote = remote
        self._delays = delays
        self._now_ms = time.now_ms

    async def resolve(
        self, partition: Partition, settings: ShareGroupSettings, wanted: Callable[[], bool]
    ) -> int:
        """The start offset. Raises KafkaError, also while it is not known what is in the object store.
        `wanted` is called while a new leader determines the end of its log."""
        reset, log = settings.offset_reset, partition.log
        if reset.strategy == EARLIEST:
            known_manifest(partition)
            return partition.start_offset
        pause_s = _LOOK_S
        while not is_end_known(partition):
            if not wanted():
                raise partition.not_leader()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_S_MAX)
        await self._delays.find(partition)
        if reset.strategy != LATEST:
            found = await self._first_from(partition, reset.timestamp(self._now_ms()))
            if found is not None:
                return min(found[1], partition.readable_end(committed=False))
        return max(partition.readable_end(committed=False), log.start_offset)

    async def _first_from(self, partition: Partition, timestamp: int) -> tuple[int, int] | None:
        remote = self._remote() if partition.remote is not None else None
        found = None if remote is None else await remote.first_from(partition, timestamp)
        return found or await self._by_time.first_from(partition.log, timestamp)
