"""Waits until partitions have new leaders, for transactions whose markers could not be written.

Thousands may wait, and a failover makes many images. So each image is compared once for each partition with
waiters, and only the waiters of a partition with a new leader are woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.topic_partition import TopicPartition


class LedAnew:
    def __init__(self, metadata: Metadata, loop: asyncio.AbstractEventLoop) -> None:
        self._metadata = metadata
        self._loop = loop
        self._waiting: dict[TopicPartition, dict[asyncio.Future[None], None]] = {}

    def __len__(self) -> int:
        """The number of partitions with waiters."""
        return len(self._waiting)

    async def wait(self, partitions: Collection[TopicPartition], since: ClusterImage, seconds: float) -> bool:
        """Wait until one of these has another leader than in an image, or for this time; True if one has."""
        if any(_is_led_anew(at, since, self._metadata.image) for at in partitions):
            return True
        woken: asyncio.Future[None] = self._loop.create_future()
        for at in partitions:
            self._waiting.setdefault(at, {})[woken] = None
        try:
            async with asyncio.timeout(seconds):
                await woken
        except TimeoutError:
            return False
        finally:
            for at in partitions:
                del self._waiting[at][woken]
                if not self._waiting[at]:
                    del self._waiting[at]
        return True

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        if after.topics is before.topics:
            return
        for at, waiting in self._waiting.items():
            if _is_led_anew(at, before, after):
                for woken in waiting:
                    if not woken.done():
                        woken.set_result(None)


def _is_led_anew(at: TopicPartition, before: ClusterImage, after: ClusterImage) -> bool:
    one, other = before.partition(*at), after.partition(*at)
    return (one and one.leader_epoch) != (other and other.leader_epoch)
