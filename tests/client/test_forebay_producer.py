"""The producer on a real broker: what arrives, and how failures come to light."""

from __future__ import annotations

import pytest

from forebay.client import Admin, ClientError, Consumer, DeliveryFailed, Producer, Record
from forebay.testing import Broker

pytestmark = pytest.mark.usefixtures("forebay_topic")


def test_what_is_sent_is_what_is_read(forebay_broker: Broker, forebay_topic: str) -> None:
    servers = forebay_broker.bootstrap_servers
    with Producer(servers, profile="latency") as producer:
        producer.send(forebay_topic, "v", key="k", headers={"a": "1", "b": None}, timestamp_ms=1234)
        sent = producer.send_and_wait(
            Record(topic=forebay_topic, value=None, headers=[("a", b"1"), ("a", b"2")])
        )
    assert (sent.partition, sent.offset) == (0, 1)
    with Consumer(servers, forebay_topic, group=forebay_topic) as consumer:
        first, second = next(consumer), next(consumer)
    assert (first.topic, first.key, first.value, first.timestamp_ms) == (forebay_topic, b"k", b"v", 1234)
    assert first.headers == (("a", b"1"), ("b", None))
    assert second.value is None
    assert second.header("a") == b"2"
    assert second.header("none") is None


@pytest.mark.forebay_topic(partitions=4)
def test_keys_go_where_java_clients_send_them(forebay_broker: Broker, forebay_topic: str) -> None:
    # Whoever sends a key, in whatever language, must find the same home for it.
    keys = ["ada", "bob", "eve", "zoe", "grace", "linus"]
    with Producer(forebay_broker.bootstrap_servers, profile="latency") as producer:
        found = {
            key: producer.send_and_wait(Record(topic=forebay_topic, key=key, value="x")).partition
            for key in keys
        }
    assert found == {key: _murmur2(key.encode()) % 4 for key in keys}


def _murmur2(data: bytes) -> int:
    """Kafka's default partitioner, as the protocol guide describes it."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for i in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ (k >> 24)) * m & mask)
    tail = data[len(data) - len(data) % 4 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return (h ^ (h >> 15)) & 0x7FFFFFFF


@pytest.mark.forebay_topic(config={"max.message.bytes": "1000"})
def test_failures_come_to_light_in_flush_and_only_once(forebay_broker: Broker, forebay_topic: str) -> None:
    with Producer(forebay_broker.bootstrap_servers, profile="latency") as producer:
        producer.send(forebay_topic, "x" * 5000)
        with pytest.raises(DeliveryFailed) as failure:
            producer.flush()
        assert (failure.value.count, failure.value.name) == (1, "MSG_SIZE_TOO_LARGE")
        producer.send(forebay_topic, "fits")
        producer.flush()
        with pytest.raises(ClientError):
            producer.send_and_wait(Record(topic=forebay_topic, value="x" * 5000))
    assert Admin(forebay_broker.bootstrap_servers).end_offsets(forebay_topic) == {0: 1}


@pytest.mark.forebay_topic(config={"max.message.bytes": "1000"})
def test_close_tells_of_failures_too(forebay_broker: Broker, forebay_topic: str) -> None:
    producer = Producer(forebay_broker.bootstrap_servers, profile="latency")
    producer.send(forebay_topic, "x" * 5000)
    with pytest.raises(DeliveryFailed):
        producer.close()
    producer.close()
    with pytest.raises(ClientError, match="closed"):
        producer.send(forebay_topic, "late")


@pytest.mark.forebay_topic(config={"max.message.bytes": "1000"})
def test_at_most_once_hears_of_refusals_with_acks_1_only(forebay_broker: Broker, forebay_topic: str) -> None:
    servers = forebay_broker.bootstrap_servers
    with Producer(servers, delivery="at-most-once", profile="latency") as producer:
        assert producer.send_and_wait(Record(topic=forebay_topic, value="x" * 5000)).offset == -1
    with Producer(servers, delivery="at-most-once", acks=1, profile="latency") as producer:
        with pytest.raises(ClientError, match="size"):
            producer.send_and_wait(Record(topic=forebay_topic, value="x" * 5000))
        assert producer.send_and_wait(Record(topic=forebay_topic, value="fits")).offset == 0


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
@pytest.mark.parametrize("profile", ["throughput", "latency"])
def test_many_messages_arrive_in_order(
    forebay_broker: Broker, forebay_topic: str, delivery: str, profile: str
) -> None:
    servers, count = forebay_broker.bootstrap_servers, 3000
    with Producer(servers, delivery=delivery, profile=profile) as producer:  # type: ignore[arg-type]
        for number in range(count):
            producer.send(forebay_topic, str(number))
    with Consumer(servers, forebay_topic, group=forebay_topic) as consumer:
        values = [next(consumer).value for _ in range(count)]
    assert values == [str(number).encode() for number in range(count)]


def test_a_full_queue_makes_send_wait(forebay_broker: Broker, forebay_topic: str) -> None:
    small = {"queue.buffering.max.messages": 10}
    with Producer(forebay_broker.bootstrap_servers, profile="latency", settings=small) as producer:
        for number in range(500):
            producer.send(forebay_topic, str(number))
    assert Admin(forebay_broker.bootstrap_servers).end_offsets(forebay_topic) == {0: 500}
