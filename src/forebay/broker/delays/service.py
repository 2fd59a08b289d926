"""All partitions of this broker with messages that wait for their time: each has a task while it is used."""

from __future__ import annotations

import asyncio

from forebay.broker.delays.following import DelayHost
from forebay.broker.delays.live_delays import LiveDelays
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.core.cluster.partition_state import PartitionState
from forebay.errors import ErrorCode, KafkaError

_LOOKS_EVERY_S = 1.0
"""A partition whose topic has been given the setting is noticed after this time at the latest."""


class DelayService:
    def __init__(self, host: DelayHost, partitions: PartitionTable) -> None:
        self._host = host
        self._partitions = partitions
        self._live: dict[Partition, LiveDelays] = {}
        self._woken = asyncio.Event()
        self._closed = False

    async def run(self) -> None:
        """Start what is to be followed, for as long as the broker serves."""
        while not self._closed:
            self._woken.clear()
            self._start_all()
            timer = self._host.loop.call_later(_LOOKS_EVERY_S, self._woken.set)
            await self._woken.wait()
            timer.cancel()

    def role_taken(self, partition: Partition, _state: PartitionState) -> None:
        live = self._live.get(partition)
        if live is not None:
            live.wake()
        elif partition.delayed_messages is not None:
            self._woken.set()

    def dropped(self, partition: Partition) -> None:
        live = self._live.get(partition)
        if live is not None:
            live.close()

    def close(self) -> None:
        self._closed = True
        for live in self._live.values():
            live.close()
        self._woken.set()

    def end_threads(self) -> None:
        """Blocks until the work under way has ended."""
        self._host.threads.close()

    def led(self, topic: str, index: int) -> LiveDelays:
        """Of a partition that this broker leads. Raises KafkaError."""
        partition = self._partitions.get_with_lease(topic, index)
        if partition.delayed_messages is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"topic {topic!r} takes no delays: set forebay.delay.enable=true"
            )
        live = self._live.get(partition)
        if live is None:
            raise partition.not_leader()  # in a moment
        return live

    def _start_all(self) -> None:
        for partition in self._partitions.all():
            if partition.delayed_messages is not None and partition not in self._live:
                live = self._live[partition] = LiveDelays(self._host, partition, partition.delayed_messages)
                self._host.background.spawn(self._run(partition, live), f"delays of {partition}")

    async def _run(self, partition: Partition, live: LiveDelays) -> None:
        try:
            await live.run()
        finally:
            del self._live[partition]
            self._woken.set()
