"""The consumer for asyncio: librdkafka's calls in one thread of its own, messages handed out on the loop.

Messages that a fetch brought wait in the consumer, not in the task that asked for them, so that a cancelled
`anext` loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

import confluent_kafka

from forebay.client.consumer import FILL_SECONDS, Consumer
from forebay.client.messages import Message
from forebay.client.presets import Delivery, Profile, Settings, Start
from forebay.client.transactions import Progress

T = TypeVar("T")


class AsyncConsumer:
    """As `Consumer`, awaited: `async for message in consumer`. For one task at a time."""

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
            settings=settings,
        )
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="forebay-consumer")
        self._under_way = 0
        """Calls in the thread. A cancelled task leaves its own behind, and messages move meanwhile."""

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
        """The next message, or None when none came in time."""
        if not self._under_way and (message := self._sync.try_next()) is not None:
            return message
        await self._call(lambda: self._sync.fill(self._batch_max, timeout_s))
        return self._sync.try_next()

    async def take(self, count: int = 500, timeout_s: float = FILL_SECONDS) -> list[Message]:
        """Up to `count` messages: waits only for the first. Those taken before count as done."""
        self._sync.finish()
        await self._call(lambda: self._sync.fill(count, timeout_s))
        return self._sync.hand_out(count)

    async def commit(self) -> bool:
        """Everything handed out is done: commit it now. False when the group has moved on meanwhile."""
        return await self._call(self._sync.commit)

    async def progress(self) -> Progress:
        return await self._call(self._sync.progress)

    async def settle(self) -> None:
        await self._call(self._sync.settle)

    async def rewind(self) -> None:
        """Hand out again what is in hand and not committed: it was not processed after all."""
        await self._call(self._sync.rewind)

    async def close(self) -> None:
        """Commit what is done, and leave the group. What is still in hand will be handed out again."""
        await self._call(self._sync.close)
        self._calls.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, work: Callable[[], T]) -> T:
        future = self._loop.run_in_executor(self._calls, work)
        self._under_way += 1
        future.add_done_callback(self._done)
        # Shielded: a call that waits in the thread's queue must not vanish because a task was cancelled.
        return await asyncio.shield(future)

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()  # seen, also when nobody waits for it any more
