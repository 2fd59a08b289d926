"""The producer for asyncio.

librdkafka does its work in threads of its own and never blocks when a message is queued, so sending needs no
thread of ours. One thread polls, which is what makes delivery reports arrive; another runs the calls
that wait: flushing, and the steps of a transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError

from forebay.client import messages
from forebay.client.async_consumer import AsyncConsumer
from forebay.client.errors import ClientError, from_kafka
from forebay.client.messages import Headers, Message, Record
from forebay.client.presets import Delivery, Profile, Settings
from forebay.client.producer import QUEUE_SECONDS_MAX, Callback, Producer

T = TypeVar("T")

_POLL_SECONDS = 0.1
_ROOM_SECONDS = 0.01


class AsyncProducer:
    """As `Producer`, awaited. Make it, use it and close it in one event loop."""

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        delivery: Delivery = "at-least-once",
        profile: Profile = "throughput",
        transactional_id: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sync = Producer(
            servers, delivery=delivery, profile=profile, transactional_id=transactional_id, settings=settings
        )
        self._reports = _Reports(self._loop)
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="forebay-producer")
        self._polling = threading.Event()
        self._polling.set()
        self._poller = threading.Thread(target=self._poll, name="forebay-poll", daemon=True)
        self._poller.start()

    @property
    def delivery(self) -> Delivery:
        return self._sync.delivery

    @property
    def raw(self) -> confluent_kafka.Producer:
        return self._sync.raw

    # -- sending ---------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: str | bytes | None = None,
        *,
        key: str | bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue a message; waits only while the queue is full. Failures come with `flush`."""
        await self.send_record(
            Record(
                topic=topic,
                value=value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )

    async def send_record(self, record: Record) -> None:
        await self._queue(record, self._sync.note_delivery)

    async def send_and_wait(self, record: Record) -> Message:
        """Send one message and wait until it is acknowledged. Many at once: use asyncio.gather."""
        result: asyncio.Future[Message] = self._loop.create_future()
        await self._queue(record, self._reports.to(result))
        return await result

    async def _queue(self, record: Record, on_delivery: Callback) -> None:
        deadline = self._loop.time() + QUEUE_SECONDS_MAX
        while not self._sync.try_send(record, on_delivery):
            if self._loop.time() >= deadline:
                raise ClientError(f"the queue of messages was full for {QUEUE_SECONDS_MAX:.0f} s")
            await asyncio.sleep(_ROOM_SECONDS)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is acknowledged or has failed; raises DeliveryFailed for the latter."""
        await self._call(lambda: self._sync.flush(timeout_s))

    # -- transactions ------------------------------------------------------------------------------------

    async def init_transactions(self) -> None:
        await self._call(self._sync.transactions.init)

    @contextlib.asynccontextmanager
    async def transaction(self, consumer: AsyncConsumer | None = None) -> AsyncIterator[None]:
        """All that is sent inside becomes visible at once, with the consumer's offsets, or not at all."""
        await self._call(self._sync.begin)
        try:
            yield
            progress = await consumer.progress() if consumer is not None else None
            await self._call(lambda: self._sync.transactions.commit(progress))
        except BaseException as error:
            if await self._roll_back(error) and consumer is not None:
                await consumer.rewind()
            raise
        finally:
            if self._sync.transactions.committed and consumer is not None:
                await consumer.settle()

    async def _roll_back(self, error: BaseException) -> bool:
        return await self._call(lambda: self._sync.roll_back(error))

    # -- life ------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Deliver what is queued. Raises DeliveryFailed if some of it could not be."""
        try:
            await self._call(self._sync.close)
        finally:
            await self._stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._call(lambda: self._sync.__exit__(kind, error, trace))
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self._polling.clear()
        await asyncio.to_thread(self._poller.join)
        self._calls.shutdown(wait=False)

    async def _call(self, work: Callable[[], T]) -> T:
        """To its end, also when the task is cancelled: whoever cleans up must know how it went."""
        future = self._loop.run_in_executor(self._calls, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    def _poll(self) -> None:
        while self._polling.is_set():
            self._sync.raw.poll(_POLL_SECONDS)


class _Reports:
    """Brings delivery reports from the threads that poll to the loop, waking it once for many.

    Whether the loop is about to be woken is a flag under the lock of the queue: a report that is added either
    finds it set, and then will be taken, or sets it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._arrived: list[tuple[asyncio.Future[Message], Message | ClientError]] = []
        self._woken = False

    def to(self, result: asyncio.Future[Message]) -> Callback:
        def on_delivery(error: KafkaError | None, raw: confluent_kafka.Message) -> None:
            self._add(result, from_kafka(error) if error is not None else messages.from_kafka(raw))

        return on_delivery

    def _add(self, result: asyncio.Future[Message], outcome: Message | ClientError) -> None:
        with self._lock:
            self._arrived.append((result, outcome))
            if self._woken:
                return
            self._woken = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
            self._woken = False
        for result, outcome in arrived:
            if result.done():
                continue  # cancelled meanwhile
            if isinstance(outcome, ClientError):
                result.set_exception(outcome)
            else:
                result.set_result(outcome)
