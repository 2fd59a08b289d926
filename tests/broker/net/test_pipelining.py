"""Answers come in the order of their requests, whatever each of them has to wait for."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ErrorCode
from forebay.wire.fields import Request
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.brokers.local_broker import local_broker
from support.brokers.tls_files import TlsFiles
from support.clients.wire_client import (
    LATEST,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    create_topic,
    fetch,
    list_offsets,
    only_partition,
    produce,
    read_all,
    values_of,
)

HOURS_MS = 7_200_000


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def test_answers_wait_for_their_turn(broker: BrokerProcess, client: WireClient, topic: str) -> None:
    """The first waits for the disk, the second for data, and the third could be answered at once."""
    create(client, topic, partitions=2)
    with WireClient(broker.bootstrap) as asker:
        asker.post(produce(topic, batch(b"one"), acks=-1, partition=1), PRODUCE)
        asker.post(fetch(topic, 0, max_wait_ms=20_000), 12)
        asker.post(fetch(topic, 0, partitions=(1,), max_wait_ms=20_000), 12)
        assert only_partition(asker.read()).base_offset == 0
        assert asker.is_silent()
        append(client, topic, batch(b"two"))
        assert values_of(only_partition(asker.read()).records) == [(0, b"two")]
        assert values_of(only_partition(asker.read()).records) == [(0, b"one")]


def test_a_fetch_that_waits_is_answered_when_something_else_comes_behind_it(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    create(client, topic)
    for together in (True, False):
        with WireClient(broker.bootstrap) as asker:
            asker.post(fetch(topic, 0, max_wait_ms=HOURS_MS), 12)
            if not together:
                assert asker.is_silent()
            asker.post(MetadataRequest(topics=[]), 12)
            assert only_partition(asker.read()).records == b""
            assert asker.read().error_code == ErrorCode.NONE


def test_a_fetch_that_waits_is_answered_early_when_a_large_request_comes_in_pieces(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    create(client, topic)
    with WireClient(broker.bootstrap) as asker:
        asker.post(fetch(topic, 0, max_wait_ms=HOURS_MS), 12)
        assert asker.is_silent()
        frame = asker.frame(produce(topic, batch(bytes(900_000))), PRODUCE)
        for piece in (frame[:3], frame[3:5]):
            asker.socket.sendall(piece)
            assert asker.is_silent()
        asker.socket.sendall(frame[5:700])
        asker.socket.sendall(frame[700:])
        assert only_partition(asker.read()).records == b""
        assert only_partition(asker.read()).base_offset == 0


def test_a_fetch_that_waits_is_answered_early_over_tls_too(tmp_path: Path) -> None:
    """There a record may hold several requests, which the broker has read when the first one waits."""
    files = TlsFiles(tmp_path)
    context = ssl.create_default_context(cafile=files.ca)
    with (
        local_broker(tmp_path / "data", files.broker_settings()) as broker,
        WireClient(broker.bootstrap, tls=context) as client,
    ):
        create(client, "t")
        fetching = client.frame(fetch("t", 0, max_wait_ms=HOURS_MS), 12)
        frames = [fetching, client.frame(produce("t", batch(bytes(100_000))), PRODUCE)]
        client.socket.sendall(b"".join(frames))
        assert only_partition(client.read()).records == b""
        assert only_partition(client.read()).base_offset == 0
        client.post(fetch("t", 1, max_wait_ms=HOURS_MS), 12)
        client.post(MetadataRequest(topics=[]), 12)
        assert only_partition(client.read()).records == b""
        assert client.read().error_code == ErrorCode.NONE


def random_request(chance: random.Random, topic: str, number: int) -> tuple[Request, int]:
    kind = chance.randrange(9)
    if kind < 4:
        data = batch(*[b"%d" % number] * chance.randint(1, 4), codec=chance.choice([0, 1, 2, 3, 4]))
        return produce(
            topic, data, acks=chance.choice([1, -1]), partition=chance.randrange(3)
        ), chance.randint(7, 12)
    if kind == 4:
        wait_ms = chance.choice([0, 1, 5])
        return fetch(topic, 0, partitions=(0, 1, 2), max_wait_ms=wait_ms, min_bytes=1 << 30), chance.randint(
            4, 12
        )
    if kind == 5:
        return list_offsets(topic, LATEST, partition=chance.randrange(3)), chance.randint(1, 11)
    if kind == 6:
        return MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), chance.randint(1, 13)
    if kind == 7:
        return InitProducerIdRequest(transactional_id=None), chance.randint(0, 5)
    return ApiVersionsRequest(), chance.randint(0, 4)


def error_of(answer: Any) -> Any:
    if hasattr(answer, "responses"):
        return max(
            partition.error_code
            for topic in answer.responses
            for partition in (
                topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
            )
        )
    return getattr(answer, "error_code", 0)


@pytest.mark.parametrize("seed", range(3))
def test_mixed_requests_pipelined(client: WireClient, topic: str, seed: int) -> None:
    """WireClient.read fails on an answer that is out of its turn or of the wrong kind."""
    create(client, topic, partitions=3)
    chance = random.Random(seed)
    appended = 0
    for number in range(400):
        request, version = random_request(chance, topic, number)
        appended += getattr(request, "API_KEY", -1) == 0
        client.post(request, version)
        if chance.random() < 0.02:
            assert error_of(client.read()) == ErrorCode.NONE
    while client.unanswered:
        assert error_of(client.read()) == ErrorCode.NONE
    distinct = {value for partition in range(3) for _, value in read_all(client, topic, partition)}
    assert len(distinct) == appended


@pytest.mark.parametrize("inflight", [1, 2])
def test_few_requests_in_flight_lose_none(start_broker: StartBroker, inflight: int) -> None:
    """Reading stops and goes on with every answer; what lies in the buffer meanwhile is not forgotten."""
    broker = start_broker(f"forebay.connection.max.inflight.requests={inflight}")
    with WireClient(broker.bootstrap) as client:
        create(client, "narrow", partitions=3)
        chance = random.Random(inflight)
        frames = [client.frame(*random_request(chance, "narrow", number)) for number in range(300)]
        stream = b"".join(frames)
        position = 0
        while position < len(stream):
            step = chance.choice([1, 50, 5000])
            client.socket.sendall(stream[position : position + step])
            position += step
        for _ in frames:
            assert error_of(client.read()) == ErrorCode.NONE


@pytest.mark.parametrize("acks", [1, -1])
def test_produce_thousands_deep(client: WireClient, topic: str, acks: int) -> None:
    """More in flight than the broker awaits answers for at a time."""
    create(client, topic)
    count = 3000
    client.socket.sendall(
        b"".join(client.frame(produce(topic, batch(b"%d" % n), acks=acks), PRODUCE) for n in range(count))
    )
    assert [only_partition(client.read()).base_offset for _ in range(count)] == list(range(count))
    assert [value for _, value in read_all(client, topic)] == [b"%d" % n for n in range(count)]


def test_several_partitions_in_one_request_answer_each_for_itself(client: WireClient, topic: str) -> None:
    create(client, topic, partitions=2)
    request = produce(topic, batch(b"good"))
    data = request.topic_data[0].partition_data
    for index, records in [(1, batch(b"fine")), (9, batch(b"nowhere")), (0, b"garbage"), (0, batch(b"more"))]:
        data += produce(topic, records, partition=index).topic_data[0].partition_data
    answers = client.call(request, PRODUCE).responses[0].partition_responses
    assert [(a.index, a.error_code, a.base_offset) for a in answers] == [
        (0, ErrorCode.NONE, 0),
        (1, ErrorCode.NONE, 0),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (0, ErrorCode.CORRUPT_MESSAGE, -1),
        (0, ErrorCode.NONE, 1),
    ]


def test_acks_zero_has_no_answer_and_its_failure_ends_the_connection(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    create(client, topic)
    client.post(produce(topic, batch(b"quiet"), acks=0), PRODUCE)
    # Nothing has waited for the disk yet, so the batch may not be visible to the request behind it.
    data = only_partition(client.call(fetch(topic, 0, max_wait_ms=20_000), 12))
    assert values_of(data.records) == [(0, b"quiet")]
    with WireClient(broker.bootstrap) as sender:
        sender.post(produce(topic, b"garbage", acks=0), PRODUCE)
        assert sender.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(client: WireClient, topic: str, acks: int) -> None:
    create(client, topic)
    assert append(client, topic, batch(), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert append(client, topic, batch(b"first")).base_offset == 0


def test_administrative_requests_keep_their_turn(client: WireClient, topic: str) -> None:
    """Creating, using and describing a topic may be sent without waiting in between."""
    client.post(create_topic(topic, 2), 7)
    client.post(produce(topic, batch(b"x"), partition=1), PRODUCE)
    client.post(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    assert client.read().topics[0].error_code == ErrorCode.NONE
    assert only_partition(client.read()).error_code == ErrorCode.NONE
    assert len(client.read().topics[0].partitions) == 2
