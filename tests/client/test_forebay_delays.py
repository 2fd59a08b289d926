"""Messages for later on a real broker: delivered, replaced, cancelled, in transactions, and awaited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from forebay.client import (
    Admin,
    AsyncProducer,
    ClientError,
    Consumer,
    DeliveryFailed,
    Message,
    Producer,
    Record,
)
from forebay.testing import Broker
from support.brokers.forebay_command import forebay

HOUR_S = 3600
SECONDS_MAX = 120.0

pytestmark = pytest.mark.forebay_topic(config={"forebay.delay.enable": "true"})


@pytest.fixture
def servers(forebay_broker: Broker) -> str:
    return forebay_broker.bootstrap_servers


@pytest.fixture
def producer(servers: str) -> Iterator[Producer]:
    with Producer(servers, profile="latency") as producer:
        yield producer


@pytest.fixture
def consumer(servers: str, forebay_topic: str) -> Iterator[Consumer]:
    with Consumer(servers, forebay_topic, group=forebay_topic, profile="latency") as consumer:
        yield consumer


def pending(servers: str, topic: str) -> int:
    done = forebay("delay", "list", topic, "--json", bootstrap=servers)
    assert done.code == 0, done.err
    count: int = done.json()["pending"]
    return count


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def later(topic: str, value: str, **schedule: object) -> Record:
    return Record(topic=topic, key="k", value=value, headers={"trace": "7"}, **schedule)  # type: ignore[arg-type]


def test_a_message_comes_at_its_time_with_its_key_and_headers(
    producer: Producer, consumer: Consumer, forebay_topic: str
) -> None:
    at = datetime.now(UTC) + timedelta(seconds=1)
    sent = producer.send_and_wait(later(forebay_topic, "at", deliver_at=at))
    found = next(consumer)
    assert datetime.now(UTC) >= at
    assert (found.key, found.value, found.header("trace")) == (b"k", b"at", b"7")
    assert found.header("forebay-schedule-id") == sent.schedule_id.encode()
    assert found.header("forebay-deliver-at") is None
    assert found.offset > sent.offset


def test_messages_come_in_the_order_of_their_times(
    producer: Producer, consumer: Consumer, forebay_topic: str
) -> None:
    begin = datetime.now(UTC) + timedelta(seconds=2)
    for value, wait_ms in (("c", 20), ("a", 0), ("d", 20), ("b", 10)):
        producer.send(forebay_topic, value, deliver_at=begin + timedelta(milliseconds=wait_ms))
    producer.flush()
    if datetime.now(UTC) < begin:  # else some of them were ordinary messages
        assert [next(consumer).value for _ in range(4)] == [b"a", b"b", b"c", b"d"]


def test_a_later_message_replaces_the_one_that_waits_under_the_same_schedule_key(
    producer: Producer, consumer: Consumer, servers: str, forebay_topic: str
) -> None:
    producer.send(forebay_topic, "first", key="k", deliver_after=HOUR_S, schedule_key="s")
    producer.send(forebay_topic, "other", key="k", deliver_after=HOUR_S, schedule_key="t")
    producer.send(forebay_topic, "second", key="k", deliver_after=0.3, schedule_key="s")
    assert next(consumer).value == b"second"
    assert eventually(lambda: pending(servers, forebay_topic) == 1)
    producer.send(forebay_topic, "now", key="k", schedule_key="t")
    assert next(consumer).value == b"now"
    assert eventually(lambda: pending(servers, forebay_topic) == 0)


def test_what_is_cancelled_waits_no_more(
    producer: Producer, consumer: Consumer, servers: str, forebay_topic: str
) -> None:
    producer.send(forebay_topic, "by key", key="k", deliver_after=HOUR_S, schedule_key="s")
    sent = producer.send_and_wait(later(forebay_topic, "by id", deliver_after=HOUR_S))
    assert eventually(lambda: pending(servers, forebay_topic) == 2)
    producer.cancel(forebay_topic, "s", key="k")
    producer.cancel(forebay_topic, schedule_id=sent.schedule_id)
    assert eventually(lambda: pending(servers, forebay_topic) == 0)
    producer.cancel(forebay_topic, "s", key="k")
    producer.send(forebay_topic, "ordinary")
    assert next(consumer).value == b"ordinary", "what cancels is no message"


def test_transactions_schedule_when_they_are_committed(servers: str, forebay_topic: str) -> None:
    with Producer(servers, delivery="exactly-once", profile="latency") as producer:
        with pytest.raises(RuntimeError), producer.transaction():
            producer.send(forebay_topic, "dropped", deliver_after=HOUR_S)
            raise RuntimeError("changed my mind")
        with producer.transaction():
            producer.send(forebay_topic, "kept", deliver_after=HOUR_S)
    assert eventually(lambda: pending(servers, forebay_topic) == 1)


def test_the_broker_says_what_is_wrong(producer: Producer, forebay_topic: str) -> None:
    producer.send(forebay_topic, "too far", deliver_after=timedelta(days=400))
    with pytest.raises(DeliveryFailed) as failure:
        producer.flush()
    assert failure.value.name == "INVALID_RECORD"
    with pytest.raises(ClientError) as refused:
        producer.send_and_wait(
            Record(topic=forebay_topic, headers={"forebay-deliver-after": "soon"}, value="x")
        )
    assert refused.value.name == "INVALID_RECORD"


def test_of_a_mistake_nothing_is_sent(producer: Producer, servers: str, forebay_topic: str) -> None:
    with pytest.raises(ClientError, match="time zone"):
        producer.send(forebay_topic, "v", deliver_at=datetime(2026, 11, 16))
    with pytest.raises(ClientError, match="schedule_id"):
        producer.cancel(forebay_topic)
    producer.flush()
    assert Admin(servers).end_offsets(forebay_topic) == {0: 0}


async def test_all_of_it_awaited(servers: str, forebay_topic: str, consumer: Consumer) -> None:
    async with AsyncProducer(servers, profile="latency") as producer:
        await producer.send(forebay_topic, "never", key="k", deliver_after=HOUR_S, schedule_key="s")
        sent: Message = await producer.send_and_wait(later(forebay_topic, "nor this", deliver_after=HOUR_S))
        await producer.send(forebay_topic, "soon", deliver_after=timedelta(milliseconds=200))
        await producer.cancel(forebay_topic, "s", key="k")
        await producer.cancel(forebay_topic, schedule_id=sent.schedule_id)
        with pytest.raises(ClientError, match="time zone"):
            await producer.send(forebay_topic, "x", deliver_at=datetime(2026, 11, 16))
    assert next(consumer).value == b"soon"
    assert eventually(lambda: pending(servers, forebay_topic) == 0)
