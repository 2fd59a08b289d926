"""Spark's readers on a broker that keeps old segments in an object store: both ways give the same rows."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ConfigError
from forebay.spark.arrow.schema import spark_schema
from forebay.spark.source.batch_reader import TopicReader
from forebay.spark.source.options import batch_options
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.reading import RemoteTopic, encode_topic, read_topic
from forebay.wire.batch import build_batch
from forebay.wire.records import Record
from forebay.wire.tiers.layout import topic_key
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.tiered import (
    copied_to,
    create_tiered,
    eventually,
    fill,
    settings,
    value,
)
from support.clients.config_calls import increment
from support.clients.wire_client import WireClient, append, create, offset_at
from support.scraping import free_port, scrape
from support.spark.reading import batch_reader, micro_batch, rows, stream_reader, values

EARLIEST_LOCAL = -4
METRICS_PORT = free_port()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def broker(tmp_path: Path, store: Path) -> Iterator[LocalBroker]:
    scraped = {"forebay.metrics.listener": f"127.0.0.1:{METRICS_PORT}"}
    with local_broker(tmp_path / "data", {**settings(store), **scraped}) as started:
        yield started


def bytes_out() -> float:
    return scrape(("127.0.0.1", METRICS_PORT))("kafka_server_brokertopicmetrics_bytesout_total")


def wanted(*numbers: int) -> list[bytes]:
    return sorted(map(value, range(*numbers)))


def make(broker: LocalBroker, topic: str, count: int) -> bytes:
    """A topic most of whose messages are in the object store alone."""
    with WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        fill(client, topic, count)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > count - 30)
    return topic_id


def test_the_place_is_asked_of_the_brokers(broker: LocalBroker, store: Path, topic: str) -> None:
    topic_id = make(broker, topic, 100)
    before = bytes_out()
    copied = copied_to(store, topic_id)
    only = batch_reader(broker.bootstrap, subscribe=topic, readRemote="only")
    found = values(only)
    assert len(found) >= copied and found == wanted(len(found))  # more may have been copied since
    assert bytes_out() == before
    assert values(batch_reader(broker.bootstrap, subscribe=topic)) == wanted(100)
    assert bytes_out() - before < 300 * (100 - copied + 5), "brokers send no more than what is not remote"
    assert values(batch_reader(broker.bootstrap, subscribe=topic, readRemote="never")) == wanted(100)


def test_a_broker_that_waits_for_the_store_makes_readers_wait_and_not_skip(
    broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers a fetch without records when the store takes longer than the fetch may."""
    make(broker, topic, 60)
    read = LocalDirectory.get_range

    def slow(store: LocalDirectory, key: str, position: int, length: int) -> bytes:
        time.sleep(0.8)
        return read(store, key, position, length)

    monkeypatch.setattr(LocalDirectory, "get_range", slow)
    assert values(batch_reader(broker.bootstrap, subscribe=topic, readRemote="never")) == wanted(60)


def test_a_stream_goes_from_the_store_to_the_brokers(broker: LocalBroker, topic: str) -> None:
    make(broker, topic, 100)
    reader = stream_reader(
        broker.bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40
    )
    found: list[bytes] = []
    position: Any = reader.initialOffset()
    for _ in range(3):
        rows, position = micro_batch(reader, position)
        found += rows
    assert sorted(found) == wanted(100)


def test_a_topic_that_was_compacted_before_is_read_with_its_gaps(
    tmp_path: Path, store: Path, topic: str
) -> None:
    """The last messages of some segments were removed: these end before the next ones begin."""
    eager = {"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0"}
    with (
        local_broker(tmp_path / "data", {**settings(store), **eager}) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        compacted = {"cleanup.policy": "compact", "segment.bytes": "2000", "file.delete.delay.ms": "0"}
        topic_id = create(client, topic, 1, **compacted)
        for number in range(60):
            key = b"%d" % (number if number % 9 == 0 else number % 3)
            record = Record(0, 1_000_000 + number, key, value(number))
            assert append(client, topic, bytes(build_batch([record]))).error_code == 0
        all_of_it: dict[str, Any] = {"subscribe": topic, "readRemote": "never"}
        assert eventually(lambda: len(by_offset(batch_reader(broker.bootstrap, **all_of_it))) < 30)
        tiered = ("cleanup.policy", 0, "delete"), ("remote.storage.enable", 0, "true")
        kept = ("retention.ms", 0, "-1"), ("local.retention.bytes", 0, "4000")
        assert increment(client, 2, topic, *tiered, *kept).error_code == 0
        fill(client, topic, 40, start=60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 60)
        end = copied_to(store, topic_id)
        options: dict[str, Any] = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": end}})}
        copied = by_offset(batch_reader(broker.bootstrap, **options, readRemote="never"))
        assert copied == {at: value(at) for at in copied} and not copied.keys() >= set(range(60))
        assert copied.keys() >= set(range(60, end)) and copied.keys() & set(range(50))
        for read in ("only", "auto"):
            assert by_offset(batch_reader(broker.bootstrap, **options, readRemote=read)) == copied, read
        for start in range(end - 3):
            narrow: dict[str, Any] = {"minOffset": start, "maxOffset": start + 2, "readRemote": "only"}
            found = by_offset(batch_reader(broker.bootstrap, **options, **narrow))
            assert found == {at: copied[at] for at in range(start, start + 3) if at in copied}


def by_offset(reader: TopicReader) -> dict[int, bytes | None]:
    return {row["offset"]: row["value"] for row in rows(reader)}


def test_the_store_alone_is_read_when_its_brokers_are_gone(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = make(broker, topic, 100)
        assert eventually(lambda: read_topic(LocalDirectory(str(store)), topic_id) is not None)
    copied = copied_to(store, topic_id)
    alone = {"remoteUrl": str(store), "readRemote": "only"}

    def found(**options: str) -> list[bytes]:
        return values(TopicReader(batch_options({**alone, **options}), spark_schema(headers=False)))

    assert found(subscribe=topic) == found(subscribePattern=".*") == wanted(copied)
    assert found(subscribe=topic_id.hex()) == wanted(copied)
    assert found(subscribe=topic, minOffset="10", maxOffset="40") == wanted(10, 41)
    assert found(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 20}})) == wanted(20, copied)
    for name in ("other", f"{topic},other", "0" * 32):
        with pytest.raises(ConfigError, match=r"has no topic (other|0000)"):
            found(subscribe=name)
    anew = RemoteTopic(topic, bytes(16), 1, {})
    LocalDirectory(str(store)).put(topic_key(bytes(16)), encode_topic(anew))
    with pytest.raises(ConfigError, match=f"has two topics {topic}"):
        found(subscribe=topic)
    assert found(subscribe=topic_id.hex()) == wanted(copied)
    with pytest.raises(ConfigError, match=r"startingTimestamp needs kafka\.bootstrap\.servers"):
        found(subscribe=topic, startingTimestamp="5")
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        batch_options({"subscribe": topic, "remoteUrl": str(store)})


def test_reads_while_segments_are_copied_and_deleted(broker: LocalBroker, topic: str) -> None:
    """Each read has all messages that were there when it was planned."""
    with WireClient(broker.bootstrap) as client:
        create_tiered(client, topic)
        fill(client, topic, 50)
    stopped = threading.Event()

    def write() -> None:
        number = 50
        with WireClient(broker.bootstrap) as own:
            while not stopped.is_set():
                fill(own, topic, 5, start=number)
                number += 5
                time.sleep(0.05)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(8):
            found = values(batch_reader(broker.bootstrap, subscribe=topic))
            assert len(found) >= 50 and found == wanted(len(found))
    finally:
        stopped.set()
        writing.join()
