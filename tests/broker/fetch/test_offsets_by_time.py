"""ListOffsets by time: found in threads while others are served, whatever happens to the log meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    WireClient,
    append,
    batch,
    create,
    list_offsets,
    offset_at,
)
from support.faults.faulty_disk import FaultyDisk
from support.faults.held_threads import HeldThreads

THEN = 1_700_000_000_000
COUNT = 20
SEGMENTED = {"segment_bytes": "1000", "file_delete_delay_ms": "0"}


@pytest.fixture
def threads() -> HeldThreads:
    return HeldThreads("forebay-search")


@pytest.fixture
def broker(tmp_path: Path, threads: HeldThreads) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", threads=threads, make_disk=FaultyDisk) as running:
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as connected:
        yield connected


def fill(client: WireClient, topic: str) -> None:
    """Segments of a few messages each, whose times rise by one."""
    for number in range(COUNT):
        assert append(client, topic, batch(bytes(200), timestamp=THEN + number)).error_code == 0


def answer(client: WireClient) -> tuple[int, int, int]:
    (topic,) = client.read().topics
    (found,) = topic.partitions
    return found.error_code, found.timestamp, found.offset


def ask(client: WireClient, topic: str, timestamp: int) -> tuple[int, int, int]:
    client.post(list_offsets(topic, timestamp), LIST_OFFSETS)
    return answer(client)


def test_every_question_in_one_request(client: WireClient) -> None:
    create(client, "t", 1, **SEGMENTED)
    fill(client, "t")
    questions = (THEN + 7, LATEST, MAX_TIMESTAMP, EARLIEST, THEN + COUNT, -100)
    request = list_offsets("t", LATEST)
    request.topics = [list_offsets("t", timestamp).topics[0] for timestamp in questions]
    found = [topic.partitions[0] for topic in client.call(request, LIST_OFFSETS).topics]
    assert [(each.error_code, each.timestamp, each.offset) for each in found] == [
        (0, THEN + 7, 7),
        (0, -1, COUNT),
        (0, THEN + COUNT - 1, COUNT - 1),
        (0, -1, 0),
        (0, -1, -1),
        (ErrorCode.UNSUPPORTED_VERSION, -1, -1),
    ]


@pytest.mark.parametrize("timestamp", [THEN + 7, MAX_TIMESTAMP])
def test_others_are_served_while_somebody_searches(
    broker: LocalBroker, client: WireClient, threads: HeldThreads, timestamp: int
) -> None:
    create(client, "t", 1, **SEGMENTED)
    fill(client, "t")
    with threads.held(), WireClient(broker.bootstrap) as other:
        client.post(list_offsets("t", timestamp), LIST_OFFSETS)
        assert threads.has_work()
        assert append(other, "t", batch(b"more", timestamp=THEN)).base_offset == COUNT
        assert offset_at(other, "t", LATEST) == COUNT + 1
        assert client.is_silent()
    assert answer(client) == ((0, THEN + 7, 7) if timestamp > 0 else (0, THEN + COUNT - 1, COUNT - 1))


def test_retention_may_take_away_what_is_searched(
    broker: LocalBroker, client: WireClient, threads: HeldThreads
) -> None:
    create(client, "t", 1, **SEGMENTED)
    fill(client, "t")
    log = broker.on_loop(lambda running: running.partitions.get("t", 0).log)
    log.files.datasync()  # before, nothing else tells the leader epoch

    def delete(running: Node) -> int:
        log.delete_front(3)
        for path in log.reap():
            running.disk.remove(path)
        return log.start_offset

    with threads.held():
        client.post(list_offsets("t", THEN), LIST_OFFSETS)
        assert threads.has_work()
        start = broker.on_loop(delete)
        assert start > 3
    assert answer(client) == (0, THEN + start, start)


def test_the_log_start_may_pass_what_is_found(
    broker: LocalBroker, client: WireClient, threads: HeldThreads
) -> None:
    create(client, "t")
    fill(client, "t")
    with threads.held():
        client.post(list_offsets("t", THEN + 3), LIST_OFFSETS)
        assert threads.has_work()
        broker.on_loop(lambda running: running.partitions.get("t", 0).log.advance_start(5))
    assert answer(client) == (0, THEN + 5, 5)


def test_a_topic_may_be_deleted_while_it_is_searched(
    broker: LocalBroker, client: WireClient, threads: HeldThreads
) -> None:
    create(client, "t", 1, **SEGMENTED)
    fill(client, "t")
    with threads.held(), WireClient(broker.bootstrap) as other:
        client.post(list_offsets("t", THEN), LIST_OFFSETS)
        assert threads.has_work()
        other.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000), 6)
    assert answer(client) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_a_disk_that_cannot_be_read_is_an_error_and_not_the_end(
    broker: LocalBroker, client: WireClient
) -> None:
    create(client, "t", 1, **SEGMENTED)
    create(client, "u")
    fill(client, "t")
    fill(client, "u")
    disk = broker.node.disk
    assert isinstance(disk, FaultyDisk)
    disk.break_path("pread", "t-0/00000000000000000000.log")
    assert ask(client, "t", THEN) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
    assert ask(client, "u", THEN) == (0, THEN, 0)
    disk.repair()
    assert ask(client, "t", THEN) == (0, THEN, 0)


def test_a_broker_stops_while_somebody_searches(tmp_path: Path, threads: HeldThreads) -> None:
    with local_broker(tmp_path / "other", threads=threads) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t")
        fill(client, "t")
        with threads.held():
            client.post(list_offsets("t", THEN), LIST_OFFSETS)
            assert threads.has_work()
            broker.begin_to_stop()
            assert client.is_closed()


@pytest.mark.parametrize("at", [16, 100])
def test_damage_hides_nothing_but_itself(tmp_path: Path, at: int) -> None:
    """In a header or in the records of a batch in an old segment."""
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **SEGMENTED)
        fill(client, "t")
    old = sorted((tmp_path / "t-0").glob("*.log"))[1]
    first = int(old.stem)
    content = bytearray(old.read_bytes())
    content[len(batch(bytes(200))) + at] ^= 0xFF  # its second batch
    old.write_bytes(content)
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        for _ in range(2):
            assert ask(client, "t", THEN + first - 1) == (0, THEN + first - 1, first - 1)
            assert ask(client, "t", THEN + first) == (0, THEN + first, first)
            code, timestamp, offset = ask(client, "t", THEN + first + 1)
            assert code == 0 and offset > first + 1 and timestamp == THEN + offset
            assert ask(client, "t", THEN + 12) == (0, THEN + 12, 12)
            assert ask(client, "t", MAX_TIMESTAMP) == (0, THEN + COUNT - 1, COUNT - 1)
        assert broker.on_loop(lambda running: running.metrics.unreadable_batches) == 1
