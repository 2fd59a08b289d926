"""Bytes that are no requests, and requests in odd pieces: one connection pays, the broker goes on."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import pytest

from forebay.errors import ErrorCode
from forebay.wire.fields import Request
from forebay.wire.messages import api
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.brokers.served_apis import ENDPOINTS
from support.clients.wire_client import (
    EARLIEST,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    create_topic,
    fetch,
    frame,
    list_offsets,
    produce,
    read_all,
)

MUTATIONS = 1000


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    """A well-behaved client beside the one that is not."""
    with WireClient(broker.bootstrap) as client:
        yield client
        assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE


def length(size: int) -> bytes:
    return struct.pack(">i", size)


GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS hello": bytes.fromhex("1603010200010001fc0303") + bytes(200),
    "random": random.Random(1).randbytes(5000),
    "negative length": length(-1) + bytes(20),
    "least length": length(-(2**31)),
    "no length": length(0),
    "shorter than a header": length(7) + bytes(7),
    "largest length": length(2**31 - 1) + bytes(20),
    "over the limit by one": length(104857600 + 1),
    "header only": length(8) + struct.pack(">hhi", 3, 1, 1),
    "client id beyond the frame": length(10) + struct.pack(">hhih", 3, 1, 1, 5000),
    "negative client id": length(10) + struct.pack(">hhih", 3, 1, 1, -2),
    "client id not UTF-8": length(12) + struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe",
    "array of two billion": length(14) + struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_closes_the_connection(broker: BrokerProcess, client: WireClient, garbage: bytes) -> None:
    with WireClient(broker.bootstrap) as sender:
        sender.socket.sendall(garbage)
        assert sender.is_closed()


def test_the_limit_of_a_request_is_the_configured_one(start_broker: StartBroker) -> None:
    broker = start_broker("socket.request.max.bytes=20000")
    with WireClient(broker.bootstrap) as sender:
        create(sender, "limited")
        overhead = len(frame(produce("limited", batch(b"")), PRODUCE)) - 4
        fits = frame(produce("limited", batch(bytes(20000 - overhead - 10))), PRODUCE)
        assert 19980 <= len(fits) - 4 <= 20000
        assert append(sender, "limited", batch(bytes(20000 - overhead - 10))).error_code == ErrorCode.NONE
        sender.post(produce("limited", batch(bytes(20001))), PRODUCE)
        assert sender.is_closed()


def test_a_request_byte_by_byte(broker: BrokerProcess, client: WireClient, topic: str) -> None:
    create(client, topic)
    with WireClient(broker.bootstrap) as sender:
        sender.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in sender.frame(produce(topic, batch(b"slowly")), PRODUCE):
            sender.socket.sendall(bytes([byte]))
        (partition,) = sender.read().responses[0].partition_responses
        assert (partition.error_code, partition.base_offset) == (0, 0)
    assert read_all(client, topic) == [(0, b"slowly")]


def test_requests_cut_at_every_position(broker: BrokerProcess, client: WireClient, topic: str) -> None:
    """Two requests in two pieces; each cut is on a connection of its own, and all are open at once."""
    create(client, topic)
    size = len(frame(produce(topic, batch(b"x")), PRODUCE) + frame(MetadataRequest(topics=[]), 9))
    senders = [WireClient(broker.bootstrap) for _ in range(size)]
    second_halves = []
    for cut, sender in enumerate(senders):
        both = sender.frame(produce(topic, batch(b"x")), PRODUCE) + sender.frame(
            MetadataRequest(topics=[]), 9
        )
        assert len(both) == size
        sender.socket.sendall(both[:cut])
        second_halves.append(both[cut:])
    assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE  # the first halves have arrived
    for sender, rest in zip(senders, second_halves, strict=True):
        sender.socket.sendall(rest)
    for sender in senders:
        assert sender.read().responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert sender.read().error_code == ErrorCode.NONE
        sender.close()
    assert [offset for offset, _ in read_all(client, topic)] == list(range(size))


def test_many_frames_in_one_packet_and_one_frame_in_many(client: WireClient, topic: str) -> None:
    create(client, topic)
    small = [MetadataRequest(topics=[]) if n % 3 else produce(topic, batch(b"s")) for n in range(600)]
    client.socket.sendall(b"".join(client.frame(request, 9) for request in small))
    large = bytes(900_000)
    client.post(produce(topic, batch(large)), PRODUCE)
    client.post(MetadataRequest(topics=[]), 9)
    answers = [client.read() for _ in range(len(small) + 2)]
    offsets = [
        answer.responses[0].partition_responses[0].base_offset
        for answer in answers
        if hasattr(answer, "responses")
    ]
    assert offsets == list(range(201))
    assert read_all(client, topic)[-1] == (200, large)


def test_frames_of_growing_size_cut_anywhere(client: WireClient, topic: str) -> None:
    """The receive buffer is borrowed, grown, shared and given back in every order that a stream can cause."""
    create(client, topic, max_message_bytes="5000000")
    chance = random.Random(7)
    sizes = [0, 1, 60_000, 65_530, 65_536, 70_000, 262_144, 300_000, 1_000_000, 3_000_000, 10, 65_400, 5]
    values = [chance.randbytes(size) for size in sizes]
    stream = b"".join(client.frame(produce(topic, batch(value)), PRODUCE) for value in values)
    position = 0
    while position < len(stream):
        step = chance.choice([1, 3, 4, 5, 100, 4096, 65_536, 500_000])
        client.socket.sendall(stream[position : position + step])
        position += step
    for number in range(len(values)):
        (partition,) = client.read().responses[0].partition_responses
        assert (partition.error_code, partition.base_offset) == (0, number)
    assert [value for _, value in read_all(client, topic)] == values


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_client_that_goes_away_in_the_middle_of_a_request_leaves_nothing(
    broker: BrokerProcess, client: WireClient, topic: str, share: float
) -> None:
    create(client, topic)
    whole = frame(produce(topic, batch(bytes(200_000))), PRODUCE)
    with WireClient(broker.bootstrap) as sender:
        sender.socket.sendall(whole[: int(len(whole) * share)])
    assert append(client, topic, batch(b"after")).base_offset == 0


def test_what_came_before_garbage_is_kept_as_it_was_sent(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    """A request in the same packet as garbage was whole: it must not be lost, nor mixed with later bytes."""
    create(client, topic)
    for number in range(20):
        with WireClient(broker.bootstrap) as sender:
            good = sender.frame(produce(topic, batch(b"good-%d" % number)), PRODUCE)
            sender.socket.sendall(good + length(-5) + b"garbage")
            assert sender.is_closed() or sender.read() is not None
        # Whatever the broker reads next must not end up in the log in place of the batch.
        assert append(client, topic, batch(b"next-%d" % number, b"z" * 300)).error_code == ErrorCode.NONE
    found = [value for _, value in read_all(client, topic)]
    expected = [v for n in range(20) for v in (b"good-%d" % n, b"next-%d" % n, b"z" * 300)]
    assert found == expected


def requests_to_mutate(topic: str) -> list[tuple[Request, int]]:
    found: list[tuple[Request, int]] = [
        (produce(topic, batch(b"a", b"b")), 3),
        (produce(topic, batch(b"a", b"b")), 9),
        (produce(topic, batch(b"a", b"b"), acks=-1), 12),
        (fetch(topic), 4),
        (fetch(topic), 12),
        (fetch(bytes(range(16))), 17),
        (list_offsets(topic, EARLIEST), 1),
        (list_offsets(topic, 12345), 11),
        (MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False), 12),
        (create_topic(topic), 5),
    ]
    found += [
        (api(endpoint.api_key).request(), version)
        for endpoint in ENDPOINTS.values()
        for version in (endpoint.min_version, endpoint.max_version)
        if endpoint.api_key != 0
    ]
    return found


def mutated(chance: random.Random, whole: bytes) -> bytes:
    """The body changed here and there, usually under a length that still fits it."""
    body = bytearray(whole[4:])
    for _ in range(chance.randint(1, 6)):
        position = chance.randrange(len(body))
        kind = chance.randrange(5)
        if kind == 0:
            body[position] ^= 1 << chance.randrange(8)
        elif kind == 1:
            body[position] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif kind == 2 and len(body) > 12:
            del body[position : position + chance.randint(1, 8)]
        elif kind == 3:
            body[position:position] = chance.randbytes(chance.randint(1, 8))
        else:
            del body[max(position, 8) :]
    size = len(body) if chance.random() < 0.9 else chance.randint(-10, 2**31 - 1)
    return length(size) + bytes(body)


def test_mutated_requests_never_kill_the_broker_nor_hang_it(start_broker: StartBroker) -> None:
    broker = start_broker("auto.create.topics.enable=false")
    chance = random.Random(20240229)
    with WireClient(broker.bootstrap) as client:
        create(client, "fuzzed")
        templates = [frame(request, version) for request, version in requests_to_mutate("fuzzed")]
        for number in range(MUTATIONS):
            with WireClient(broker.bootstrap) as sender:
                sender.socket.sendall(mutated(chance, chance.choice(templates)))
                sender.socket.shutdown(socket.SHUT_WR)
                sender.read_to_end()  # an answer perhaps, and the end in any case
            if number % 50 == 0:
                assert client.call(MetadataRequest(topics=[]), 9).error_code == ErrorCode.NONE
                assert append(client, "fuzzed", batch(b"sane")).error_code == ErrorCode.NONE
        assert client.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
        sane = [value for _, value in read_all(client, "fuzzed") if value == b"sane"]
        assert len(sane) == MUTATIONS // 50
    assert "Traceback" not in broker.log()
    assert broker.stop() == 0
