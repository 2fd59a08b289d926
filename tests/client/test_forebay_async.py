"""The async clients: the same promises, and what only asyncio can do to them."""

from __future__ import annotations

import asyncio
import threading

import confluent_kafka
import pytest

from forebay.client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    Delivery,
    DeliveryFailed,
    Message,
    Record,
    messages,
    process_async,
)
from forebay.testing import Broker


@pytest.fixture
def servers(forebay_broker: Broker) -> str:
    return forebay_broker.bootstrap_servers


def producer_of(servers: str, delivery: Delivery = "at-least-once", name: str | None = None) -> AsyncProducer:
    return AsyncProducer(servers, delivery=delivery, profile="latency", transactional_id=name)


def consumer_of(
    servers: str, topic: str, delivery: Delivery = "at-least-once", group: str = ""
) -> AsyncConsumer:
    return AsyncConsumer(servers, topic, group=group or topic, delivery=delivery, profile="latency")


async def fill(servers: str, topic: str, count: int) -> None:
    async with AsyncProducer(servers, delivery="at-most-once", acks=1, profile="latency") as producer:
        for number in range(count):
            await producer.send(topic, str(number))


async def read(consumer: AsyncConsumer, count: int) -> list[str]:
    return [((await anext(consumer)).value or b"").decode() for _ in range(count)]


def digits(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


async def test_acknowledges_come_back_with_offsets(servers: str, forebay_topic: str) -> None:
    async with producer_of(servers) as producer:
        records = [Record(topic=forebay_topic, value=str(number)) for number in range(100)]
        sent = await asyncio.gather(*map(producer.send_and_wait, records))
    assert [message.offset for message in sent] == list(range(100))


async def test_a_poll_returns_the_message_that_it_has_waited_for(servers: str, forebay_topic: str) -> None:
    async with consumer_of(servers, forebay_topic) as consumer, producer_of(servers) as producer:
        await fill(servers, forebay_topic, 1)
        assert await read(consumer, 1) == ["0"]
        waiting = asyncio.create_task(consumer.poll(60.0))
        await asyncio.sleep(0.35)  # longer than a consumer waits before it writes down what is done
        await producer.send(forebay_topic, "1")
        message = await waiting
    assert message is not None
    assert message.value == b"1"


async def test_a_report_that_arrives_while_the_loop_takes_the_others_wakes_it_again(
    servers: str, forebay_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = messages.from_kafka
    second_arrives, first_is_taken = threading.Event(), threading.Event()

    def convert_in_turn(raw: confluent_kafka.Message) -> Message:
        if raw.value() == b"second":
            second_arrives.set()
            assert first_is_taken.wait(60)
        return convert(raw)

    monkeypatch.setattr(messages, "from_kafka", convert_in_turn)
    async with producer_of(servers) as producer:
        first, second = (
            asyncio.create_task(producer.send_and_wait(Record(topic=forebay_topic, value=value)))
            for value in ("first", "second")
        )
        first.add_done_callback(lambda _: first_is_taken.set())
        await asyncio.sleep(0)
        # The loop stands still until the first report waits for it, and the second one is on its way.
        assert second_arrives.wait(60)
        await asyncio.wait_for(asyncio.gather(first, second), 60)


@pytest.mark.forebay_topic(config={"max.message.bytes": "1000"})
async def test_failures_come_to_light(servers: str, forebay_topic: str) -> None:
    async with producer_of(servers) as producer:
        with pytest.raises(ClientError, match="size"):
            await producer.send_and_wait(Record(topic=forebay_topic, value="x" * 5000))
        await producer.send(forebay_topic, "x" * 5000)
        with pytest.raises(DeliveryFailed):
            await producer.flush()


async def test_a_full_queue_makes_send_wait(servers: str, forebay_topic: str) -> None:
    small = {"queue.buffering.max.messages": 10}
    async with AsyncProducer(servers, profile="latency", settings=small) as producer:
        for number in range(300):
            await producer.send(forebay_topic, str(number))
    assert await AsyncAdmin(servers).end_offsets(forebay_topic) == {0: 300}


async def test_the_one_in_hand_comes_again_and_the_done_ones_do_not(servers: str, forebay_topic: str) -> None:
    await fill(servers, forebay_topic, 10)
    async with consumer_of(servers, forebay_topic) as consumer:
        assert await read(consumer, 4) == digits(0, 3)
    async with consumer_of(servers, forebay_topic) as consumer:
        assert await read(consumer, 2) == ["3", "4"]
        await consumer.commit()
    assert await AsyncAdmin(servers).committed(forebay_topic) == {(forebay_topic, 0): 5}


async def test_a_cancelled_wait_loses_no_message(servers: str, forebay_topic: str) -> None:
    async with consumer_of(servers, forebay_topic) as consumer:
        waits = 0
        while waits < 20:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 0.01)
            waits += 1
        await fill(servers, forebay_topic, 200)
        values: list[str] = []
        while len(values) < 200:
            try:
                message = await asyncio.wait_for(anext(consumer), 0.002)
            except TimeoutError:
                continue
            values.append((message.value or b"").decode())
    assert values == digits(0, 199)


async def test_the_loop_runs_on_while_a_consumer_waits(servers: str, forebay_topic: str) -> None:
    async with consumer_of(servers, forebay_topic) as consumer:
        waiting = asyncio.create_task(anext(consumer))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not waiting.done()
        await fill(servers, forebay_topic, 1)
        assert (await waiting).value == b"0"


async def test_transactions_commit_and_roll_back(servers: str, forebay_topic: str) -> None:
    async with producer_of(servers, "exactly-once", forebay_topic) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send(forebay_topic, "aborted")
                raise ZeroDivisionError
        async with producer.transaction():
            await producer.send(forebay_topic, "committed")
    async with consumer_of(servers, forebay_topic) as consumer:
        assert await read(consumer, 1) == ["committed"]


async def test_a_cancelled_transaction_is_rolled_back(servers: str, forebay_topic: str) -> None:
    async with producer_of(servers, "exactly-once", forebay_topic) as producer:
        started = asyncio.Event()

        async def never_ends() -> None:
            async with producer.transaction():
                await producer.send(forebay_topic, "cancelled")
                started.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(never_ends())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction():
            await producer.send(forebay_topic, "after")
    async with consumer_of(servers, forebay_topic) as consumer:
        assert await read(consumer, 1) == ["after"]


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once", "exactly-once"])
async def test_process_copies_everything_when_nothing_breaks(
    servers: str, forebay_topic: str, delivery: Delivery
) -> None:
    sink, seen = f"{forebay_topic}-sink", 0
    await fill(servers, forebay_topic, 100)

    async def transform(message: Message) -> Record:
        nonlocal seen
        seen += 1
        await asyncio.sleep(0)
        return Record(topic=sink, value=message.value)

    name = sink if delivery == "exactly-once" else None
    async with (
        producer_of(servers, delivery, name) as producer,
        consumer_of(servers, forebay_topic, delivery) as consumer,
    ):
        done = await process_async(consumer, producer, transform, batch_max=30, stop=lambda: seen == 100)
    assert done == 100
    async with consumer_of(servers, sink) as consumer:
        assert await read(consumer, 100) == digits(0, 99)
    assert await AsyncAdmin(servers).lag(forebay_topic) == {(forebay_topic, 0): 0}
