"""Consume, transform, produce for asyncio: like `processing`, with a transform that may be awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial

from forebay.client.aio.async_consumer import AsyncConsumer
from forebay.client.aio.async_producer import AsyncProducer
from forebay.client.errors import TransactionAborted
from forebay.client.messages import Message
from forebay.client.processing import ATTEMPTS_MAX, PAUSE_SECONDS, IdleWatch, Made, check_modes, records

AsyncTransform = Callable[[Message], Made | Awaitable[Made]]


async def process_async(
    consumer: AsyncConsumer,
    producer: AsyncProducer,
    transform: AsyncTransform,
    *,
    batch_max: int = 500,
    idle_s: float | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Send the results of `transform` for each message; returns how many messages were processed.

    If cancelled, it leaves the batch undone, as with any exception.
    """
    check_modes(consumer.delivery, producer.delivery)
    if producer.delivery == "exactly-once":
        await producer.init_transactions()
    count = 0
    watch = IdleWatch(idle_s)
    while not stop() and not watch.expired():
        done = await _repeat(partial(_once, consumer, producer, transform, batch_max, watch.wait_s()))
        watch.saw(done)
        count += done
    return count


async def _repeat(once: Callable[[], Awaitable[int]]) -> int:
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return await once()
        except TransactionAborted:
            if attempt == ATTEMPTS_MAX:
                raise
            await asyncio.sleep(PAUSE_SECONDS * attempt)
    raise AssertionError("the loop returns or raises")


async def _once(
    consumer: AsyncConsumer, producer: AsyncProducer, transform: AsyncTransform, batch_max: int, wait_s: float
) -> int:
    batch = await consumer.take(batch_max, wait_s)
    if not batch:
        return 0
    try:
        await _deliver(consumer, producer, transform, batch)
    except BaseException:
        await consumer.rewind()
        raise
    return len(batch)


async def _deliver(
    consumer: AsyncConsumer, producer: AsyncProducer, transform: AsyncTransform, batch: list[Message]
) -> None:
    if producer.delivery == "exactly-once":
        async with producer.transaction(consumer):
            await _send(producer, transform, batch)
        return
    await _send(producer, transform, batch)
    await producer.flush()
    await consumer.commit()


async def _send(producer: AsyncProducer, transform: AsyncTransform, batch: list[Message]) -> None:
    for message in batch:
        made = transform(message)
        if inspect.isawaitable(made):
            made = await made
        for record in records(made):
            await producer.send_record(record)
