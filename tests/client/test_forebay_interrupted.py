"""Errors, Ctrl-C and cancelled tasks in the middle of things: the same clients go on, and lose nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from forebay.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    Consumer,
    Delivery,
    DeliveryFailed,
    Message,
    Producer,
    Record,
    consumer,
    process,
    process_async,
    producer,
)
from forebay.client.offsets_to_commit import OffsetsToCommit
from forebay.testing import Broker
from support.clients.hooked_kafka import Call, hook_clients

TOTAL = 10
VALUES = [str(number) for number in range(TOTAL)]
WAIT_SECONDS = 60.0


class Flow:
    """Ten messages, to be copied from one topic to another."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers, self.source, self.sink = servers, topic, f"{topic}-sink"
        with Producer(servers, delivery="at-most-once", acks=1, profile="latency") as producer:
            for value in VALUES:
                producer.send(topic, value)

    def producer(self, delivery: Delivery) -> Producer:
        return Producer(self.servers, **self._producing(delivery))

    def async_producer(self, delivery: Delivery) -> AsyncProducer:
        return AsyncProducer(self.servers, **self._producing(delivery))

    def consumer(self, delivery: Delivery) -> Consumer:
        return Consumer(self.servers, self.source, **self._consuming(delivery))

    def async_consumer(self, delivery: Delivery) -> AsyncConsumer:
        return AsyncConsumer(self.servers, self.source, **self._consuming(delivery))

    def _producing(self, delivery: Delivery) -> Any:
        name = self.sink if delivery == "exactly-once" else None
        return {"delivery": delivery, "profile": "latency", "transactional_id": name}

    def _consuming(self, delivery: Delivery) -> Any:
        return {"group": self.source, "delivery": delivery, "profile": "latency"}

    def copy(self, message: Message) -> Record:
        return Record(topic=self.sink, value=message.value)

    def is_done(self) -> bool:
        return Admin(self.servers).committed(self.source).get((self.source, 0), 0) >= TOTAL

    def copied(self) -> list[str]:
        """Up to the last value, which must come."""
        found: list[str] = []
        with Consumer(self.servers, self.sink, group=self.sink, profile="latency") as consumer:
            while VALUES[-1] not in found:
                found.append((next(consumer).value or b"").decode())
        return found


@pytest.fixture
def flow(forebay_broker: Broker, forebay_topic: str) -> Flow:
    return Flow(forebay_broker.bootstrap_servers, forebay_topic)


def without_repeats(values: list[str]) -> list[str]:
    return list(dict.fromkeys(values))


class Gate:
    """Holds a call of librdkafka up, before or after it, in whatever thread it is made."""

    def __init__(self, name: str, *, after: bool = False) -> None:
        self._name, self._after = name, after
        self.reached, self.open = threading.Event(), threading.Event()

    def around(self, call: Call) -> Any:
        if call.name != self._name:
            return call.run()
        result = call.run() if self._after else None
        self.reached.set()
        assert self.open.wait(WAIT_SECONDS)
        return result if self._after else call.run()

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, WAIT_SECONDS)


# -- processing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_process_called_again_after_an_error_goes_on_with_the_failed_batch(
    flow: Flow, delivery: Delivery
) -> None:
    seen = 0

    def transform(message: Message) -> Record:
        nonlocal seen
        seen += 1
        if seen == 3:
            raise ZeroDivisionError
        return flow.copy(message)

    with flow.producer(delivery) as producer, flow.consumer(delivery) as consumer:
        with pytest.raises(ZeroDivisionError):
            process(consumer, producer, transform)
        process(consumer, producer, transform, stop=flow.is_done)
    copied = flow.copied()
    assert copied == VALUES if delivery == "exactly-once" else without_repeats(copied) == VALUES


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
async def test_process_async_called_again_after_a_cancel_goes_on_with_the_same_batch(
    flow: Flow, delivery: Delivery
) -> None:
    seen, at_third = 0, asyncio.Event()

    async def transform(message: Message) -> Record:
        nonlocal seen
        seen += 1
        if seen == 3:
            at_third.set()
            await asyncio.sleep(WAIT_SECONDS)
        return flow.copy(message)

    async with flow.async_producer(delivery) as producer, flow.async_consumer(delivery) as consumer:
        task = asyncio.create_task(process_async(consumer, producer, transform))
        await at_third.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await process_async(consumer, producer, transform, stop=flow.is_done)
    copied = flow.copied()
    assert copied == VALUES if delivery == "exactly-once" else without_repeats(copied) == VALUES


def test_a_failed_flush_leaves_the_batch_undone(flow: Flow) -> None:
    Admin(flow.servers).create_topic(flow.sink, partitions=1, config={"max.message.bytes": "1000"})
    sizes: Iterator[int] = iter([5000])

    def transform(message: Message) -> list[Record]:
        refused = [Record(topic=flow.sink, value="x" * size) for size in sizes]
        return [*refused, flow.copy(message)]

    with flow.producer("at-least-once") as producer, flow.consumer("at-least-once") as consumer:
        with pytest.raises(DeliveryFailed):
            process(consumer, producer, transform)
        assert not flow.is_done()
        process(consumer, producer, transform, stop=flow.is_done)
    assert without_repeats(flow.copied()) == VALUES


async def test_a_cancelled_flush_keeps_failures_for_the_next_one(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    Admin(flow.servers).create_topic(flow.sink, partitions=1, config={"max.message.bytes": "1000"})
    gate = Gate("Producer.flush", after=True)
    hook_clients(monkeypatch, gate.around)
    async with flow.async_producer("at-least-once") as producer:
        await producer.send(flow.sink, "x" * 5000)
        task = asyncio.create_task(producer.flush())
        await gate.wait()
        task.cancel()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(DeliveryFailed):
            await producer.flush()


# -- transactions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_cancel_while_a_transaction_begins_leaves_none_open(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    gate = Gate("Producer.begin_transaction", after=after)
    hook_clients(monkeypatch, gate.around)
    async with (
        flow.async_producer("exactly-once") as producer,
        flow.async_consumer("exactly-once") as consumer,
    ):
        task = asyncio.create_task(process_async(consumer, producer, flow.copy))
        await gate.wait()
        task.cancel()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await process_async(consumer, producer, flow.copy, stop=flow.is_done)
    assert flow.copied() == VALUES


async def test_a_second_cancel_during_the_roll_back_skips_nothing_of_it(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate("Producer.abort_transaction")
    hook_clients(monkeypatch, gate.around)
    failing = iter([True])

    def transform(message: Message) -> Record:
        if next(failing, False):
            raise ZeroDivisionError
        return flow.copy(message)

    async with (
        flow.async_producer("exactly-once") as producer,
        flow.async_consumer("exactly-once") as consumer,
    ):
        task = asyncio.create_task(process_async(consumer, producer, transform))
        await gate.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await process_async(consumer, producer, transform, stop=flow.is_done)
    assert flow.copied() == VALUES


def test_a_commit_that_happened_but_raised_is_looked_up_and_not_done_again(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts = iter([KeyboardInterrupt])

    def around(call: Call) -> Any:
        result = call.run()
        if call.name == "Producer.commit_transaction":
            for interrupt in interrupts:
                raise interrupt
        return result

    hook_clients(monkeypatch, around)
    with flow.producer("exactly-once") as producer, flow.consumer("exactly-once") as consumer:
        with pytest.raises(KeyboardInterrupt):
            process(consumer, producer, flow.copy, batch_max=4)
        process(consumer, producer, flow.copy, stop=flow.is_done)
    assert flow.copied() == VALUES


def test_a_transaction_that_cannot_begin_leaves_its_messages_to_the_next_one(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([MemoryError])

    def around(call: Call) -> Any:
        if call.name == "Producer.begin_transaction":
            for failure in failures:
                raise failure
        return call.run()

    hook_clients(monkeypatch, around)
    with flow.producer("exactly-once") as producer, flow.consumer("exactly-once") as consumer:
        with pytest.raises(MemoryError):
            process(consumer, producer, flow.copy, batch_max=4)
        process(consumer, producer, flow.copy, stop=flow.is_done)
    assert flow.copied() == VALUES


# -- consumers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once", "exactly-once"])
@pytest.mark.parametrize("broken", ["Consumer.poll", "Consumer.consume"])
def test_what_a_call_took_with_it_when_it_raised_is_fetched_again(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, delivery: Delivery, broken: str
) -> None:
    """As confluent-kafka does it when Ctrl-C arrives with the messages."""
    left = 3

    def around(call: Call) -> Any:
        nonlocal left
        result = call.run()
        if call.name == broken and result and left:
            left -= 1
            raise KeyboardInterrupt
        return result

    hook_clients(monkeypatch, around)
    values: list[str] = []
    with flow.consumer(delivery) as consumer:
        while len(values) < TOTAL:
            with contextlib.suppress(KeyboardInterrupt):
                values += [(each.value or b"").decode() for each in consumer.take(4, 5.0)]
    assert not left
    assert values == VALUES


async def test_a_wait_that_was_left_behind_has_the_consumer_to_itself(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate("Consumer.poll")
    elsewhere: list[str] = []

    class Watched(OffsetsToCommit):
        def __getattribute__(self, name: str) -> Any:
            held_up = gate.reached.is_set() and not gate.open.is_set()
            if held_up and threading.current_thread() is threading.main_thread():
                elsewhere.append(name)
            return super().__getattribute__(name)

    monkeypatch.setattr(consumer, "OffsetsToCommit", Watched)
    hook_clients(monkeypatch, gate.around)
    async with flow.async_consumer("at-least-once") as member:
        waiting = asyncio.create_task(member.take(4))
        await gate.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        tasks = [asyncio.create_task(each) for each in (member.take(TOTAL), member.commit(), member.rewind())]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert elsewhere == []
        gate.open.set()
        await asyncio.gather(*tasks)


async def test_closing_twice_is_no_error_and_a_closed_client_says_so(flow: Flow) -> None:
    async with flow.async_consumer("at-least-once") as consumer:
        await consumer.close()
    with pytest.raises(ClientError, match="consumer is closed"):
        await consumer.take()
    async with flow.async_producer("exactly-once") as producer:
        await producer.close()
    with pytest.raises(ClientError, match="producer is closed"):
        async with producer.transaction():
            pass


# -- producers -------------------------------------------------------------------------------------------


async def test_a_producer_that_is_given_up_tells_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "GIVE_UP_SECONDS", 0.1)
    with pytest.raises(ZeroDivisionError):
        async with AsyncProducer("127.0.0.1:1", settings={"log_level": 0}) as nowhere:
            waiting = asyncio.create_task(nowhere.send_and_wait(Record(topic="t", value="x")))
            await asyncio.sleep(0)
            raise ZeroDivisionError
    with pytest.raises(ClientError, match="Purged"):
        await asyncio.wait_for(waiting, WAIT_SECONDS)


async def test_a_cancelled_close_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "GIVE_UP_SECONDS", 0.1)
    nowhere = AsyncProducer("127.0.0.1:1", settings={"log_level": 0})
    await nowhere.send("t", "x")
    closing = asyncio.create_task(nowhere.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(closing, WAIT_SECONDS)


async def test_a_callback_that_raises_does_not_end_the_reports(
    flow: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    raised = threading.Event()

    def report(_: str) -> None:
        if not raised.is_set():
            raised.set()
            raise ZeroDivisionError

    settings = {"stats_cb": report, "statistics.interval.ms": 10}
    async with AsyncProducer(flow.servers, profile="latency", settings=settings) as noisy:
        assert await asyncio.to_thread(raised.wait, WAIT_SECONDS)
        sending = noisy.send_and_wait(Record(topic=flow.sink, value="x"))
        assert (await asyncio.wait_for(sending, WAIT_SECONDS)).offset == 0
    assert "a callback of the producer failed" in caplog.text


def test_every_failure_is_counted_once_whoever_polls_and_asks(flow: Flow) -> None:
    each, threads, told = 2000, 4, 0
    error, message = KafkaError(KafkaError._MSG_TIMED_OUT), cast(confluent_kafka.Message, None)
    with flow.producer("at-least-once") as producer, ThreadPoolExecutor(threads) as pool:

        def fail() -> None:
            for _ in range(each):
                producer.note_delivery(error, message)

        noting = [pool.submit(fail) for _ in range(threads)]
        asked_last = False
        while not asked_last:
            asked_last = all(future.done() for future in noting)
            try:
                producer.raise_failures()
            except DeliveryFailed as failure:
                told += failure.count
    assert told == each * threads
