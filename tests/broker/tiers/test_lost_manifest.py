"""A manifest that somebody has deleted: nothing is given up, and it can be made anew from its segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.operations.manifest_rebuild import rebuild_manifests
from forebay.operations.remote_store import check_store
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.object_store import ManifestMissing
from forebay.tiers.reading import read_manifest
from forebay.wire.tiers.layout import manifest_key
from support.brokers.forebay_command import forebay
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.tiered import (
    copied_to,
    create_tiered,
    eventually,
    fill,
    is_readable,
    manifest_of,
    settings,
    value,
    values_from,
)
from support.clients.wire_client import EARLIEST, LIST_OFFSETS, WireClient, list_offsets, offset_at

EARLIEST_LOCAL = -4


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def failure_of(broker: LocalBroker, topic: str) -> str:
    remote = broker.on_loop(lambda node: node.partitions.get(topic, 0).remote)
    return "" if remote is None or remote.failure is None else remote.failure


def copied(broker: LocalBroker, store: Path, topic: str) -> bytes:
    """A tiered topic whose first messages have left the local disk."""
    with WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        fill(client, topic, 60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
    return topic_id


def lose_manifest(store: Path, topic_id: bytes) -> None:
    (store / manifest_key(topic_id, 0)).unlink()


def test_a_start_without_its_manifest_gives_up_nothing_until_it_is_made_anew(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    before = manifest_of(store, topic_id)
    lose_manifest(store, topic_id)
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: "forebay remote rebuild" in failure_of(broker, topic))
        (found,) = client.call(list_offsets(topic, EARLIEST), LIST_OFFSETS).topics
        assert found.partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE, "not the local start"
        local_start = offset_at(client, topic, EARLIEST_LOCAL)
        fill(client, topic, 60, 60)
        other = create_tiered(client, "other")
        fill(client, "other", 60)
        assert eventually(lambda: copied_to(store, other) > 40), "the store is not taken for one that fails"
        assert offset_at(client, topic, EARLIEST_LOCAL) == local_start, "nothing leaves the disk"
        done = forebay("remote", "rebuild", str(store), "--json")
        assert done.code == 0 and [each["topic"] for each in done.json()] == [topic], done.err
        assert eventually(lambda: is_readable(client, topic))
        assert offset_at(client, topic, EARLIEST) == 0
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(120)]
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > local_start + 40)
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(120)]
    after = manifest_of(store, topic_id)
    assert before is not None and after is not None
    listed = [each._replace(copied_ms=0) for each in before.segments]
    assert [each._replace(copied_ms=0) for each in after.segments[: len(listed)]] == listed
    assert check_store(LocalDirectory(str(store)), age_min_ms=0, deep=True).problems == []


def test_one_that_is_lost_under_way_stops_copying_and_not_reading(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        lose_manifest(store, topic_id)
        fill(client, topic, 60, 60)
        assert eventually(lambda: "forebay remote rebuild" in failure_of(broker, topic))
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(120)]
        assert forebay("remote", "rebuild", str(store), topic).code == 0
        assert eventually(lambda: copied_to(store, topic_id) > 100)
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(120)]


def test_a_topic_without_its_manifest_is_not_restored_as_an_empty_one(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "lost", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    end = copied_to(store, topic_id)
    lose_manifest(store, topic_id)
    listed = forebay("remote", "list", str(store))
    assert listed.code == 0 and manifest_key(topic_id, 0) in listed.err
    with local_broker(tmp_path / "new", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        refused = forebay("topic", "restore", topic, "--yes", bootstrap=broker.bootstrap)
        assert refused.code == 1 and "forebay remote rebuild" in refused.err
        assert forebay("remote", "rebuild", str(store), "--plan").code == 0
        with pytest.raises(ManifestMissing):
            read_manifest(LocalDirectory(str(store)), topic_id, 0)
        assert forebay("remote", "rebuild", str(store)).code == 0
        done = forebay("topic", "restore", topic, "--yes", bootstrap=broker.bootstrap)
        assert done.code == 0, done.err
        assert eventually(lambda: is_readable(client, topic))
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(end)]


def test_one_that_cannot_be_read_is_made_anew_and_damaged_segments_are_not_in_it(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    before = manifest_of(store, topic_id)
    assert before is not None and len(before.segments) > 3
    objects = LocalDirectory(str(store))
    assert list(rebuild_manifests(objects, write=True)) == [], "what can be read is left alone"
    (store / manifest_key(topic_id, 0)).write_bytes(b"{")
    damaged = store / before.segments[1].key
    damaged.write_bytes(damaged.read_bytes()[:-1])
    (found,) = rebuild_manifests(objects, write=True)
    assert [each.split(":")[0] for each in found.problems] == [before.segments[1].key]
    assert found.left_out == [before.segments[0].key], "there is a gap behind it"
    assert (found.start_offset, found.next_offset) == (before.segments[2].base_offset, before.next_offset)
    after = manifest_of(store, topic_id)
    assert after is not None and after.segments[-1].sha256 == before.segments[-1].sha256


def test_a_topic_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = forebay("remote", "rebuild", str(tmp_path), "nothing")
    assert done.code == 1 and "has no topic nothing" in done.err
