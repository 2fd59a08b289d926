"""A topic, or a whole cluster, comes back from the object store alone: with its offsets, and its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.core.cluster.images.topic_image import Adopted, TopicRecord
from forebay.core.cluster.stored.image_text import decode_topic, encode_topic
from forebay.errors import ErrorCode
from forebay.wire.messages.delete_topics import DeleteTopicsRequest
from support.brokers.forebay_command import forebay
from support.brokers.local_broker import local_broker
from support.brokers.local_cluster import eventually as eventually_on_loop
from support.brokers.local_cluster import local_cluster
from support.brokers.tiered import (
    copied_to,
    create_tiered,
    eventually,
    failure_of,
    fill,
    is_readable,
    manifest_of,
    settings,
    value,
    values_from,
)
from support.clients.config_calls import increment
from support.clients.wire_client import (
    CREATE_TOPICS,
    EARLIEST,
    LATEST,
    WireClient,
    create_topic,
    fetch,
    offset_at,
    only_partition,
    values_of,
)

EARLIEST_LOCAL = -4
RESTORE = "forebay.remote.restore"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def copied(tmp_path: Path, store: Path, *topics: str, **configs: str) -> list[bytes]:
    """The ids of tiered topics of a cluster that is gone, most of whose messages are in the store."""
    with local_broker(tmp_path / "lost", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        ids = [create_tiered(client, topic, **configs) for topic in topics]
        for topic in topics:
            fill(client, topic, 60)
        assert eventually(lambda: min(copied_to(store, each) for each in ids) > 40)
    return ids


def test_a_restored_topic_goes_on_at_its_offsets(tmp_path: Path, store: Path, topic: str) -> None:
    (topic_id,) = copied(tmp_path, store, topic)
    before = manifest_of(store, topic_id)
    assert before is not None
    end = before.next_offset
    for round_ in range(2):  # the second time after a restart
        with (
            local_broker(tmp_path / "new", settings(store)) as broker,
            WireClient(broker.bootstrap) as client,
        ):
            if not round_:
                done = forebay("topic", "restore", topic, "--yes", bootstrap=broker.bootstrap)
                assert done.code == 0, done.err
                assert offset_at(client, topic, LATEST) == offset_at(client, topic, EARLIEST_LOCAL) == end
                assert eventually(lambda: is_readable(client, topic))
                assert values_from(client, topic, 7) == [(n, value(n)) for n in range(7, end)]
                fill(client, topic, 60, end)
                assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > end + 30)
            assert eventually(lambda: is_readable(client, topic))
            assert offset_at(client, topic, EARLIEST) == 0
            assert values_from(client, topic, 0) == [(n, value(n)) for n in range(end + 60)]
    after = manifest_of(store, topic_id)
    assert after is not None and after.segments[: len(before.segments)] == before.segments


def test_every_topic_of_a_lost_cluster_is_restored_with_its_settings(tmp_path: Path, store: Path) -> None:
    ids = copied(tmp_path, store, "orders", "clicks", max_message_bytes="123456")
    with local_broker(tmp_path / "new", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        plan = forebay("topic", "restore", "--all", "--plan", "--json", bootstrap=broker.bootstrap).json()
        assert [(each["topic"], each["partitions"]) for each in plan] == [("clicks", 1), ("orders", 1)]
        assert plan[1]["offsets"] == copied_to(store, ids[0])
        assert all(not each["problem"] for each in plan)
        asked = forebay("topic", "restore", "--all", bootstrap=broker.bootstrap)
        assert asked.code != 0 and "--yes" in asked.err, "it does nothing unasked"
        done = forebay("topic", "restore", "--all", "--yes", bootstrap=broker.bootstrap)
        assert done.code == 0, done.err
        for topic, topic_id in zip(("orders", "clicks"), ids, strict=True):
            described = forebay("topic", "describe", topic, "--json", bootstrap=broker.bootstrap).json()
            assert described["configs"]["max.message.bytes"] == "123456"
            assert eventually(lambda topic=topic: is_readable(client, topic))  # type: ignore[misc]
            end = copied_to(store, topic_id)
            assert values_from(client, topic, 0) == [(n, value(n)) for n in range(end)]
        again = forebay("topic", "restore", "--all", "--yes", bootstrap=broker.bootstrap)
        assert again.code != 0 and "already" in again.err


def test_settings_that_were_changed_later_are_restored(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "lost", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        fill(client, topic, 30)
        assert eventually(lambda: copied_to(store, topic_id) > 10)
        assert increment(client, 2, topic, ("max.message.bytes", 0, "123456")).error_code == 0
        fill(client, topic, 30, 30)
        assert eventually(lambda: copied_to(store, topic_id) > 40)
    with local_broker(tmp_path / "new", settings(store)) as broker:
        assert forebay("topic", "restore", topic, "--yes", bootstrap=broker.bootstrap).code == 0
        described = forebay("topic", "describe", topic, "--json", bootstrap=broker.bootstrap).json()
        assert described["configs"]["max.message.bytes"] == "123456"


def test_a_topic_that_exists_or_was_deleted_here_is_not_restored(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        fill(client, topic, 60)
        assert eventually(lambda: copied_to(store, topic_id) > 40)

        def restored_as(name: str, source: str) -> int:
            request = create_topic(name, -1, **{RESTORE: source})
            code: int = client.call(request, CREATE_TOPICS).topics[0].error_code
            return code

        assert restored_as("other", topic_id.hex()) == ErrorCode.TOPIC_ALREADY_EXISTS
        assert restored_as("other", "00" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
        assert restored_as("other", "nonsense") == ErrorCode.INVALID_CONFIG
        shown = forebay("topic", "restore", topic, "--plan", "--json", bootstrap=broker.bootstrap).json()
        assert "already" in shown[0]["problem"]
        client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
        assert restored_as("other", topic_id.hex()) in (
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_TOPIC_ID,  # its objects are gone by now
        )


def test_a_broker_without_an_object_store_says_what_to_do(tmp_path: Path, store: Path, topic: str) -> None:
    (topic_id,) = copied(tmp_path, store, topic)
    with local_broker(tmp_path / "new") as broker, WireClient(broker.bootstrap) as client:
        done = forebay("topic", "restore", topic, "--remote", str(store), bootstrap=broker.bootstrap)
        assert done.code != 0 and "forebay.remote.url" in done.err and "--new-offsets" in done.err
        request = create_topic(topic, -1, **{RESTORE: topic_id.hex()})
        (answer,) = client.call(request, CREATE_TOPICS).topics
        assert answer.error_code == ErrorCode.INVALID_CONFIG


def test_a_cluster_that_still_uses_the_topic_is_fenced(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "old", settings(store)) as old, WireClient(old.bootstrap) as former:
        topic_id = create_tiered(former, topic)
        fill(former, topic, 60)
        assert eventually(lambda: copied_to(store, topic_id) > 40)
        with (
            local_broker(tmp_path / "new", settings(store)) as broker,
            WireClient(broker.bootstrap) as client,
        ):
            assert forebay("topic", "restore", topic, "--yes", bootstrap=broker.bootstrap).code == 0
            assert eventually(lambda: is_readable(client, topic))
            end = offset_at(client, topic, LATEST)
            fill(former, topic, 30, 60)
            fill(client, topic, 60, 1000)
            assert eventually(lambda: copied_to(store, topic_id) > end + 30)
            expected = [value(n) for n in range(end)] + [value(n) for n in range(1000, 1060)]
            assert [text for _, text in values_from(client, topic, 0)] == expected
            assert eventually(lambda: "restored to another cluster" in failure_of(old, topic))


async def test_all_replicas_of_a_restored_topic_begin_where_the_store_ends(
    tmp_path: Path, store: Path
) -> None:
    (topic_id,) = copied(tmp_path, store, "t")
    end = copied_to(store, topic_id)
    async with local_cluster(tmp_path / "cluster", settings(store)) as cluster:
        own = {"retention.ms": "-1", "min.insync.replicas": "1"}
        request = create_topic("t", -1, **{RESTORE: topic_id.hex(), **own})
        (made,) = (await cluster.ask(1, request, 7)).topics
        assert (made.error_code, made.topic_id) == (ErrorCode.NONE, topic_id)
        await cluster.knows("t")
        await cluster.in_sync("t")
        for node in cluster.nodes:
            log = cluster[node].partitions.held("t", 0).log
            assert (log.start_offset, log.end_offset) == (end, end)
        first = cluster.leader("t")
        await cluster.kill(first)
        await cluster.bury(first)
        await eventually_on_loop(lambda: cluster.leader("t") not in (first, -1))
        await cluster.knows("t")
        remote = cluster[cluster.leader("t")].partitions.held("t", 0).remote
        await eventually_on_loop(lambda: remote is not None and remote.known)
        found: list[tuple[int, bytes | None]] = []
        while len(found) < end:
            wanted = fetch("t", len(found), max_wait_ms=500)
            data = only_partition(await cluster.ask(cluster.leader("t"), wanted, 12))
            assert data.error_code == ErrorCode.NONE, data.error_code
            found += [item for item in values_of(data.records) if item[0] >= len(found)]
    assert found == [(n, value(n)) for n in range(end)]


def test_the_record_of_a_restored_topic_is_stored() -> None:
    record = TopicRecord(
        name="t",
        topic_id=bytes(16),
        assignment=((1, 2), (2, 1)),
        adopted=(Adopted(40, 1007), Adopted(0, 1000)),
    )
    assert decode_topic("t", encode_topic(record)) == record
    states = [record.initial_state(index) for index in range(2)]
    assert [state.leader_epoch for state in states] == [1007, 1000]
    assert (record.first_offset(0), record.first_offset(2)) == (40, 0)
