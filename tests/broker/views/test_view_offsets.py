"""Offsets by time in a view are those of messages that it shows; of others it tells no times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from forebay.broker.fetch import view_offsets
from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch, split
from forebay.wire.compression import Codec
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.records import Record
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.view_calls import delete, make_view
from support.clients.wire_client import (
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    WireClient,
    append,
    create,
    list_offsets,
    read,
    values_of,
)
from support.waiting import Patience

SHOWN = "value.shown"
NOT_FOUND = (-1, -1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        create(client, "source", segment_bytes="100000")
        make_view(client, "view", "source", SHOWN)
        yield client


def message(timestamp: int, *, shown: bool, filling: int = 0) -> Record:
    return Record(0, timestamp, b"k", json.dumps({"shown": shown, "filling": "x" * filling}).encode())


def send(client: WireClient, *messages: Record, **how: Any) -> None:
    numbered = [each._replace(offset=at) for at, each in enumerate(messages)]
    assert append(client, "source", bytes(build_batch(numbered, **how))).error_code == 0


def ask(client: WireClient, timestamp: int, topic: str = "view") -> Any:
    (found,) = client.call(list_offsets(topic, timestamp), LIST_OFFSETS).topics[0].partitions
    return found


def found_at(client: WireClient, timestamp: int, topic: str = "view") -> tuple[int, int]:
    found = ask(client, timestamp, topic)
    assert found.error_code == ErrorCode.NONE
    return found.timestamp, found.offset


def test_a_time_leads_to_the_first_message_shown_that_is_not_older(client: WireClient) -> None:
    send(client, *(message(1_000 + 10 * at, shown=at % 4 == 2) for at in range(10)))
    assert [found_at(client, 1_000 + 10 * at) for at in range(10)] == [
        *[(1_020, 2)] * 3,
        *[(1_060, 6)] * 4,
        *[NOT_FOUND] * 3,
    ]
    assert found_at(client, 1_011, "source") == (1_020, 2)
    assert found_at(client, 1_061, "source") == (1_070, 7), "the topic tells its own times"


def test_the_largest_time_is_that_of_a_message_shown(client: WireClient) -> None:
    assert found_at(client, MAX_TIMESTAMP) == NOT_FOUND
    send(client, message(9_000, shown=False))
    assert found_at(client, MAX_TIMESTAMP) == NOT_FOUND
    send(client, message(5_000, shown=True), message(7_000, shown=True), message(6_000, shown=True))
    assert found_at(client, MAX_TIMESTAMP) == (7_000, 2)
    send(client, message(7_000, shown=True), message(8_000, shown=False))
    assert found_at(client, MAX_TIMESTAMP) == (7_000, 2), "the first of them"
    send(client, message(7_001, shown=True))
    assert found_at(client, MAX_TIMESTAMP) == (7_001, 6)
    assert found_at(client, MAX_TIMESTAMP, "source") == (9_000, 0)


def test_what_was_deleted_is_not_found_any_more(client: WireClient) -> None:
    for at in range(6):
        send(client, message(9_000 - at, shown=True))
    assert found_at(client, MAX_TIMESTAMP) == (9_000, 0)
    wanted = DeleteRecordsPartition(partition_index=0, offset=3)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="source", partitions=[wanted])], timeout_ms=10_000
    )
    client.call(request, 2)
    assert found_at(client, MAX_TIMESTAMP) == (8_997, 3)
    assert found_at(client, 8_990) == (8_997, 3)


@pytest.mark.parametrize("seed", range(5))
def test_any_time_leads_to_what_a_reader_of_the_view_would_find(client: WireClient, seed: int) -> None:
    """Messages of all codecs, whose times are in no order."""
    chance = Random(seed)
    visible: list[tuple[int, int]] = []
    for base in range(0, 150, 6):
        times = [chance.randrange(1_000, 1_100) for _ in range(6)]
        shown = [chance.random() < 0.2 for _ in times]
        made = [message(time, shown=is_shown) for time, is_shown in zip(times, shown, strict=True)]
        send(client, *made, codec=chance.choice(list(Codec)))
        visible += [(time, base + at) for at, time in enumerate(times) if shown[at]]
    for timestamp in range(995, 1_105):
        expected = next((each for each in visible if each[0] >= timestamp), NOT_FOUND)
        assert found_at(client, timestamp) == expected
    largest = max((time for time, _ in visible), default=-1)
    assert found_at(client, MAX_TIMESTAMP) == next(
        (each for each in visible if each[0] == largest), NOT_FOUND
    )


def test_a_search_that_takes_long_is_asked_for_again_and_goes_on(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_offsets, "SEARCH_S", 0.002)
    monkeypatch.setattr(view_offsets, "_SLICE_BYTES", 1)
    for at in range(300):
        send(client, message(1_000 + at, shown=False, filling=1_000))
    send(client, message(5_000, shown=True))
    for timestamp in (1_000, MAX_TIMESTAMP):
        patience, asked = Patience("the search comes to its end"), 0
        while (found := ask(client, timestamp)).error_code == ErrorCode.REQUEST_TIMED_OUT:
            assert (found.timestamp, found.offset) == NOT_FOUND, "nothing is told of where it is"
            asked += 1
            patience.check()
        assert (found.error_code, found.timestamp, found.offset) == (ErrorCode.NONE, 5_000, 300)
        assert asked > 0, "it was found at once, though the time was short"


def test_a_view_that_takes_long_leaves_the_next_one_its_time(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_view(client, "other", "source", SHOWN)
    send(client, message(5_000, shown=True))
    deadlines, deadline = [0.0], view_offsets.ViewOffsets.deadline
    monkeypatch.setattr(
        view_offsets.ViewOffsets,
        "deadline",
        lambda offsets: deadlines.pop() if deadlines else deadline(offsets),
    )
    request = list_offsets("view", 1_000)
    request.topics += list_offsets("other", 1_000).topics
    first, second = (each.partitions[0] for each in client.call(request, LIST_OFFSETS).topics)
    assert first.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (second.error_code, second.offset) == (ErrorCode.NONE, 0)


def test_a_request_for_many_views_comes_to_an_end(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(client, message(5_000, shown=True))
    monkeypatch.setattr(view_offsets, "REQUEST_S", 0.0)
    assert ask(client, 1_000).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_what_stands_for_messages_that_are_not_shown_tells_no_times(client: WireClient) -> None:
    for shown in (False, True, False, False):
        send(client, message(5_000, shown=shown))
    answers = [read(client, "view", offset).records for offset in (0, 2)]
    assert [offset for answer in answers for offset, _ in values_of(answer)] == [1]
    for answer in answers:
        for _, header in split(memoryview(answer)):
            if header.is_control or not header.record_count:
                assert (header.base_timestamp, header.max_timestamp) in ((-1, -1), (0, 0))


def test_a_view_that_is_gone_has_no_times(client: WireClient) -> None:
    send(client, message(1_000, shown=True))
    assert found_at(client, 0) == (1_000, 0)
    delete(client, "view")
    assert ask(client, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
