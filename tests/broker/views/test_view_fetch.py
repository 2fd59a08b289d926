"""Fetching from a view: what does not match moves the client on, within bounds, and a wait is a wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from forebay.errors import ErrorCode
from forebay.wire.batch import assemble, build_batch, read_header, split
from forebay.wire.compression import Codec
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from forebay.wire.messages.metadata import MetadataRequest
from forebay.wire.records import Record
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.config_calls import increment
from support.clients.view_calls import counts_of, document, documents, make_view
from support.clients.wire_client import (
    LATEST,
    WireClient,
    append,
    create,
    fetch,
    offset_at,
    only_partition,
    read,
    read_all,
    values_of,
)

TOPIC, SET = 2, 0
LONG_WAIT_MS = 25_000
NOTHING = "value.id < 0"


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def gaps_of(data: Any) -> list[tuple[int, int]]:
    """First and last offset of each batch of an answer that must show no message."""
    batches = split(memoryview(data or b""))
    assert all(header.is_control or not header.record_count for _, header in batches)
    return [(header.base_offset, header.last_offset) for _, header in batches]


def test_a_fetch_that_waits_for_a_match_is_answered_when_something_else_comes_behind_it(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    create(client, topic)
    append(client, topic, documents(range(3)))
    make_view(client, f"{topic}-view", topic, NOTHING)
    for together in (True, False):
        with WireClient(broker.bootstrap) as asker:
            asker.post(fetch(f"{topic}-view", 0, max_wait_ms=3_600_000), 12)
            if not together:
                assert asker.is_silent()
            asker.post(MetadataRequest(topics=[]), 12)
            assert gaps_of(only_partition(asker.read()).records) == [(0, 2)]
            assert asker.read().error_code == ErrorCode.NONE


def test_an_answer_without_a_match_moves_the_client_to_the_end(client: WireClient, topic: str) -> None:
    create(client, topic)
    for first in range(0, 100, 10):
        append(client, topic, documents(range(first, first + 10)))
    make_view(client, f"{topic}-view", topic, NOTHING)
    answer = read(client, f"{topic}-view")
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 100)
    assert gaps_of(answer.records) == [(0, 99)], "one batch without a message for all that does not match"
    assert counts_of(read(client, f"{topic}-view", 42).records)[-1][1] == 99


def test_a_fetch_examines_a_bounded_part_of_its_source(start_broker: StartBroker) -> None:
    broker = start_broker("forebay.view.fetch.source.max.bytes=20000")
    with WireClient(broker.bootstrap) as client:
        create(client, "source", segment_bytes="100000")
        for first in range(0, 6000, 100):
            append(client, "source", documents(range(first, first + 100)))
        make_view(client, "shown", "source", "value.id = 5999")
        offset, fetches = 0, 0
        while not (answer := read(client, "shown", offset)).records or not values_of(answer.records):
            assert counts_of(answer.records), f"a fetch at {offset} got nothing that moves it on"
            after = counts_of(answer.records)[-1][1] + 1
            assert after > offset
            offset, fetches = after, fetches + 1
        assert values_of(answer.records) == [(5999, document(5999))]
        assert fetches >= 1, "the whole source was examined for one answer"


def test_a_waiting_fetch_is_answered_by_a_match_and_not_before(
    client: WireClient, broker: BrokerProcess, topic: str
) -> None:
    create(client, topic)
    make_view(client, f"{topic}-view", topic, "value.id = 7")
    client.post(fetch(f"{topic}-view", 0, max_wait_ms=LONG_WAIT_MS), 12)
    with WireClient(broker.bootstrap) as producer:
        for number in range(5):
            append(producer, topic, documents(range(number, number + 1)))
            assert client.is_silent()
        append(producer, topic, documents(range(7, 8)))
    answer = only_partition(client.read())
    assert values_of(answer.records) == [(5, document(7))]
    assert len(counts_of(answer.records)) <= 3, "an empty batch for each append that did not match"


def test_a_wait_that_ends_without_a_match_moves_the_client_on(
    client: WireClient, broker: BrokerProcess, topic: str
) -> None:
    create(client, topic)
    make_view(client, f"{topic}-view", topic, NOTHING)
    began = time.monotonic()
    client.post(fetch(f"{topic}-view", 0, max_wait_ms=700), 12)
    with WireClient(broker.bootstrap) as producer:
        for number in range(3):
            append(producer, topic, documents(range(number, number + 1)))
    answer = only_partition(client.read())
    assert time.monotonic() - began >= 0.7
    assert gaps_of(answer.records) == [(0, 2)]


def test_a_fetch_that_is_given_up_leaves_the_broker_as_it_was(broker: BrokerProcess, topic: str) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic)
        make_view(client, f"{topic}-view", topic, NOTHING)
        client.post(fetch(f"{topic}-view", 0, max_wait_ms=2**31 - 1), 12)
        assert client.is_silent()
    with WireClient(broker.bootstrap) as client:
        append(client, topic, documents(range(3)))
        assert gaps_of(read(client, f"{topic}-view").records) == [(0, 2)]


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_filtered(client: WireClient, topic: str, codec: Codec) -> None:
    name = f"{topic}-{codec}"
    create(client, name)
    append(client, name, documents(range(100), codec=codec))
    make_view(client, f"{name}-view", name, "value.id % 10 = 3")
    assert read_all(client, f"{name}-view") == [(at, document(at)) for at in range(3, 100, 10)]


def test_a_view_and_its_source_are_read_by_one_request_in_a_session(client: WireClient, topic: str) -> None:
    create(client, topic)
    make_view(client, f"{topic}-view", topic, "value.id = 1")
    append(client, topic, documents(range(3)))

    def wanted(offset: int) -> list[FetchPartition]:
        return [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]

    def ask(session: int, epoch: int, *topics: FetchTopic) -> tuple[int, dict[str, Any]]:
        answer = client.call(
            FetchRequest(
                max_wait_ms=0, min_bytes=1, session_id=session, session_epoch=epoch, topics=list(topics)
            ),
            12,
        )
        assert answer.error_code == ErrorCode.NONE
        return answer.session_id, {each.topic: each.partitions[0] for each in answer.responses}

    view = f"{topic}-view"
    session, found = ask(
        0, 0, FetchTopic(topic=topic, partitions=wanted(0)), FetchTopic(topic=view, partitions=wanted(0))
    )
    assert len(values_of(found[topic].records)) == 3
    assert values_of(found[view].records) == [(1, document(1))]
    session, found = ask(
        session,
        1,
        FetchTopic(topic=topic, partitions=wanted(3)),
        FetchTopic(topic=view, partitions=wanted(3)),
    )
    assert found == {}, "nothing is new"
    append(client, topic, documents(range(1, 2)))
    _, found = ask(session, 2)
    assert values_of(found[view].records) == [(3, document(1))]


def test_offsets_outside_of_the_source_are_out_of_range(client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, documents(range(3)))
    make_view(client, f"{topic}-view", topic)
    assert read(client, f"{topic}-view", 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    answer = read(client, f"{topic}-view", 3)
    assert (answer.error_code, len(answer.records or b"")) == (ErrorCode.NONE, 0)
    unknown = read(client, f"{topic}-view", partitions=(5,))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_view_shows_no_message_that_waits_for_its_time(client: WireClient, topic: str) -> None:
    create(client, topic, forebay_delay_enable="true")
    make_view(client, f"{topic}-view", topic)
    later = Record(0, 1_000, b"k", document(1), (("forebay-deliver-after", b"1h"),))
    assert append(client, topic, bytes(build_batch([later])), acks=-1).error_code == ErrorCode.NONE
    append(client, topic, documents(range(2, 3)))
    answer = read(client, f"{topic}-view")
    assert [value for _, value in values_of(answer.records)] == [document(2)]
    assert document(1) not in bytes(answer.records), "a note of the broker is not for readers of a view"


def test_a_view_of_a_delayed_topic_shows_what_is_due(client: WireClient, topic: str) -> None:
    create(client, topic)
    make_view(client, f"{topic}-view", topic)
    append(client, topic, documents(range(2), timestamp=1_000))
    append(client, topic, documents(range(2, 4), timestamp=time.time_ns() // 1_000_000))
    increment(client, TOPIC, topic, ("forebay.delay.ms", SET, "3600000"))
    assert offset_at(client, f"{topic}-view", LATEST) == 2
    answer = read(client, f"{topic}-view", max_wait_ms=300)
    assert values_of(answer.records) == [(0, document(0)), (1, document(1))]
    assert answer.high_watermark == 2


def test_a_batch_that_holds_no_records_does_not_stop_a_view(client: WireClient, topic: str) -> None:
    create(client, topic)
    make_view(client, f"{topic}-view", topic, "value.id >= 0")
    nonsense = assemble(read_header(documents(range(3))), b"no records at all" * 9)
    append(client, topic, documents(range(2)))
    assert append(client, topic, bytes(nonsense)).error_code == ErrorCode.NONE
    append(client, topic, documents(range(7, 8)))
    answer = read(client, f"{topic}-view")
    assert counts_of(answer.records) == [(0, 1, 2), (2, 4, 0), (5, 5, 1)]
    assert counts_of(read(client, f"{topic}-view", 3).records) == [(2, 4, 0), (5, 5, 1)]


def test_an_answer_from_many_partitions_keeps_to_its_limit(client: WireClient, topic: str) -> None:
    """All partitions together are twice as large as the answer may be."""
    create(client, topic, partitions=12)
    for partition in range(12):
        append(client, topic, documents(range(1_000)), partition=partition)
    make_view(client, f"{topic}-view", topic, "value.id >= 0")
    request = fetch(f"{topic}-view", partitions=range(12), max_bytes=200_000, max_wait_ms=2_000)
    (answer,) = client.call(request, 12).responses
    sizes = [len(partition.records or b"") for partition in answer.partitions]
    assert 12 * max(sizes) > 400_000, "the limit has to matter"
    assert 0 < sum(sizes) <= 200_000
