"""What one client sends, every client receives: bytes, nulls, headers, times, order, in every compression."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from forebay.wire.batch import read_header
from forebay.wire.compression import Codec
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from support.brokers.broker_process import BrokerProcess
from support.clients.kafka_clients import (
    CLIENTS,
    CODECS,
    Client,
    Message,
    contents,
    create_topic,
    each_client,
    need,
)
from support.clients.wire_client import WireClient

each_codec = pytest.mark.parametrize("codec", CODECS)

WRITERS_TOPIC = "written-by-everyone"


def sample(client: Client) -> list[Message]:
    """Every kind of key, value and header that this client can send; long enough to be worth compressing."""
    headers = (("trace", b"1"), ("trace", b"2"), ("other", b"x" * 300))
    if client.null_headers:
        headers += (("empty", None),)  # type: ignore[assignment]
    return [
        Message(b"both", b"key"),
        Message(b"no key"),
        Message(None, b"no value"),
        Message(b"with headers", b"key", headers),
        Message("größer als ASCII".encode(), "schlüssel".encode()),
        *(Message(b"again and again " * 20, b"%d" % n) for n in range(50)),
    ]


@pytest.fixture(scope="module")
def written(broker: BrokerProcess) -> Callable[[str], str]:
    """The topic of a codec, in which each client has a partition; made when first asked for."""
    made: set[str] = set()

    def topic_of(codec: str) -> str:
        topic = f"{WRITERS_TOPIC}-{codec}"
        if codec not in made:
            made.add(codec)
            create_topic(broker.bootstrap, topic, len(CLIENTS))
            for partition, client in enumerate(CLIENTS):
                if client.missing(codec) is None:
                    messages = [message._replace(partition=partition) for message in sample(client)]
                    client.produce(broker.bootstrap, topic, messages, codec=codec)
        return topic

    return topic_of


@each_codec
@pytest.mark.parametrize("writer", range(len(CLIENTS)), ids=[client.name for client in CLIENTS])
@each_client
def test_every_client_reads_what_every_client_wrote(
    broker: BrokerProcess, written: Callable[[str], str], codec: str, writer: int, client: Client
) -> None:
    need(client, codec)
    need(CLIENTS[writer], codec)
    expected = sample(CLIENTS[writer])
    received = client.consume(broker.bootstrap, written(codec), len(expected), partition=writer)
    assert list(contents(received)) == [(m.key, m.value, m.headers) for m in expected]
    assert [found.offset for found in received] == list(range(len(expected)))


@each_codec
@pytest.mark.parametrize("writer", range(len(CLIENTS)), ids=[client.name for client in CLIENTS])
def test_batches_are_stored_as_they_were_compressed(
    broker: BrokerProcess, written: Callable[[str], str], codec: str, writer: int
) -> None:
    need(CLIENTS[writer], codec)
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic=written(codec),
                partitions=[FetchPartition(partition=writer, partition_max_bytes=1 << 20)],
            )
        ],
    )
    with WireClient(broker.bootstrap) as raw:
        (topic,) = raw.call(request, 12).responses
    records = topic.partitions[0].records
    codecs = set()
    while records:
        header = read_header(records)
        codecs.add(header.codec)
        records = records[header.size :]
    # A client leaves a batch plain that compression would only make longer.
    assert codecs - {Codec.NONE} == {Codec[codec.upper()]} - {Codec.NONE}


@each_client
def test_thousands_of_messages_keep_their_order(broker: BrokerProcess, topic: str, client: Client) -> None:
    need(client)
    create_topic(broker.bootstrap, topic, 4)
    values = [[b"%d-%d" % (partition, n) for n in range(1_000)] for partition in range(4)]
    # In rounds of ten per partition, so that the partitions' batches interleave.
    messages = [
        Message(value, partition=partition)
        for start in range(0, 1_000, 10)
        for partition in range(4)
        for value in values[partition][start : start + 10]
    ]
    if client.name == "kcat":  # one process per partition and round would be all this test does
        messages.sort(key=lambda message: message.partition)
    client.produce(broker.bootstrap, topic, messages)
    for partition in range(4):
        received = client.consume(broker.bootstrap, topic, 1_000, partition=partition)
        assert [found.message.value for found in received] == values[partition]
        assert [found.offset for found in received] == list(range(1_000))


@each_client
@each_codec
def test_messages_of_a_megabyte(broker: BrokerProcess, topic: str, client: Client, codec: str) -> None:
    """kcat reads them as text, so they are random digits: compressed they still take half."""
    need(client, codec)
    create_topic(broker.bootstrap, topic, max_message_bytes="4000000")
    chance = random.Random(codec)
    large = [b"%x" % chance.getrandbits(4 * size) for size in (1 << 20, 1_500_000, 1 << 20)]
    client.produce(broker.bootstrap, topic, [Message(value) for value in large], codec=codec)
    received = client.consume(broker.bootstrap, topic, len(large))
    assert [found.message.value for found in received] == large


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@each_client
def test_every_kind_of_acknowledgement(broker: BrokerProcess, topic: str, client: Client, acks: str) -> None:
    need(client)
    create_topic(broker.bootstrap, topic)
    messages = [Message(b"%d" % n) for n in range(300)]
    client.produce(broker.bootstrap, topic, messages, acks=acks)
    received = client.consume(broker.bootstrap, topic, 300)
    assert [found.message.value for found in received] == [message.value for message in messages]


@each_client
def test_the_producers_time_is_kept(broker: BrokerProcess, topic: str, client: Client) -> None:
    need(client)
    create_topic(broker.bootstrap, topic, retention_ms="-1")
    before = int(time.time() * 1000)
    times = [1_500_000_000_000, 1_500_000_000_001, 1_400_000_000_000]
    client.produce(broker.bootstrap, topic, [Message(b"%d" % t, timestamp=t) for t in times])
    received = [found.message.timestamp for found in client.consume(broker.bootstrap, topic, 3)]
    if client.name == "kcat":
        assert all(before <= (t or 0) <= time.time() * 1000 for t in received)
    else:
        assert received == times


@each_client
def test_the_brokers_time_replaces_the_producers(broker: BrokerProcess, topic: str, client: Client) -> None:
    need(client)
    create_topic(broker.bootstrap, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    client.produce(broker.bootstrap, topic, [Message(b"old", timestamp=1_500_000_000_000)] * 3, codec="gzip")
    received = client.consume(broker.bootstrap, topic, 3)
    after = int(time.time() * 1000)
    assert len(received) == 3
    assert all(before <= (found.message.timestamp or 0) <= after for found in received)


@pytest.mark.parametrize("stored", ["uncompressed", "gzip", "zstd"])
def test_a_topic_may_compress_in_its_own_way(broker: BrokerProcess, topic: str, stored: str) -> None:
    create_topic(broker.bootstrap, topic, compression_type=stored)
    messages = [Message(b"the same text again and again" * 10, b"%d" % n) for n in range(100)]
    writer, reader = CLIENTS[0], CLIENTS[2]
    writer.produce(broker.bootstrap, topic, messages, codec="lz4")
    received = reader.consume(broker.bootstrap, topic, 100)
    assert list(contents(received)) == [(m.key, m.value, ()) for m in messages]
