"""Fetch: limits of size and time, sessions, ids, epochs, and what wakes those who wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.wire.batch import split
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_broker import local_broker
from support.clients.wire_client import (
    FETCH,
    WireClient,
    append,
    batch,
    create,
    fetch,
    only_partition,
    read,
    values_of,
)

SECONDS_30 = 30_000


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def waiting(broker: BrokerProcess) -> Iterator[WireClient]:
    """Another connection, for a fetch that waits."""
    with WireClient(broker.bootstrap) as client:
        yield client


def counts(data: Any) -> list[int]:
    return [header.base_offset for _, header in split(memoryview(data.records or b""))]


# -- limits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
def test_what_was_appended_comes_back_in_every_version(client: WireClient, topic: str, version: int) -> None:
    topic_id = create(client, topic)
    append(client, topic, batch(b"a", b"b"))
    append(client, topic, batch(b"c"))
    data = read(client, topic if version < 13 else topic_id, 1, version)
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
    assert values_of(data.records) == [(0, b"a"), (1, b"b"), (2, b"c")]  # whole batches, as stored
    if version >= 5:
        assert data.log_start_offset == 0


def test_a_first_batch_larger_than_every_limit_is_given_whole_and_alone(
    client: WireClient, topic: str
) -> None:
    create(client, topic, partitions=2)
    for partition in (0, 1):
        for _ in range(3):
            append(client, topic, batch(bytes(5000)), partition=partition)
    answer = client.call(fetch(topic, partitions=(0, 1), partition_max_bytes=10, max_bytes=10), FETCH)
    first, second = answer.responses[0].partitions
    assert counts(first) == [0]
    assert counts(second) == []
    assert second.error_code == ErrorCode.NONE


def test_partition_limits_give_whole_batches_that_fit(client: WireClient, topic: str) -> None:
    create(client, topic, partitions=3)
    size = len(batch(bytes(5000)))
    for partition in range(3):
        for _ in range(10):
            append(client, topic, batch(bytes(5000)), partition=partition)
    request = fetch(topic, partitions=(0, 1, 2), partition_max_bytes=3 * size + 100)
    answer = client.call(request, FETCH)
    assert [counts(data) for data in answer.responses[0].partitions] == [[0, 1, 2]] * 3
    limited = fetch(topic, partitions=(0, 1, 2), partition_max_bytes=3 * size, max_bytes=4 * size + 100)
    answer = client.call(limited, FETCH)
    assert [counts(data) for data in answer.responses[0].partitions] == [[0, 1, 2], [0], []]


def test_a_read_goes_on_where_the_last_ended_at_any_size(client: WireClient, topic: str) -> None:
    create(client, topic, segment_bytes="20000", index_interval_bytes="500")
    for number in range(120):
        append(client, topic, batch(*[b"%d" % number] * (1 + number % 4), bytes(number * 7)))
    whole = read(client, topic, partition_max_bytes=10_000_000)
    end = whole.high_watermark
    for limit in (1, 700, 1500, 5000, 50_000):
        offset, found = 0, []
        while offset < end:
            piece = values_of(read(client, topic, offset, partition_max_bytes=limit).records)
            assert piece, f"nothing at {offset} of {end} within {limit} bytes"
            found += [item[0] for item in piece if item[0] >= offset]
            offset = piece[-1][0] + 1
        assert found == list(range(end))


def test_the_end_and_what_lies_beyond(client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, batch(b"a", b"b"))
    at_end = read(client, topic, 2)
    assert (at_end.error_code, counts(at_end)) == (ErrorCode.NONE, [])
    for offset in (3, 1000, -1, 2**62):
        assert read(client, topic, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_isolation_levels(client: WireClient, topic: str, isolation_level: int) -> None:
    create(client, topic)
    append(client, topic, batch(b"a"))
    data = read(client, topic, isolation_level=isolation_level)
    assert values_of(data.records) == [(0, b"a")]
    assert data.aborted_transactions == ([] if isolation_level else None)


# -- names, ids, epochs ------------------------------------------------------------------------------------


def test_unknown_names_ids_and_partitions(client: WireClient, topic: str) -> None:
    topic_id = create(client, topic)
    assert read(client, "nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert read(client, topic, partitions=(7,)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert read(client, bytes(range(16)), version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert read(client, bytes(16), version=17).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    unknown = read(client, topic_id, version=15, partitions=(7,))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_errors_are_told_at_once_beside_data_that_is_waited_for(client: WireClient, topic: str) -> None:
    create(client, topic)
    request = fetch(topic, partitions=(0, 9), max_wait_ms=SECONDS_30)
    answer = client.call(request, FETCH)
    codes = [data.error_code for data in answer.responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_leader_epochs(client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, batch(b"a"))
    assert read(client, topic, leader_epoch=-1).error_code == ErrorCode.NONE
    assert read(client, topic, leader_epoch=1000).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert read(client, topic, leader_epoch=0).error_code == ErrorCode.NONE


def test_a_reader_of_an_epoch_that_is_over_is_fenced(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data") as local, WireClient(local.bootstrap) as client:
        create(client, "led")
        append(client, "led", batch(b"a"))

        def begin_epoch(broker: Node) -> None:
            partition = broker.partitions.get("led", 0)
            partition.epochs.assign(3, partition.log.end_offset)
            partition.leader_epoch = 3

        local.on_loop(begin_epoch)
        append(client, "led", batch(b"b"))
        assert read(client, "led", leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert read(client, "led", leader_epoch=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        data = read(client, "led", leader_epoch=3)
        headers = [header for _, header in split(data.records)]
        assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [(0, 0), (1, 3)]


# -- waiting -----------------------------------------------------------------------------------------------


def test_nothing_comes_before_the_time_is_up(client: WireClient, topic: str) -> None:
    create(client, topic)
    started = time.monotonic()
    data = read(client, topic, max_wait_ms=300)
    assert time.monotonic() - started >= 0.29
    assert (data.error_code, counts(data)) == (ErrorCode.NONE, [])


def test_min_bytes_of_zero_never_waits(client: WireClient, topic: str) -> None:
    create(client, topic)
    assert counts(read(client, topic, max_wait_ms=SECONDS_30 * 100, min_bytes=0)) == []


def test_an_append_on_another_connection_wakes_the_wait(
    client: WireClient, waiting: WireClient, topic: str
) -> None:
    create(client, topic, partitions=3)
    waiting.post(fetch(topic, partitions=(0, 1, 2), max_wait_ms=SECONDS_30), FETCH)
    assert waiting.is_silent()
    append(client, topic, batch(b"wake up"), partition=2)
    partitions = waiting.read().responses[0].partitions
    assert [values_of(data.records) for data in partitions] == [[], [], [(0, b"wake up")]]


def test_a_wait_goes_on_until_enough_has_come(client: WireClient, waiting: WireClient, topic: str) -> None:
    create(client, topic, partitions=2)
    size = len(batch(bytes(1000)))
    append(client, topic, batch(bytes(1000)))
    request = fetch(topic, partitions=(0, 1), max_wait_ms=SECONDS_30, min_bytes=3 * size)
    waiting.post(request, FETCH)
    assert waiting.is_silent()
    append(client, topic, batch(bytes(1000)), partition=1)
    assert waiting.is_silent()
    append(client, topic, batch(bytes(1000)), partition=0)
    assert [counts(data) for data in waiting.read().responses[0].partitions] == [[0, 1], [0]]


def test_a_hundred_waits_are_woken_by_one_append(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    create(client, topic)
    crowd = [WireClient(broker.bootstrap) for _ in range(100)]
    for member in crowd:
        member.post(fetch(topic, max_wait_ms=SECONDS_30), FETCH)
    assert crowd[-1].is_silent()
    append(client, topic, batch(b"for all"))
    for member in crowd:
        assert values_of(only_partition(member.read()).records) == [(0, b"for all")]
        member.close()


@pytest.mark.parametrize("by_id", [False, True], ids=["name", "id"])
def test_deleting_a_topic_answers_those_who_wait_for_it(
    client: WireClient, waiting: WireClient, topic: str, by_id: bool
) -> None:
    topic_id = create(client, topic)
    waiting.post(fetch(topic_id if by_id else topic, max_wait_ms=SECONDS_30), 13 if by_id else FETCH)
    assert waiting.is_silent()
    client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)]), 6)
    expected = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only_partition(waiting.read()).error_code == expected


def test_a_topic_made_again_is_another_for_those_who_fetch_by_id(client: WireClient, topic: str) -> None:
    old = create(client, topic)
    append(client, topic, batch(b"old"))
    client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)]), 6)
    new = create(client, topic)
    append(client, topic, batch(b"new"))
    assert old != new
    assert read(client, old, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert values_of(read(client, new, version=13).records) == [(0, b"new")]


# -- sessions ----------------------------------------------------------------------------------------------


def told(answer: Any) -> dict[int, list[tuple[int, bytes | None]]]:
    """What an answer of a session says: partitions with their records."""
    assert answer.error_code == ErrorCode.NONE
    return {
        data.partition_index: values_of(data.records)
        for topic in answer.responses
        for data in topic.partitions
    }


def incremental(
    session_id: int, epoch: int, topic: str, *changes: tuple[int, int], forget: int = -1
) -> FetchRequest:
    """Partitions with the offsets they have come to, and maybe one that is of no interest any more."""
    partitions = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        for partition, offset in changes
    ]
    return FetchRequest(
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=partitions)] if changes else [],
        forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=[forget])] if forget >= 0 else [],
    )


@pytest.mark.parametrize("version", [7, 11, 12])
def test_a_session_says_only_what_is_new(client: WireClient, topic: str, version: int) -> None:
    create(client, topic, partitions=4)
    append(client, topic, batch(b"first"))
    opened = client.call(incremental(0, 0, topic, (0, 0), (1, 0), (2, 0)), version)
    session = opened.session_id
    assert session > 0
    assert told(opened) == {0: [(0, b"first")], 1: [], 2: []}
    assert told(client.call(incremental(session, 1, topic, (0, 1)), version)) == {}
    append(client, topic, batch(b"second"), partition=1)
    assert told(client.call(incremental(session, 2, topic), version)) == {1: [(0, b"second")]}
    append(client, topic, batch(b"third"), partition=2)
    assert told(client.call(incremental(session, 3, topic, (1, 1), forget=2), version)) == {}
    added = client.call(incremental(session, 4, topic, (3, 0)), version)
    assert told(added) == {3: []}
    append(client, topic, batch(b"fourth"), partition=3)
    assert told(client.call(incremental(session, 5, topic), version)) == {3: [(0, b"fourth")]}


def test_a_session_waits_for_all_its_partitions(client: WireClient, waiting: WireClient, topic: str) -> None:
    create(client, topic, partitions=2)
    opened = waiting.call(incremental(0, 0, topic, (0, 0), (1, 0)), FETCH)
    request = incremental(opened.session_id, 1, topic)
    request.max_wait_ms = SECONDS_30
    waiting.post(request, FETCH)
    assert waiting.is_silent()
    append(client, topic, batch(b"here"), partition=1)
    assert told(waiting.read()) == {1: [(0, b"here")]}


def test_sessions_by_id(client: WireClient, topic: str) -> None:
    topic_id = create(client, topic)
    opened = client.call(fetch(topic_id, session_epoch=0), 13)
    assert opened.session_id > 0
    append(client, topic, batch(b"new"))
    again = client.call(fetch(topic_id, partitions=(), session_id=opened.session_id, session_epoch=1), 13)
    assert again.responses[0].topic_id == topic_id
    assert told(again) == {0: [(0, b"new")]}


def test_a_session_notices_what_it_missed(client: WireClient, topic: str) -> None:
    create(client, topic)
    session = client.call(incremental(0, 0, topic, (0, 0)), FETCH).session_id
    wrong_epoch = client.call(incremental(session, 5, topic), FETCH)
    assert (wrong_epoch.error_code, wrong_epoch.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    unknown = client.call(incremental(session + 1, 1, topic), FETCH)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    closed = client.call(incremental(session, -1, topic, (0, 0)), FETCH)
    assert (closed.error_code, closed.session_id) == (ErrorCode.NONE, 0)
    gone = client.call(incremental(session, 1, topic), FETCH)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_tells_an_error_and_its_end(client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, batch(b"a"))
    session = client.call(incremental(0, 0, topic, (0, 1)), FETCH).session_id
    client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)]), 6)
    failed = client.call(incremental(session, 1, topic), FETCH)
    assert failed.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(client, topic)
    well = client.call(incremental(session, 2, topic, (0, 0)), FETCH)
    assert well.responses[0].partitions[0].error_code == ErrorCode.NONE
