"""`forebay remote` and `forebay topic restore`: looking into the object store, and bringing topics back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.operations.remote_store import check_store, committed_messages
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.object_store import Listed
from forebay.tiers.reading import read_topic
from forebay.wire.batch import records
from forebay.wire.tiers.layout import MANIFEST, manifest_key, topic_key
from support.brokers.forebay_command import forebay
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.tiered import copied_to, create_tiered, eventually, fill, manifest_of, settings, value
from support.clients.wire_client import WireClient, read_all


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def broker(tmp_path: Path, store: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        yield broker


def copied(broker: LocalBroker, store: Path, topic: str, **configs: str) -> bytes:
    """A tiered topic of which everything but the last segment is in the store."""
    with WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic, **configs)
        fill(client, topic, 60)
    assert eventually(lambda: copied_to(store, topic_id) > 40)
    return topic_id


def test_the_store_lists_its_topics_and_is_found_in_order(
    broker: LocalBroker, store: Path, topic: str
) -> None:
    topic_id = copied(broker, store, topic)
    (row,) = forebay("remote", "list", str(store), "--json").json()
    assert (row["topic"], row["topic_id"], row["partitions"]) == (topic, topic_id.hex(), 1)
    done = forebay("remote", "check", str(store), "--deep")
    assert done.code == 0 and "1 topics, 1 partitions" in done.out


def test_a_tiered_topic_is_described_with_what_lies_where(
    broker: LocalBroker, store: Path, topic: str
) -> None:
    topic_id = copied(broker, store, topic)
    manifest = manifest_of(store, topic_id)
    assert manifest is not None
    found = forebay("topic", "describe", topic, "--json", bootstrap=broker.bootstrap).json()
    (described,) = found["partitions"]
    assert described["copied_to"] >= manifest.next_offset > described["local_start_offset"] - 60
    assert described["remote_bytes"] >= manifest.data_bytes > 0
    assert described["waiting_segments"] * 2000 >= described["waiting_bytes"] >= 0
    assert described["remote_problem"] is None
    shown = forebay("topic", "describe", topic, bootstrap=broker.bootstrap)
    assert "REMOTE BYTES" in shown.out and "NOT COPIED" in shown.out and shown.err == ""


def test_why_a_store_fails_is_told_by_describe_and_top(broker: LocalBroker, store: Path, topic: str) -> None:
    copied(broker, store, topic)
    store.rename(store.with_name("away"))
    store.mkdir()
    with WireClient(broker.bootstrap) as client:
        fill(client, topic, 40, start=60)
    assert eventually(
        lambda: "not the object store" in forebay("topic", "describe", topic, bootstrap=broker.bootstrap).err
    )
    (problem,) = forebay("top", "--once", "--json", bootstrap=broker.bootstrap).json()["problems"]
    assert problem.startswith("the object store fails for 1 partitions: ")
    assert problem.endswith(f"`forebay topic describe {topic}`")


def test_orphans_and_damage_are_found_and_orphans_deleted(
    broker: LocalBroker, store: Path, topic: str
) -> None:
    topic_id = copied(broker, store, topic)
    objects = LocalDirectory(str(store))
    orphan = f"topics/{topic_id.hex()}/0/{0:020d}-{9:020d}-0-abc.segment"
    objects.put(orphan, b"left over")
    found = forebay("remote", "check", str(store), "--min-age", "0ms", "--json")
    assert found.code == 0 and found.json()["orphans"] == [orphan]
    assert forebay("remote", "check", str(store), "--json").json()["young"] == 1
    forebay("remote", "check", str(store), "--min-age", "0ms", "--delete-orphans")
    assert orphan not in {listed.key for listed in objects.list("topics/")}
    manifest = manifest_of(store, topic_id)
    assert manifest is not None
    path = store / manifest.segments[0].key
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert forebay("remote", "check", str(store)).code == 0, "the size is right"
    done = forebay("remote", "check", str(store), "--deep")
    assert done.code == 1 and manifest.segments[0].key in done.out


def test_what_a_lost_manifest_listed_is_not_deleted(broker: LocalBroker, store: Path, topic: str) -> None:
    """A manifest that is merely absent is no reason to delete a history."""
    topic_id = copied(broker, store, topic)
    broker.stop()
    before = objects_in(store)
    (store / manifest_key(topic_id, 0)).rename(store / "elsewhere")
    done = forebay("remote", "check", str(store), "--min-age", "0ms", "--delete-orphans")
    assert done.code == 1 and f"{manifest_key(topic_id, 0)}: it is missing" in done.out
    assert objects_in(store) == before
    (store / topic_key(topic_id)).unlink()
    done = forebay("remote", "check", str(store), "--min-age", "0ms", "--delete-orphans")
    assert done.code == 1 and "remove what is left of it by hand" in done.out
    assert objects_in(store) == before, "the topic may have been removed, or both were lost"


def test_what_a_manifest_lists_has_an_owner_though_the_manifest_is_not_listed_yet(
    broker: LocalBroker, store: Path, topic: str
) -> None:
    copied(broker, store, topic)
    broker.stop()

    class Late(LocalDirectory):
        def list(self, prefix: str) -> Iterator[Listed]:
            return (each for each in super().list(prefix) if not each.key.endswith(MANIFEST))

    report = check_store(Late(str(store)), age_min_ms=0)
    assert report.segments and (report.orphans, report.young, report.problems) == ([], 0, [])


def objects_in(store: Path) -> set[str]:
    return {each.key for each in LocalDirectory(str(store)).list("topics/") if each.key.endswith(".segment")}


def test_a_topic_comes_back_from_the_store_alone(
    tmp_path: Path, broker: LocalBroker, store: Path, topic: str
) -> None:
    topic_id = copied(broker, store, topic)
    manifest = manifest_of(store, topic_id)
    assert manifest is not None
    with local_broker(tmp_path / "other") as other:
        done = forebay(
            "topic", "restore", topic, "--new-offsets", "--remote", str(store), bootstrap=other.bootstrap
        )
        assert done.code == 0, done.err
        with WireClient(other.bootstrap) as client:
            found = read_all(client, topic)
    assert found[: manifest.next_offset] == [(n, value(n)) for n in range(manifest.next_offset)]


def test_times_come_back_that_brokers_have_set(
    tmp_path: Path, broker: LocalBroker, store: Path, topic: str
) -> None:
    limits = {"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": "1"}
    topic_id = copied(broker, store, topic, **limits)
    objects, manifest = LocalDirectory(str(store)), manifest_of(store, topic_id)
    assert manifest is not None
    described = read_topic(objects, topic_id)
    assert described is not None
    with local_broker(tmp_path / "other") as other:
        done = forebay(
            "topic", "restore", topic, "--new-offsets", "--remote", str(store), bootstrap=other.bootstrap
        )
        assert done.code == 0, done.err
        partition = other.on_loop(lambda node: node.partitions.get(topic, 0))
        batches = [batch for stretch in partition.log.stretches(0) for batch, _ in stretch.batches()]
    brought_back = [record.timestamp for batch in batches for record in records(batch)]
    # More may have been copied since.
    times = [record.timestamp for record in committed_messages(objects, described, 0)]
    assert brought_back and brought_back == times[: len(brought_back)]


def test_a_description_says_where_messages_are(broker: LocalBroker, store: Path, topic: str) -> None:
    topic_id = copied(broker, store, topic)
    (part,) = forebay("topic", "describe", topic, "--json", bootstrap=broker.bootstrap).json()["partitions"]
    assert part["start_offset"] == 0
    assert 0 < part["copied_to"] <= copied_to(store, topic_id)
    assert "COPIED TO" in forebay("topic", "describe", topic, bootstrap=broker.bootstrap).out
