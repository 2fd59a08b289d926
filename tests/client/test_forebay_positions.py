"""Where a consumer begins and goes on, told to librdkafka in offsets; what it repeats is left out."""

from __future__ import annotations

import logging
from typing import Any
from unittest.mock import Mock

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition

from forebay.client import Admin, AsyncConsumer, ClientError, Consumer, Message, Producer, positions
from forebay.client.positions import Positions
from forebay.errors import ConfigError
from forebay.testing import Broker
from support.clients.hooked_kafka import Call, hook_clients
from support.waiting import Patience

GROUPS: dict[str, dict[str, Any]] = {
    "all at once": {},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "assigned by the broker": {"group.protocol": "consumer"},
    "in capitals": {"group.protocol": "CONSUMER"},
}


@pytest.fixture
def servers(forebay_broker: Broker) -> str:
    return forebay_broker.bootstrap_servers


def send(servers: str, topic: str, *values: str) -> None:
    with Producer(servers, profile="latency") as producer:
        for value in values:
            producer.send(topic, value)


def value(message: Message) -> str:
    return (message.value or b"").decode()


@pytest.mark.parametrize("settings", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_librdkafka_never_has_to_look_up_where_to_begin(
    servers: str, forebay_topic: str, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], start: Any
) -> None:
    """It would do so again later, and begin there once more."""
    caplog.set_level(logging.DEBUG, "forebay.client")
    send(servers, forebay_topic, "old")
    found = read_new(servers, forebay_topic, start, {**settings, "debug": "topic"})
    assert found == (["old", "new"] if start == "earliest" else ["new"])
    assert read_new(servers, forebay_topic, start, settings) == ["new"]
    assert "Start consuming" in caplog.text
    assert "querying for logical offset" not in caplog.text


def read_new(servers: str, topic: str, start: Any, settings: dict[str, Any]) -> list[str]:
    """All up to the message that is sent when the consumer has its partition."""
    found: list[str] = []
    with Consumer(servers, topic, group=topic, profile="latency", start=start, settings=settings) as consumer:
        patience = Patience("the new message is read")
        while not consumer.raw.assignment():
            patience.check(found)
            found += [value(each) for each in consumer.take(10, 0.05)]
        send(servers, topic, "new")
        while "new" not in found:
            patience.check(found)
            found += [value(each) for each in consumer.take(10, 0.05)]
        assert consumer.commit()
    return found


@pytest.mark.parametrize("settings", GROUPS.values(), ids=GROUPS)
def test_what_was_committed_does_not_go_back_when_the_consumer_is_closed(
    servers: str, forebay_topic: str, settings: dict[str, Any]
) -> None:
    """The messages before the last one were written down as done, and librdkafka commits that at the end."""
    send(servers, forebay_topic, "a", "b", "c")
    found: list[Message] = []
    with Consumer(
        servers, forebay_topic, group=forebay_topic, profile="latency", start="earliest", settings=settings
    ) as consumer:
        patience = Patience("two messages are read, one after the other")
        while len(found) < 2:
            patience.check(found)
            found += consumer.take(1, 0.5)
        assert consumer.commit()
    plain = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": forebay_topic})
    (committed,) = plain.committed([TopicPartition(forebay_topic, 0)], 60)
    plain.close()
    assert committed.offset == 2


def test_a_message_that_librdkafka_returns_again_is_left_out(
    servers: str, forebay_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does when a rebalance pauses the partition at the wrong moment, or a late look-up begins anew."""
    returned: list[int] = []

    def around(call: Call) -> Any:
        result = call.run()
        if call.name == "Consumer.poll" and result is not None:
            returned.append(result.offset())
            if len(returned) == 4:
                call.target.seek(TopicPartition(forebay_topic, 0, 0))
        return result

    send(servers, forebay_topic, *"abcdef")
    hook_clients(monkeypatch, around)
    with Consumer(servers, forebay_topic, group=forebay_topic, profile="latency", batch_max=1) as consumer:
        assert [value(next(consumer)) for _ in range(6)] == [*"abcdef"]
    assert returned[4] == 0


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(servers: str, forebay_topic: str) -> None:
    admin, quick = Admin(servers), {"topic.metadata.refresh.interval.ms": 100}
    send(servers, forebay_topic, *"abcd")
    with Consumer(servers, forebay_topic, group=forebay_topic, profile="latency", settings=quick) as consumer:
        assert [value(next(consumer)) for _ in range(4)] == [*"abcd"]
        admin.delete_topic(forebay_topic)
        patience = Patience("the topic is gone")
        while forebay_topic in admin.topics():
            patience.check()
            consumer.poll(0.05)
        admin.create_topic(forebay_topic, partitions=1)
        send(servers, forebay_topic, "x", "y")
        assert [value(next(consumer)) for _ in range(2)] == ["x", "y"]


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once", "exactly-once"])
def test_seek_goes_to_an_offset_whatever_waits(servers: str, forebay_topic: str, delivery: Any) -> None:
    send(servers, forebay_topic, *"abcdef")
    with Consumer(
        servers, forebay_topic, group=forebay_topic, delivery=delivery, profile="latency"
    ) as consumer:
        assert [value(next(consumer)) for _ in range(3)] == [*"abc"]
        consumer.seek(forebay_topic, 0, 5)
        assert value(next(consumer)) == "f"
        consumer.seek(forebay_topic, 0, 1)
        assert [value(next(consumer)) for _ in range(5)] == [*"bcdef"]


def test_seek_where_it_could_not_go_is_an_error(servers: str, forebay_topic: str) -> None:
    """And not forgotten when the partition is assigned."""
    send(servers, forebay_topic, *"ab")
    with Consumer(servers, forebay_topic, group=forebay_topic, profile="latency") as consumer:
        with pytest.raises(ClientError, match="not assigned"):
            consumer.seek(forebay_topic, 0, 1)
        assert value(next(consumer)) == "a"
        with pytest.raises(ClientError, match="not assigned"):
            consumer.seek(forebay_topic, 1, 0)
        with pytest.raises(ConfigError, match="0 or more"):
            consumer.seek(forebay_topic, 0, -2)
        assert value(next(consumer)) == "b"


async def test_seek_for_asyncio(servers: str, forebay_topic: str) -> None:
    send(servers, forebay_topic, *"abc")
    async with AsyncConsumer(servers, forebay_topic, group=forebay_topic, profile="latency") as consumer:
        assert value(await anext(consumer)) == "a"
        await consumer.seek(forebay_topic, 0, 2)
        assert value(await anext(consumer)) == "c"


def test_what_could_not_be_looked_up_is_looked_up_again(
    servers: str, forebay_topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    timeouts = iter([0.0])

    def around(call: Call) -> Any:
        if call.name == "Consumer.committed":
            call.options["timeout"] = next(timeouts, call.options["timeout"])
        return call.run()

    send(servers, forebay_topic, "a")
    hook_clients(monkeypatch, around)
    with Consumer(servers, forebay_topic, group=forebay_topic, profile="latency") as consumer:
        assert value(next(consumer)) == "a"
    assert "where to begin in 1 partitions is not known yet" in caplog.text


def test_an_open_transaction_of_a_program_that_has_died_is_waited_for(
    servers: str, forebay_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds back the group's offset until it times out: that is no error of the next member."""
    monkeypatch.setattr(positions, "_LOOKUP_SECONDS", 1.0)
    send(servers, forebay_topic, *"ab")
    settings = {"delivery": "exactly-once", "profile": "latency"}
    with Producer(servers, transactional_id=forebay_topic, **settings) as producer:  # type: ignore[arg-type]
        with Consumer(servers, forebay_topic, group=forebay_topic, **settings) as dead:  # type: ignore[arg-type]
            producer.transactions.begin()
            assert value(next(dead)) == "a"
            producer.raw.send_offsets_to_transaction(*dead.progress())
        with Consumer(servers, forebay_topic, group=forebay_topic, **settings) as consumer:  # type: ignore[arg-type]
            patience = Patience("the consumer gets its partition")
            while not consumer.raw.assignment():
                patience.check()
                assert consumer.poll(0.05) is None
            assert consumer.poll(0.05) is None
            producer.transactions.abort()
            assert value(next(consumer)) == "a"


def test_a_partition_that_cannot_be_looked_up_does_not_hold_up_the_others(
    servers: str, forebay_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Admin(servers).add_partitions(forebay_topic, 2)
    monkeypatch.setattr(positions, "_AGAIN_SECONDS", 0.0)
    has_leader = False

    def around(call: Call) -> Any:
        answers = call.run()
        if call.name == "Consumer.offsets_for_times" and not has_leader:
            error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
            return [each if each.partition == 0 else Mock(error=error) for each in answers]
        return answers

    for partition in (0, 1):
        with Producer(servers, profile="latency") as producer:
            producer.send(forebay_topic, str(partition), partition=partition)
    hook_clients(monkeypatch, around)
    with Consumer(servers, forebay_topic, group=forebay_topic, profile="latency") as consumer:
        assert value(next(consumer)) == "0"
        assert consumer.poll(0.3) is None
        has_leader = True
        assert value(next(consumer)) == "1"


def test_what_a_later_leader_wrote_below_the_position_is_new() -> None:
    """The log was cut, and is long again: librdkafka finds out by the epochs, and goes back."""

    def message(offset: int, epoch: int) -> Message:
        return Message(topic="t", partition=0, offset=offset, timestamp_ms=0, leader_epoch=epoch)

    raw = Mock(spec=confluent_kafka.Consumer)
    raw.get_watermark_offsets.return_value = (0, 100)
    noted = Positions(raw, start="earliest")
    noted.end_fetch(noted.accept([message(8, 3), message(9, 3)]))
    assert noted.accept([message(5, 3), message(6, 2)]) == []
    found = noted.accept([message(5, 4), message(6, 4), message(5, 4)])
    assert found == [message(5, 4), message(6, 4)]
    noted.end_fetch(found)
    assert noted.accept([message(6, 4), message(7, 4)]) == [message(7, 4)]


def test_positions_are_noted_without_librdkafka() -> None:
    noted = Positions(raw=None, start="earliest")  # type: ignore[arg-type]
    noted.read_again({("t", 0): 5})
    assert noted.accept([Message(topic="t", partition=0, offset=5, timestamp_ms=0)]) == []
    noted.take_away([("t", 0)])
    (kept,) = noted.accept([Message(topic="t", partition=0, offset=9, timestamp_ms=0)])
    assert kept.offset == 9
