"""The consumer for asyncio: librdkafka's calls in a separate thread, messages handed out on the loop.

Fetched messages wait in the consumer, not in the task that asked for them, so a cancelled `anext` loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Self

import confluent_kafka

from forebay.client.aio.call_thread import CallThread
from forebay.client.closing import CLOSE_SECONDS
from forebay.client.consumer import FILL_SECONDS, Consumer
from forebay.client.messages import Message
from forebay.client.presets import Delivery, Profile, Settings, Start
from forebay.client.transactions import Progress, TransactionOutcome


class AsyncConsumer:
    """Like `Consumer`, awaited: `async for message in consumer`. For one task at a time."""

    def __init__(
        self,
        servers: str | Sequence[str],
        topics: str | Sequence[str],
        *,
        group: str,
        delivery: Delivery = "at-least-once",
        profile: Profile = "throughput",
        start: Start = "earliest",
        batch_max: int = 500,
        close_seconds: float = CLOSE_SECONDS,
        settings: Settings | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._batch_max = batch_max
        self._sync = Consumer(
            servers,
            topics,
            group=group,
            delivery=delivery,
            profile=profile,
            start=start,
            batch_max=batch_max,
            close_seconds=close_seconds,
            settings=settings,
        )
        self._calls = CallThread("consumer")
        self._closing: asyncio.Future[None] | None = None

    @property
    def delivery(self) -> Delivery:
        return self._sync.delivery

    @property
    def raw(self) -> confluent_kafka.Consumer:
        return self._sync.raw

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message, however long it takes."""
        while (message := await self.poll()) is None:
            pass
        return message

    async def poll(self, timeout_s: float = FILL_SECONDS) -> Message | None:
        """The next message, or None if none came in time."""
        if self._calls.is_idle and (message := self._sync.try_next()) is not None:
            return message
        await self._fill(self._batch_max, timeout_s)
        # Not `try_next`: after a long wait it asks for `fill` again.
        return next(iter(self._sync.hand_out(1)), None)

    async def take(self, count: int = 500, timeout_s: float = FILL_SECONDS) -> list[Message]:
        """Up to `count` messages: waits only for the first. Those taken before count as done."""
        await self._fill(count, timeout_s)
        return self._sync.hand_out(count)

    async def _fill(self, count: int, timeout_s: float) -> None:
        """Fetch in short waits: one left behind by a cancelled task does not delay the next call long."""
        deadline = self._loop.time() + timeout_s
        while True:
            left_s = max(deadline - self._loop.time(), 0.0)
            fill = partial(self._sync.fill, count, min(left_s, FILL_SECONDS))
            if await self._calls.run(fill) or left_s <= FILL_SECONDS:
                return

    async def commit(self) -> bool:
        """Commit everything handed out now. False if the group has rebalanced meanwhile."""
        return await self._calls.run(self._sync.commit)

    async def progress(self) -> Progress:
        return await self._calls.run(self._sync.progress)

    async def conclude(self, outcome: TransactionOutcome) -> None:
        """Note that the transaction with `progress` in it has ended."""
        await self._calls.run(lambda: self._sync.conclude(outcome))

    async def rewind(self) -> None:
        """Hand out unfinished messages again: they were not processed after all."""
        await self._calls.run(self._sync.rewind)

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at this offset. Messages of the partition that are in hand will not be committed."""
        await self._calls.run(lambda: self._sync.seek(topic, partition, offset))

    async def close(self) -> None:
        """Commit finished messages, and leave the group. Messages still in hand will be handed out again."""
        if self._closing is None or _has_failed(self._closing):
            self._closing = self._calls.start(self._sync.close)
        await asyncio.shield(self._closing)
        self._calls.shut()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


def _has_failed(future: asyncio.Future[None]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
