"""Views, share groups and delays over messages that are in the object store only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch, records, split
from forebay.wire.messages.describe_positions import (
    DescribePositionsRequest,
    PositionsPartition,
    PositionsTopic,
)
from forebay.wire.records import Record
from forebay.wire.tiers.layout import manifest_key
from forebay.wire.tiers.manifest import encode_manifest
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.tiered import (
    closed_to,
    copied_to,
    create_tiered,
    eventually,
    fill,
    is_readable,
    manifest_of,
    settings,
    value,
)
from support.clients.config_calls import increment
from support.clients.delaying import at, delivered, now_ms, pending, send
from support.clients.share_member import REJECT, ShareMember, ack, configure, join
from support.clients.view_calls import document, make_view
from support.clients.wire_client import (
    EARLIEST,
    LATEST,
    WireClient,
    append,
    create,
    offset_at,
    read,
    values_of,
)

EARLIEST_LOCAL, MAX_TIMESTAMP = -4, -3
COUNT = 100
TIME = 1_000_000
EVEN = "value.even"
DEAD_LETTERS = "dead-letters"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", settings(tmp_path / "store")) as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def fill_documents(
    client: WireClient, topic: str, time_of: Callable[[int], int] = lambda n: TIME + n
) -> None:
    """A batch for each message. Then most of them are in the object store only."""
    for number in range(COUNT):
        text = document(number, even=number % 2 == 0, more="m" * 180)
        data = build_batch([Record(0, time_of(number), None, text)])
        assert append(client, topic, bytes(data)).error_code == 0
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 70)


def shown(client: WireClient, view: str, start: int | None = None, **how: Any) -> list[int]:
    """The offsets of everything that a view shows, by fetches that go on where the last one ended."""
    offset, end = (
        offset_at(client, view, EARLIEST) if start is None else start,
        offset_at(client, view, LATEST),
    )
    found: list[int] = []
    while offset < end:
        data = read(client, view, offset, max_wait_ms=5000, **how)
        assert data.error_code == 0, data.error_code
        for position, header in split(batches := memoryview(data.records or b"")):
            if not header.is_control:
                batch = batches[position : position + header.size]
                found += [each.offset for each in records(batch) if each.offset >= offset]
        for _, header in split(batches):
            offset = max(offset, header.next_offset)
    return found


def test_a_view_shows_what_is_in_the_object_store_only(client: WireClient, topic: str) -> None:
    create_tiered(client, topic)
    fill_documents(client, topic)
    view = f"{topic}-view"
    make_view(client, view, topic, EVEN)
    assert offset_at(client, view, EARLIEST) == 0
    assert shown(client, view) == [*range(0, COUNT, 2)]
    assert shown(client, view, 31, partition_max_bytes=700) == [*range(32, COUNT, 2)]
    assert read(client, view, COUNT + 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_view_that_shows_little_is_passed_over_both_parts(client: WireClient, topic: str) -> None:
    create_tiered(client, topic)
    fill_documents(client, topic)
    make_view(client, f"{topic}-view", topic, "value.id IN (3, 97)")
    assert shown(client, f"{topic}-view") == [3, 97]


def test_times_of_a_view_are_found_in_both_parts(client: WireClient, topic: str) -> None:
    create_tiered(client, topic)
    fill_documents(client, topic)
    view = f"{topic}-view"
    make_view(client, view, topic, EVEN)
    for number in (0, 10, 36, 98):
        assert offset_at(client, view, TIME + number) == number
        assert offset_at(client, view, TIME + number - 1) == number
    assert offset_at(client, view, TIME + 99) == -1
    assert offset_at(client, view, MAX_TIMESTAMP) == 98


def test_the_largest_time_of_a_view_may_be_in_the_object_store(client: WireClient, topic: str) -> None:
    """Times go up to message 40, and down from there: only odd ones have the very largest."""
    create_tiered(client, topic)
    fill_documents(client, topic, lambda n: TIME - abs(n - 41) // 2)
    make_view(client, f"{topic}-view", topic, EVEN)
    assert offset_at(client, topic, MAX_TIMESTAMP) == 40
    assert offset_at(client, f"{topic}-view", MAX_TIMESTAMP) == 40
    make_view(client, f"{topic}-old", topic, "value.id < 20")
    assert offset_at(client, f"{topic}-old", MAX_TIMESTAMP) == 18


def test_readers_of_a_view_skip_aborted_messages_in_the_object_store(
    broker: LocalBroker, client: WireClient, topic: str
) -> None:
    create_tiered(client, topic)
    end = fill_transactions(broker, topic)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > end() // 2)
    make_view(client, f"{topic}-view", topic, "value.part < 2")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(f"{topic}-view", 0, 0)])
    found: list[bytes] = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(message.value() or b"")
    consumer.close()
    assert found == [
        document(n, part=part, more="m" * 250) for n in range(0, 20, 2) for part in range(3) if part < 2
    ]


def fill_transactions(broker: LocalBroker, topic: str) -> Callable[[], int]:
    """Every second of twenty transactions is aborted. Returns a function for the end of the topic."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(60)
    for number in range(20):
        producer.begin_transaction()
        for part in range(3):
            text = document(number, part=part, more="m" * 250)
            producer.produce(topic, value=text, partition=0)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    partition = broker.on_loop(lambda node: node.partitions.get(topic, 0))
    return lambda: broker.on_loop(lambda _: partition.high_watermark)


def test_a_materialized_view_begins_with_what_is_in_the_object_store(client: WireClient, topic: str) -> None:
    create_tiered(client, topic)
    fill_documents(client, topic, lambda _: now_ms())  # the view has its own retention
    view = f"{topic}-kept"
    make_view(client, view, topic, EVEN, materialize="true")
    assert eventually(lambda: offset_at(client, view, LATEST) >= COUNT - 1)
    assert shown(client, view) == [*range(0, COUNT, 2)]


def take_all(member: ShareMember, count: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    accepted = None
    while len(found) < count:
        taken = member.take(acks=accepted)
        found += [(each.offset, each.value) for each in taken]
        accepted = {0: [ack(each.offset) for each in taken]}
    member.fetch(acks=accepted, wait_ms=0, records=0)
    return found


def test_a_share_group_begins_with_what_is_in_the_object_store(client: WireClient, topic: str) -> None:
    topic_id = create_tiered(client, topic)
    fill(client, topic, COUNT)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 70)
    configure(client, topic)
    join(client, topic, topic)
    found = take_all(ShareMember(client, topic, topic_id), COUNT)
    assert found == [(number, value(number)) for number in range(COUNT)]


def test_a_share_group_that_is_behind_goes_on_after_a_restart(tmp_path: Path, topic: str) -> None:
    configs = settings(tmp_path / "store")
    with local_broker(tmp_path / "data", configs) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        configure(client, topic)
        join(client, topic, topic)
        fill(client, topic, 10)
        assert take_all(ShareMember(client, topic, topic_id), 10)[-1] == (9, value(9))
        fill(client, topic, COUNT - 10, 10)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 70)
    with local_broker(tmp_path / "data", configs) as broker, WireClient(broker.bootstrap) as client:
        join(client, topic, topic)
        found = take_all(ShareMember(client, topic, topic_id), COUNT - 10)
    assert found == [(number, value(number)) for number in range(10, COUNT)]


def test_a_share_group_does_not_get_aborted_messages_from_the_object_store(
    broker: LocalBroker, client: WireClient, topic: str
) -> None:
    topic_id = create_tiered(client, topic)
    end = fill_transactions(broker, topic)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > end() // 2)
    configure(client, topic, share_isolation_level="read_committed")
    join(client, topic, topic)
    found = take_all(ShareMember(client, topic, topic_id), 30)
    assert [text for _, text in found] == [
        document(n, part=part, more="m" * 250) for n in range(0, 20, 2) for part in range(3)
    ]


def test_a_dead_letter_is_copied_from_the_object_store(client: WireClient, topic: str) -> None:
    topic_id = create_tiered(client, topic)
    create(client, DEAD_LETTERS, 1, **{"errors.deadletterqueue.group.enable": "true"})
    fill(client, topic, COUNT)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 70)
    configure(
        client,
        topic,
        errors_deadletterqueue_topic_name=DEAD_LETTERS,
        errors_deadletterqueue_copy_record_enable="true",
    )
    join(client, topic, topic)
    member = ShareMember(client, topic, topic_id)
    (taken,) = member.take(records=1, mode=1)
    assert taken.offset == 0
    assert member.acknowledge(ack(0, 0, REJECT)) == 0
    assert eventually(lambda: offset_at(client, DEAD_LETTERS, LATEST) == 1)
    (letter,) = records(memoryview(read(client, DEAD_LETTERS, 0).records or b""))
    assert letter.value == value(0)


def test_the_age_of_a_position_is_that_of_its_segment_in_the_object_store(
    client: WireClient, topic: str
) -> None:
    create_tiered(client, topic)
    fill(client, topic, COUNT)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 70)
    wanted = PositionsPartition(partition_index=0, positions=[2, 99])
    request = DescribePositionsRequest(topics=[PositionsTopic(name=topic, partitions=[wanted])])
    (found,) = client.call(request, 0).topics[0].partitions
    old, new = found.timestamps
    assert TIME + 2 <= old < TIME + 20, "a segment has a few messages"
    assert new == TIME + 99


def test_messages_wait_for_their_time_although_their_segment_has_left_the_disk(
    client: WireClient, topic: str
) -> None:
    create_tiered(client, topic, forebay_delay_enable="true")
    due_ms = now_ms() + 6_000
    send(client, topic, b"later", at(due_ms))
    fill(client, topic, COUNT)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 50)
    assert now_ms() < due_ms, "the machine is too slow for this test"
    assert [each.value for each in delivered(client, topic) if each.value == b"later"] == []
    assert eventually(lambda: b"later" in [each.value for each in delivered(client, topic)])
    assert [each.value for each in delivered(client, topic)].count(b"later") == 1
    assert pending(client, topic) == 0


def test_a_topic_that_delays_all_messages_keeps_them_on_the_disk_until_they_are_due(
    client: WireClient, topic: str
) -> None:
    create_tiered(client, topic, forebay_delay_ms="3600000")
    for number in range(COUNT):
        data = build_batch([Record(0, now_ms(), None, value(number))])
        assert append(client, topic, bytes(data)).error_code == 0
    assert eventually(lambda: offset_at(client, topic, -5) > 70)
    assert offset_at(client, topic, EARLIEST_LOCAL) == 0
    assert offset_at(client, topic, LATEST) == 0
    assert read(client, topic, 0, max_wait_ms=0).records in (None, b"")


def test_a_segment_that_was_cut_off_in_a_gap_is_read_to_its_end(tmp_path: Path, topic: str) -> None:
    """Compaction has left gaps, before the topic became a tiered one. A history that was lost may begin in
    one of them: the object goes on behind it, and the next segment begins there."""
    store = tmp_path / "store"
    eager = {"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0"}
    with (
        local_broker(tmp_path / "data", {**settings(store), **eager}) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        topic_id = compacted(client, topic)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 60)
        assert eventually(lambda: copied_to(store, topic_id) == closed_to(broker, topic))
        found = everything(client, topic, 0)
    manifest = manifest_of(store, topic_id)
    assert manifest is not None
    cut, at = next(
        (each, offset)
        for each in manifest.segments
        for offset in range(each.base_offset, each.next_offset)
        if not found.keys() & {offset - 1, offset}  # nor is it the end of a batch that was cleaned
        and found.keys() & set(range(each.base_offset, offset))
        and offset + 1 in found
    )
    at_cut = manifest.segments.index(cut)
    halves = (cut._replace(next_offset=at), cut._replace(base_offset=at))
    segments = (*manifest.segments[:at_cut], *halves, *manifest.segments[at_cut + 1 :])
    path = store / manifest_key(topic_id, 0)
    path.write_bytes(encode_manifest(manifest._replace(segments=segments)))
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: is_readable(client, topic))
        assert everything(client, topic, at - 1) == {
            number: text for number, text in found.items() if number >= at
        }


def everything(client: WireClient, topic: str, offset: int) -> dict[int, bytes | None]:
    """From an offset on, by fetches that go on where the last batch ended."""
    found: dict[int, bytes | None] = {}
    end = offset_at(client, topic, LATEST)
    while offset < end:
        data = read(client, topic, offset, max_wait_ms=5000)
        assert data.error_code == 0, data.error_code
        found |= {number: text for number, text in values_of(data.records) if number >= offset}
        for _, header in split(memoryview(data.records or b"")):
            offset = max(offset, header.next_offset)
    return found


def compacted(client: WireClient, topic: str) -> bytes:
    """A topic that was compacted, and became a tiered one."""
    configs = {"cleanup.policy": "compact", "segment.bytes": "2000", "file.delete.delay.ms": "0"}
    topic_id = create(client, topic, 1, **configs)
    for number in range(60):
        key = b"%d" % (number if number % 5 == 0 else number % 3)
        data = build_batch([Record(0, TIME + number, key, value(number))])
        assert append(client, topic, bytes(data)).error_code == 0
    assert eventually(lambda: len(everything(client, topic, 0)) < 30)
    tiered = ("cleanup.policy", 0, "delete"), ("remote.storage.enable", 0, "true")
    kept = ("retention.ms", 0, "-1"), ("local.retention.bytes", 0, "4000")
    assert increment(client, 2, topic, *tiered, *kept).error_code == 0
    fill(client, topic, 40, start=60)
    return topic_id
