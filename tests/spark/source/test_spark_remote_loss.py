"""`readRemote=only` where the beginning of the remote part was deleted: lost data, as in all reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forebay.spark.arrow.schema import spark_schema
from forebay.spark.source.batch_reader import TopicReader
from forebay.spark.source.data_loss import DataLoss
from forebay.spark.source.decode import LOST
from forebay.spark.source.options import batch_options
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.object_store import ObjectStoreError
from forebay.tiers.reading import RemoteTopic, encode_topic
from forebay.wire.tiers.layout import manifest_key, topic_key
from forebay.wire.tiers.manifest import Manifest, encode_manifest
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_broker import local_broker
from support.brokers.tiered import create_tiered, eventually, fill, settings
from support.clients.config_calls import increment
from support.clients.wire_client import EARLIEST, WireClient, create, offset_at
from support.spark.reading import add, batch_reader, delete_records, rows, run, values
from support.spark.remote_segments import copy

FIRST, END = 33, 80
"""What is left in the store, of 100 messages."""


def make(bootstrap: str, topic: str, store: LocalDirectory) -> Manifest:
    with WireClient(bootstrap) as client:
        topic_id = create(client, topic)
        for first in range(0, 100, 10):
            add(client, topic, 0, 10, first)
    manifest = copy(bootstrap, store, topic, topic_id, end=END, segment_batches=2, start_offset=FIRST)
    store.put(topic_key(topic_id), encode_topic(RemoteTopic(topic, topic_id, 1, {})))
    keep(store, manifest._replace(segments=manifest.segments[1:]))
    delete_records(bootstrap, topic, 0, FIRST)
    return manifest


def keep(store: LocalDirectory, manifest: Manifest) -> None:
    store.put(manifest_key(manifest.topic_id, manifest.partition), encode_manifest(manifest))


def reader_of(bootstrap: str, topic: str, store: Path, **options: Any) -> TopicReader:
    """With brokers, or without them."""
    given = {"subscribe": topic, "remoteUrl": str(store), "readRemote": "only", **options}
    if bootstrap:
        return batch_reader(bootstrap, **given)
    parsed = batch_options({name: str(value) for name, value in given.items()})
    return TopicReader(parsed, spark_schema(headers=False))


def offsets(found: list[dict[str, Any]]) -> list[int]:
    return sorted(row["offset"] for row in found)


def from_offset(topic: str, offset: int) -> str:
    return json.dumps({topic: {"0": offset}})


@pytest.mark.parametrize("alone", [False, True], ids=["brokers", "store-alone"])
@pytest.mark.parametrize("tasks", [{}, {"maxRecordsPerPartition": "7"}], ids=["one-task", "many-tasks"])
def test_offsets_before_the_remote_part_are_lost_data(
    broker: BrokerProcess, topic: str, tmp_path: Path, alone: bool, tasks: dict[str, str]
) -> None:
    make(broker.bootstrap, topic, LocalDirectory(str(tmp_path)))
    bootstrap = "" if alone else broker.bootstrap

    def read(**options: Any) -> list[dict[str, Any]]:
        return rows(reader_of(bootstrap, topic, tmp_path, **tasks, **options))

    old = {"startingOffsets": from_offset(topic, 10)}
    with pytest.raises(DataLoss, match=rf"offsets 10 to .* of {topic}-0 are gone.*failOnDataLoss=false"):
        read(**old)
    assert offsets(read(**old, failOnDataLoss="false")) == list(range(FIRST, END))
    marked = read(**old, failOnDataLoss="false", lostRecords="mark")
    lost = [(row["offset"], int(row["value"])) for row in marked if row["timestampType"] == LOST]
    assert min(lost)[0] == 10 and sum(count for _, count in lost) == FIRST - 10
    assert len(marked) == END - FIRST + len(lost)


@pytest.mark.parametrize("alone", [False, True], ids=["brokers", "store-alone"])
def test_a_range_that_is_deleted_as_a_whole_is_lost_data(
    broker: BrokerProcess, topic: str, tmp_path: Path, alone: bool
) -> None:
    make(broker.bootstrap, topic, LocalDirectory(str(tmp_path)))
    bootstrap = "" if alone else broker.bootstrap
    old = {"startingOffsets": from_offset(topic, 10), "endingOffsets": from_offset(topic, 20)}
    with pytest.raises(DataLoss, match="offsets 10 to 19 of"):
        rows(reader_of(bootstrap, topic, tmp_path, **old))
    assert rows(reader_of(bootstrap, topic, tmp_path, **old, failOnDataLoss="false")) == []


@pytest.mark.parametrize("alone", [False, True], ids=["brokers", "store-alone"])
def test_who_asks_for_what_is_there_loses_nothing(
    broker: BrokerProcess, topic: str, tmp_path: Path, alone: bool
) -> None:
    make(broker.bootstrap, topic, LocalDirectory(str(tmp_path)))
    bootstrap = "" if alone else broker.bootstrap
    for option in ({}, {"startingOffsets": from_offset(topic, -2)}, {"minOffset": "10"}):
        assert offsets(rows(reader_of(bootstrap, topic, tmp_path, **option))) == list(range(FIRST, END))
    exact = {"startingOffsets": from_offset(topic, FIRST)}
    assert offsets(rows(reader_of(bootstrap, topic, tmp_path, **exact))) == list(range(FIRST, END))


def test_segments_that_retention_deletes_after_the_plan_are_lost_data(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    store = LocalDirectory(str(tmp_path))
    manifest = make(broker.bootstrap, topic, store)
    careful = reader_of("", topic, tmp_path)
    careless = reader_of("", topic, tmp_path, failOnDataLoss="false", lostRecords="mark")
    tasks = careful.partitions()
    for segment in manifest.segments[1:3]:
        store.delete(segment.key)
    with pytest.raises(ObjectStoreError, match="there is no object"):
        run(careful, tasks)  # the manifest still has them
    keep(store, manifest._replace(segments=manifest.segments[3:]))
    with pytest.raises(DataLoss, match=f"offsets {FIRST} to 59 of {topic}-0 are gone"):
        run(careful, tasks)
    table = run(careless, tasks)
    assert table is not None
    found = {row["offset"]: row["value"] for row in table.to_pylist() if row["timestampType"] != LOST}
    assert sorted(found) == list(range(60, END))
    assert [row["value"] for row in table.to_pylist() if row["timestampType"] == LOST] == [b"27"]


def test_retention_of_a_tiered_topic_is_lost_data_to_who_asks_for_its_beginning(
    tmp_path: Path, topic: str
) -> None:
    """The broker itself has deleted the first segments from the store."""
    store = tmp_path / "store"
    with local_broker(tmp_path / "data", settings(store)) as started, WireClient(started.bootstrap) as client:
        create_tiered(client, topic)
        fill(client, topic, 100)
        assert eventually(lambda: offset_at(client, topic, -4) > 60)
        # Nearly all is copied. Otherwise what is not may be all that retention keeps.
        assert eventually(lambda: offset_at(client, topic, -5) > 85)
        assert increment(client, 2, topic, ("retention.bytes", 0, "6000")).error_code == 0
        assert eventually(lambda: offset_at(client, topic, EARLIEST) > 0)
        bootstrap = started.bootstrap
        for mode in ("only", "auto", "never"):
            options: dict[str, Any] = {
                "subscribe": topic,
                "readRemote": mode,
                "startingOffsets": from_offset(topic, 0),
            }
            with pytest.raises(DataLoss):
                values(batch_reader(bootstrap, **options))
            assert values(batch_reader(bootstrap, **options, failOnDataLoss="false"))
        assert values(batch_reader(bootstrap, subscribe=topic, readRemote="only"))
