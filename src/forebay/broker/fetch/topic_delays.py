"""Topics that delay all their messages (`forebay.delay.ms`): what is due in them is found when it is read.

Whoever asks where a partition ends (`readable_end`) has it looked at. The search for the first message that
is not due goes by the log's time index, in a thread; when it has found more, those who wait for the partition
are woken. While somebody waits, a timer looks again when the next message is due. A partition that nobody
reads costs nothing.
"""

from __future__ import annotations

import asyncio

from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.fetch.offsets_by_time import OffsetsByTime
from forebay.broker.partition.long_polls import Arrivals
from forebay.broker.partition.partition import Partition
from forebay.core.partition.topic_due_offset import DueOffset

_LOOK_MS_MAX = 1_000
"""How long a timer waits at most: the clock may be set forward meanwhile."""


class TopicDelays:
    def __init__(
        self,
        by_time: OffsetsByTime,
        time: BrokerTime,
        arrivals: Arrivals,
        background: Background,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._by_time = by_time
        self._now_ms = time.now_ms
        self._arrivals = arrivals
        self._background = background
        self._loop = loop
        self._looking: set[DueOffset] = set()
        """Those that are being searched for, or have a timer."""

    def readable_end(self, partition: Partition, *, committed: bool) -> int:
        """Where what a consumer may read ends, as far as it is known; what became due is being found."""
        if partition.topic_delay is not None:
            self._look(partition)
        return partition.readable_end(committed=committed)

    def _look(self, partition: Partition) -> None:
        """Somebody reads the partition, or waits for it."""
        due = partition.topic_delay
        if due is None or due in self._looking:
            return
        wait_ms = due.search_in_ms(partition.high_watermark, self._now_ms())
        if wait_ms is None:
            return
        self._looking.add(due)
        if wait_ms:
            self._loop.call_later(min(wait_ms, _LOOK_MS_MAX) / 1000, self._look_again, partition, due)
        else:
            self._background.spawn(self._search(partition, due), f"looking for what is due in {partition}")

    async def find(self, partition: Partition) -> None:
        """Find what is due by now. Raises KafkaError."""
        due = partition.topic_delay
        if due is None:
            return
        now_ms, end_offset = self._now_ms(), partition.log.end_offset
        found = await self._by_time.first_message_from(
            partition.log, due.newest_due_ms(now_ms) + 1, due.offset
        )
        if partition.topic_delay is not due or partition.closed:
            return  # its delay has changed, or it is led by another: what was found counts no more
        if found is None:
            has_more = due.searched(end_offset, None, now_ms)
        else:
            timestamp, offset = found
            has_more = due.searched(partition.log.batch_at(offset), timestamp, now_ms)
        if has_more:
            self._arrivals.note(partition, 1)
            self._arrivals.wake()

    async def _search(self, partition: Partition, due: DueOffset) -> None:
        try:
            await self.find(partition)
        finally:
            self._looking.discard(due)
        if partition.waiters:
            self._look(partition)

    def _look_again(self, partition: Partition, due: DueOffset) -> None:
        self._looking.discard(due)
        if partition.waiters and not partition.closed:
            self._look(partition)
