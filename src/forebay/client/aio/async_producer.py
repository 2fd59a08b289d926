"""The producer for asyncio.

librdkafka works in its own threads and never blocks when a message is queued, so sending needs no thread
here. One thread polls for delivery reports; another runs the calls that wait: flushing, and the steps of a
transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

import confluent_kafka
from confluent_kafka import KafkaError

from forebay.client import messages
from forebay.client.aio.async_consumer import AsyncConsumer
from forebay.client.aio.call_thread import CallThread, uninterrupted
from forebay.client.closing import CLOSE_SECONDS
from forebay.client.errors import ClientError, from_kafka
from forebay.client.messages import Headers, Message, Record, cancellation
from forebay.client.presets import Acks, Delivery, Profile, Settings
from forebay.client.producer import QUEUE_SECONDS_MAX, Callback, Producer

_log = logging.getLogger("forebay.client")
_POLL_SECONDS = 0.1
_ROOM_SECONDS = 0.01


class AsyncProducer:
    """Like `Producer`, awaited. Create it, use it and close it in one event loop."""

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        delivery: Delivery = "at-least-once",
        profile: Profile = "throughput",
        acks: Acks | None = None,
        transactional_id: str | None = None,
        close_seconds: float = CLOSE_SECONDS,
        settings: Settings | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sync = Producer(
            servers,
            delivery=delivery,
            profile=profile,
            acks=acks,
            transactional_id=transactional_id,
            close_seconds=close_seconds,
            settings=settings,
        )
        self._reports = _Reports(self._loop)
        self._calls = CallThread("producer")
        self._closing: asyncio.Future[None] | None = None
        self._given_up = threading.Event()
        self._stopped = threading.Event()
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
        deliver_at: datetime | int | None = None,
        deliver_after: timedelta | float | None = None,
        schedule_key: str | bytes | None = None,
    ) -> None:
        """Queue a message; waits only while the queue is full. `flush` reports failures."""
        await self.send_record(
            Record(
                topic=topic,
                value=value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
                deliver_at=deliver_at,
                deliver_after=deliver_after,
                schedule_key=schedule_key,
            )
        )

    async def send_record(self, record: Record) -> None:
        await self._queue(record, self._sync.note_delivery)

    async def send_and_wait(self, record: Record) -> Message:
        """Send one message and wait until it is acknowledged. Many at once: use asyncio.gather."""
        result: asyncio.Future[Message] = self._loop.create_future()
        await self._queue(record, self._reports.to(result))
        return await result

    async def cancel(
        self,
        topic: str,
        schedule_key: str | bytes | None = None,
        *,
        schedule_id: str | None = None,
        key: str | bytes | None = None,
        partition: int | None = None,
    ) -> None:
        """Cancel a delayed message, and wait for the acknowledgement; see `Producer.cancel`."""
        record = cancellation(topic, schedule_key, schedule_id=schedule_id, key=key, partition=partition)
        await self.send_and_wait(record)

    async def _queue(self, record: Record, on_delivery: Callback) -> None:
        deadline = self._loop.time() + QUEUE_SECONDS_MAX
        while not self._sync.try_send(record, on_delivery):
            if self._loop.time() >= deadline:
                raise ClientError(f"the queue of messages was full for {QUEUE_SECONDS_MAX:.0f} s")
            await asyncio.sleep(_ROOM_SECONDS)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is acknowledged or has failed; raises DeliveryFailed for the latter."""
        given_up = threading.Event()
        wait = partial(self._sync.wait_for_reports, timeout_s, given_up.is_set)
        await self._calls.run_to_end(wait, on_cancel=given_up.set)
        self._sync.raise_failures()  # not in the thread: a cancelled task would not see them

    # -- transactions ------------------------------------------------------------------------------------

    async def init_transactions(self) -> None:
        await self._calls.run_to_end(self._sync.transactions.init)

    @contextlib.asynccontextmanager
    async def transaction(self, consumer: AsyncConsumer | None = None) -> AsyncIterator[None]:
        """Everything sent inside becomes visible at once, with the consumer's offsets, or not at all."""
        self._sync.check_may_begin()
        transactions = self._sync.transactions
        transactions.forget_outcome()
        try:
            await self._calls.run_to_end(transactions.begin)
            yield
            progress = await consumer.progress() if consumer is not None else None
            await self._calls.run_to_end(lambda: transactions.commit(progress))
        except BaseException as error:
            await self._roll_back(error, consumer)
            raise
        if consumer is not None:
            await consumer.conclude("committed")

    async def _roll_back(self, error: BaseException, consumer: AsyncConsumer | None) -> None:
        """Roll back, even if the task is cancelled again: the calls end in their threads, in this order."""
        try:
            await self._calls.run_to_end(lambda: self._sync.roll_back(error))
        finally:
            if consumer is not None:
                await consumer.conclude(self._sync.transactions.outcome)

    # -- life ------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Deliver queued messages. Raises DeliveryFailed if some of them could not be."""
        await self._close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(error)

    async def _close(self, error: BaseException | None) -> None:
        """If cancelled, it gives up what is not delivered soon. A second close waits for the first to end."""
        if self._closing is not None and self._closing.done():
            return  # its errors have been raised already
        if self._closing is None:
            deliver = self._deliver if error is None else self._sync.give_up
            self._closing = asyncio.ensure_future(self._deliver_and_stop(deliver))
        await uninterrupted(self._closing, self._given_up.set)

    async def _deliver_and_stop(self, deliver: Callable[[], None]) -> None:
        try:
            await self._calls.run_to_end(deliver, self._given_up.set)
        finally:
            self._calls.shut()
            self._stopped.set()
            await uninterrupted(asyncio.to_thread(self._poller.join))
            await uninterrupted(asyncio.to_thread(self._sync.destroy))

    def _deliver(self) -> None:
        try:
            self._sync.deliver(self._given_up.is_set)
        finally:
            if self._given_up.is_set():
                self._sync.give_up()

    def _poll(self) -> None:
        """Only this thread brings delivery reports: no exception of a callback may end it."""
        while not self._stopped.is_set():
            try:
                self._sync.raw.poll(_POLL_SECONDS)
            except Exception:
                _log.exception("a callback of the producer failed")
                self._stopped.wait(_POLL_SECONDS)


class _Reports:
    """Brings delivery reports from the polling threads to the loop, waking it once for many.

    A flag under the lock of the queue says that the loop is about to be woken: a report that is added either
    finds it set, and will be taken, or sets it.
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
        with contextlib.suppress(RuntimeError):  # the loop is closed, and no task waits
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
