"""The programs of `programs.py`, for asyncio. A cancelled wait is a failure like any other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from forebay.client import AsyncConsumer, AsyncProducer, DeliveryFailed, Message, Record, process_async
from support.client_model.programs import (
    BATCH,
    FETCHES,
    WAIT_SECONDS,
    Copier,
    Failures,
    Reader,
    Sender,
    Unwanted,
    tries,
    value_of,
)


@contextlib.asynccontextmanager
async def closing(client: Any) -> AsyncIterator[Any]:
    try:
        async with client:
            yield client
    except BaseException:
        for _ in tries():
            with contextlib.suppress(*Failures):
                await client.close()
                break
        raise


class AsyncCopier(Copier):
    async def run_async(self) -> None:
        at = self.at
        for _ in tries():
            with contextlib.suppress(*Failures):
                async with (
                    closing(AsyncProducer(at.servers, **at.producing())) as producer,
                    closing(AsyncConsumer(at.servers, at.source, **at.consuming())) as consumer,
                ):
                    await self._go_on_async(consumer, producer)
                    return

    async def _go_on_async(self, consumer: AsyncConsumer, producer: AsyncProducer) -> None:
        for _ in tries():
            with self.at.survived():
                await process_async(
                    consumer, producer, self._transform_async, batch_max=BATCH, stop=self.at.finished
                )
                return

    async def _transform_async(self, message: Message) -> Record:
        record = self.transform(message)
        await asyncio.sleep(0)
        return record


class AsyncPump(AsyncCopier):
    async def _go_on_async(self, consumer: AsyncConsumer, producer: AsyncProducer) -> None:
        for _ in tries():
            with self.at.survived():
                await self._transact_async(consumer, producer)
                if self.at.finished():
                    return

    async def _transact_async(self, consumer: AsyncConsumer, producer: AsyncProducer) -> None:
        async with producer.transaction(consumer):
            for count in FETCHES:
                for message in await consumer.take(count, WAIT_SECONDS):
                    await producer.send_record(self.transform(message))


class AsyncReader(Reader):
    async def run_async(self) -> None:
        at = self.at
        for _ in tries():
            with contextlib.suppress(*Failures):
                async with closing(AsyncConsumer(at.servers, at.source, **at.consuming())) as consumer:
                    await self._go_on_async(consumer)
                    return

    async def _go_on_async(self, consumer: AsyncConsumer) -> None:
        for _ in tries():
            with self.at.survived():
                while not self.at.finished():
                    await self._read_async(consumer, next(self.ways))
                return

    async def _read_async(self, consumer: AsyncConsumer, way: str) -> None:
        if way == "take":
            self.note(await consumer.take(BATCH, WAIT_SECONDS))
        elif way == "poll":
            self.note([await consumer.poll(WAIT_SECONDS)])
        elif way == "commit":
            await consumer.commit()
        else:
            await consumer.rewind()


class AsyncSender(Sender):
    async def run_async(self) -> None:
        for _ in tries():
            with contextlib.suppress(*Failures):
                async with closing(AsyncProducer(self.at.servers, **self.at.producing())) as producer:
                    self.sent.waiting.clear()
                    if self.at.delivery == "exactly-once":
                        await self._transact_all_async(producer)
                    else:
                        await self._send_all_async(producer)
                    return

    async def _send_all_async(self, producer: AsyncProducer) -> None:
        for step in self.steps:
            with self.at.survived():
                await self._send_async(producer, step)
        for _ in tries():
            with self.at.survived():
                await self._flush_async(producer)
                return

    async def _send_async(self, producer: AsyncProducer, step: str) -> None:
        if step == "flush":
            await self._flush_async(producer)
            return
        if step == "send":
            record = self.record()
            await producer.send_record(record)
            self.sent.waiting.append(value_of(record))
        else:
            records = [self.record(), self.record()]
            await asyncio.gather(*map(producer.send_and_wait, records))
            self.sent.delivered.update(map(value_of, records))

    async def _flush_async(self, producer: AsyncProducer) -> None:
        try:
            await producer.flush()
        except DeliveryFailed:
            self.sent.waiting.clear()
            raise
        self.sent.flushed()

    async def _transact_all_async(self, producer: AsyncProducer) -> None:
        for count, wanted in self.transactions:
            with self.at.survived(), contextlib.suppress(Unwanted):
                await self._transact_async(producer, [self.record() for _ in range(count)], wanted)

    async def _transact_async(self, producer: AsyncProducer, records: list[Record], wanted: bool) -> None:
        asked = False
        try:
            async with producer.transaction():
                for record in records:
                    await producer.send_record(record)
                    await asyncio.sleep(0)
                if not wanted:
                    raise Unwanted
                asked = True
        except BaseException:
            if not asked:
                self.sent.rolled_back.update(map(value_of, records))
            raise
        self.sent.delivered.update(map(value_of, records))
