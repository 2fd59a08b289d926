"""A topic whose old segments are in an object store: readers see one log, wherever its messages are."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from forebay.errors import ErrorCode
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.reading import check_object, read_chunk, read_index, read_topic
from forebay.wire.batch import split
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.messages.delete_topics import DeleteTopicsRequest
from forebay.wire.tiers.layout import partition_prefix
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.tiered import (
    copied_to,
    create_tiered,
    eventually,
    fill,
    manifest_of,
    settings,
    value,
)
from support.clients.config_calls import increment
from support.clients.wire_client import (
    CREATE_TOPICS,
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    WireClient,
    batch,
    create,
    create_topic,
    list_offsets,
    offset_at,
    read,
    values_of,
)

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD, MAX_TIMESTAMP = -4, -5, -6, -3


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def broker(tmp_path: Path, store: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def read_everything(client: WireClient, topic: str, **how: int) -> list[tuple[int, bytes | None]]:
    """Everything from the earliest offset on, by fetches that wait for what is not here yet."""
    offset, end = offset_at(client, topic, EARLIEST), offset_at(client, topic, LATEST)
    found: list[tuple[int, bytes | None]] = []
    while offset < end:
        data = read(client, topic, offset, max_wait_ms=5000, **how)
        assert data.error_code == 0, data.error_code
        batches = split(memoryview(data.records or b""))
        if batches:
            found += [item for item in values_of(data.records) if item[0] >= offset]
            offset = batches[-1][1].next_offset
    return found


def test_old_segments_leave_the_local_disk_and_stay_readable(
    broker: LocalBroker, client: WireClient, store: Path, topic: str
) -> None:
    topic_id = create_tiered(client, topic)
    fill(client, topic, 100)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 70)
    assert offset_at(client, topic, EARLIEST) == 0
    assert read_everything(client, topic) == [(number, value(number)) for number in range(100)]
    assert read_everything(client, topic, partition_max_bytes=700) == [
        (number, value(number)) for number in range(100)
    ]
    closed_to = broker.on_loop(lambda node: node.partitions.get(topic, 0).log.segments()[-1].base_offset)
    assert eventually(lambda: copied_to(store, topic_id) == closed_to), "the last copy may be under way"
    manifest = manifest_of(store, topic_id)
    assert manifest is not None and manifest.pending == () and manifest.doomed == ()
    assert offset_at(client, topic, LATEST_TIERED) == manifest.next_offset - 1
    assert offset_at(client, topic, EARLIEST_PENDING_UPLOAD) == manifest.next_offset
    described = read_topic(LocalDirectory(str(store)), topic_id)
    assert described is not None and described.name == topic and described.partitions == 1


def test_the_objects_alone_hold_every_copied_message(client: WireClient, store: Path, topic: str) -> None:
    topic_id = create_tiered(client, topic)
    fill(client, topic, 60)
    assert eventually(lambda: copied_to(store, topic_id) > 40)
    objects, manifest = LocalDirectory(str(store)), manifest_of(store, topic_id)
    assert manifest is not None
    found: list[tuple[int, bytes | None]] = []
    for segment in manifest.segments:
        check_object(objects, segment)
        index = read_index(objects, segment)
        assert index.epochs == segment.epochs and index.epochs
        for chunk in index.chunks:
            found += values_of(read_chunk(objects, segment, chunk))
    assert found == [(number, value(number)) for number in range(manifest.next_offset)]


def test_offsets_are_found_by_time_in_both_parts(client: WireClient, topic: str) -> None:
    create_tiered(client, topic)
    fill(client, topic, 100)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 70)
    for number in (0, 1, 37, 70, 99):
        assert offset_at(client, topic, 1_000_000 + number) == number
    assert offset_at(client, topic, 1_000_100) == -1
    assert offset_at(client, topic, MAX_TIMESTAMP) == 99


def test_local_disk_keeps_no_more_than_local_retention_and_two_segments(
    client: WireClient, tmp_path: Path, topic: str
) -> None:
    """Files of deleted segments included, which nobody reads."""
    create_tiered(client, topic, file_delete_delay_ms="3600000")
    fill(client, topic, 200)
    directory = tmp_path / "data" / f"{topic}-0"

    def is_small() -> bool:
        batches = [path for path in directory.iterdir() if ".log" in path.name]
        return sum(path.stat().st_size for path in batches if path.exists()) <= 4000 + 2 * 2000

    assert eventually(is_small)
    assert eventually(lambda: not list(directory.glob("*.deleted")))


def test_a_copied_segment_leaves_the_disk_when_the_log_has_grown(tmp_path: Path, topic: str) -> None:
    """Not only when the next one is closed: that is a whole segment later."""
    seldom = {**settings(tmp_path / "store"), "remote.log.manager.task.interval.ms": "3600000"}
    with local_broker(tmp_path / "data", seldom) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic, local_retention_bytes="4400")
        fill(client, topic, 22)
        segments = broker.on_loop(lambda node: node.partitions.get(topic, 0).log.segments())
        assert [segment.base_offset for segment in segments] == [0, 7, 14, 21]
        assert eventually(lambda: copied_to(tmp_path / "store", topic_id) == 21)
        assert offset_at(client, topic, EARLIEST_LOCAL) == 0
        fill(client, topic, 2, 22)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) == 7)


def test_a_consumer_that_falls_behind_the_beginning_is_out_of_range(client: WireClient, topic: str) -> None:
    create_tiered(client, topic, retention_bytes="10000")
    fill(client, topic, 200)
    size = len(batch(value(199)))
    # Less than this is deleted no more: another segment would leave too little.
    assert eventually(lambda: (200 - offset_at(client, topic, EARLIEST)) * size < 10_000 + 2000 - size)
    assert read(client, topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    start = offset_at(client, topic, EARLIEST)
    assert eventually(lambda: start < offset_at(client, topic, EARLIEST_LOCAL))
    assert read_everything(client, topic) == [(number, value(number)) for number in range(start, 200)]


def test_expired_segments_are_deleted_from_the_store(tmp_path: Path, store: Path, topic: str) -> None:
    at_once = {**settings(store), "forebay.remote.delete.delay.ms": "0"}
    with local_broker(tmp_path / "data", at_once) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic, retention_bytes="10000")
        fill(client, topic, 200)
        objects = LocalDirectory(str(store))

        def only_listed() -> bool:
            manifest = manifest_of(store, topic_id)
            kept = {listed.key for listed in objects.list("topics/") if listed.key.endswith(".segment")}
            return (
                manifest is not None
                and manifest.start_offset > 100
                and kept == {segment.key for segment in manifest.segments}
            )

        assert eventually(only_listed)


def delete_below(client: WireClient, topic: str, offset: int) -> tuple[int, int]:
    wanted = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    answer = client.call(DeleteRecordsRequest(topics=[wanted], timeout_ms=30_000), 2)
    done = answer.topics[0].partitions[0]
    return done.error_code, done.low_watermark


def test_records_are_deleted_in_both_parts_and_stay_deleted(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        create_tiered(client, topic)
        fill(client, topic, 100)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 70)
        assert delete_below(client, topic, 33) == (0, 33)
        assert offset_at(client, topic, EARLIEST) == 33
        assert read(client, topic, 32).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert read_everything(client, topic)[0] == (33, value(33))
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: earliest_or_error(client, topic) == 33)
        assert delete_below(client, topic, 95) == (0, 95)
        assert read_everything(client, topic) == [(number, value(number)) for number in range(95, 100)]


def earliest_or_error(client: WireClient, topic: str) -> int:
    (found,) = client.call(list_offsets(topic, EARLIEST), LIST_OFFSETS).topics
    code = found.partitions[0].error_code
    assert code in (0, ErrorCode.OFFSET_NOT_AVAILABLE)
    offset: int = found.partitions[0].offset
    return offset


def test_a_restarted_broker_goes_on_where_it_was(tmp_path: Path, store: Path, topic: str) -> None:
    for start in (0, 60, 120):
        with (
            local_broker(tmp_path / "data", settings(store)) as broker,
            WireClient(broker.bootstrap) as client,
        ):
            if not start:
                create_tiered(client, topic)
            fill(client, topic, 60, start)
            assert eventually(lambda: earliest_or_error(client, topic) == 0)
            assert read_everything(client, topic) == [(n, value(n)) for n in range(start + 60)]


def test_an_empty_store_deletes_nothing_local(broker: LocalBroker, client: WireClient, topic: str) -> None:
    """Copying is off: local retention has nothing to go by."""
    create_tiered(client, topic, remote_log_copy_disable="true")
    fill(client, topic, 100)
    partition = broker.on_loop(lambda node: node.partitions.get(topic, 0))
    assert eventually(
        lambda: broker.on_loop(lambda _: partition.remote is not None and partition.remote.known)
    )
    assert offset_at(client, topic, EARLIEST_LOCAL) == 0
    assert offset_at(client, topic, LATEST_TIERED) == -1


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": "compact", "remote.storage.enable": "true"},
        {"cleanup.policy": "compact,delete", "remote.storage.enable": "true"},
        {"remote.storage.enable": "true", "retention.ms": "1000", "local.retention.ms": "2000"},
        {"remote.storage.enable": "true", "retention.bytes": "1000", "local.retention.bytes": "-1"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    client: WireClient, topic: str, configs: dict[str, str]
) -> None:
    (made,) = client.call(create_topic(topic, 1, **configs), CREATE_TOPICS).topics
    assert made.error_code == ErrorCode.INVALID_CONFIG


def test_a_tiered_topic_stays_tiered_and_is_not_compacted(client: WireClient, topic: str) -> None:
    create_tiered(client, topic)
    for name, text in (("remote.storage.enable", "false"), ("cleanup.policy", "compact")):
        answer = increment(client, 2, topic, (name, 0, text))
        assert answer.error_code == ErrorCode.INVALID_CONFIG


def test_a_topic_becomes_tiered_later(client: WireClient, topic: str) -> None:
    create(client, topic, 1, **{"retention.ms": "-1", "segment.bytes": "2000", "file.delete.delay.ms": "0"})
    fill(client, topic, 50)
    own = (("remote.storage.enable", 0, "true"), ("local.retention.bytes", 0, "4000"))
    assert increment(client, 2, topic, *own).error_code == 0
    fill(client, topic, 50, 50)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 70)
    assert read_everything(client, topic) == [(number, value(number)) for number in range(100)]


def test_the_objects_of_a_deleted_topic_go_even_if_the_store_was_away(
    tmp_path: Path, store: Path, topic: str
) -> None:
    kept = f"{topic}-kept"
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        ids = [create_tiered(client, name) for name in (topic, kept)]
        for name in (topic, kept):
            fill(client, name, 60)
        assert eventually(lambda: min(copied_to(store, topic_id) for topic_id in ids) > 40)
        store.rename(tmp_path / "away")
        store.write_text("no directory")
        client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    store.unlink()
    (tmp_path / "away").rename(store)
    with local_broker(tmp_path / "data", settings(store)):
        assert eventually(lambda: not (store / "topics" / ids[0].hex()).exists())
        assert copied_to(store, ids[1]) > 40


def test_the_objects_of_a_deleted_topic_wait_for_a_directory_that_is_not_mounted(
    tmp_path: Path, store: Path, client: WireClient, topic: str
) -> None:
    topic_id = create_tiered(client, topic)
    fill(client, topic, 60)
    assert eventually(lambda: copied_to(store, topic_id) > 40)
    # An upload that was under way when its store went cannot take its file away.
    (store / partition_prefix(topic_id, 0) / "cut.segment.part1-ab").write_bytes(b"half")
    store.rename(tmp_path / "away")
    store.mkdir()
    client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    time.sleep(2.5)  # more rounds than a topic is gone through
    shutil.rmtree(store)
    (tmp_path / "away").rename(store)
    assert eventually(lambda: not (store / "topics" / topic_id.hex()).exists())


def test_a_store_that_is_away_hurts_only_readers_of_old_messages(
    tmp_path: Path, store: Path, broker: LocalBroker, client: WireClient, topic: str
) -> None:
    create_tiered(client, topic)
    fill(client, topic, 60)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
    store.rename(tmp_path / "away")
    store.write_text("no directory")
    fill(client, topic, 60, 60)
    local = offset_at(client, topic, EARLIEST_LOCAL)
    assert values_of(read(client, topic, local).records)[0] == (local, value(local))
    old = read(client, topic, 5, max_wait_ms=50)
    assert (old.error_code, values_of(old.records)) == (0, [])
    assert eventually(lambda: broker.on_loop(lambda node: node.metrics.remote_failures) > 3)
    assert offset_at(client, topic, EARLIEST_LOCAL) == local, "nothing goes that the store does not have"
    store.unlink()
    (tmp_path / "away").rename(store)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 90)
    assert read_everything(client, topic) == [(number, value(number)) for number in range(120)]


def test_damaged_objects_are_not_served(store: Path, client: WireClient, topic: str) -> None:
    topic_id = create_tiered(client, topic)
    fill(client, topic, 60)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
    manifest = manifest_of(store, topic_id)
    assert manifest is not None
    path = store / manifest.segments[0].key
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"?" + whole[101:])
    assert values_of(read(client, topic, 0, max_wait_ms=200).records) == []
    path.write_bytes(whole)
    assert eventually(
        lambda: values_of(read(client, topic, 0, max_wait_ms=200).records)[:1] == [(0, value(0))]
    )


def test_a_broker_without_the_store_keeps_everything_and_says_nothing_wrong(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        create_tiered(client, topic)
        fill(client, topic, 60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
    without = {key: text for key, text in settings(store).items() if key != "forebay.remote.url"}
    with local_broker(tmp_path / "data", without) as broker, WireClient(broker.bootstrap) as client:
        local = offset_at(client, topic, EARLIEST_LOCAL)
        assert local > 30
        fill(client, topic, 60, 60)
        assert offset_at(client, topic, EARLIEST_LOCAL) == local
        (found,) = client.call(list_offsets(topic, EARLIEST), LIST_OFFSETS).topics
        assert found.partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert read(client, topic, 3).error_code == 0


def test_readers_of_committed_messages_skip_aborted_ones_in_the_store(
    broker: LocalBroker, client: WireClient, topic: str
) -> None:
    create_tiered(client, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(60)
    for number in range(20):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, value=value(number * 10 + part, 300), partition=0)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    end = offset_at(client, topic, LATEST)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > end // 2)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(int((message.value() or b"").split()[0]))
    consumer.close()
    assert found == [number * 10 + part for number in range(0, 20, 2) for part in range(3)]


def test_readers_of_the_same_chunk_share_one_read(
    store: Path, broker: LocalBroker, client: WireClient, topic: str
) -> None:
    topic_id = create_tiered(client, topic)
    fill(client, topic, 100)
    assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 70)

    def read_it() -> None:
        with WireClient(broker.bootstrap) as own:
            assert len(read_everything(own, topic)) == 100

    threads = [Thread(target=read_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    objects, manifest = LocalDirectory(str(store)), manifest_of(store, topic_id)
    assert manifest is not None
    chunks = sum(len(read_index(objects, segment).chunks) for segment in manifest.segments)
    assert 0 < broker.on_loop(lambda node: node.metrics.remote_chunks_read) <= chunks


def test_the_cache_of_old_messages_keeps_its_bound(tmp_path: Path, store: Path, topic: str) -> None:
    small = {**settings(store), "forebay.remote.cache.bytes": "9000"}
    with local_broker(tmp_path / "data", small) as broker, WireClient(broker.bootstrap) as client:
        create_tiered(client, topic)
        fill(client, topic, 200)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 170)
        for _ in range(2):
            assert len(read_everything(client, topic)) == 200
        held = [path.stat().st_size for path in (tmp_path / "data" / "remote-cache").iterdir()]
        assert 0 < sum(held) <= 9000 + 6 * 2000, "the files of a few chunks go with the next that is read"
