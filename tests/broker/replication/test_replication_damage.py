"""Replicas whose logs are not what they should be: of another topic, cut short, damaged, of no epoch."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.partition.partition import Partition
from forebay.broker.replication.follower_append import FollowerAppend
from forebay.core.cluster.images.deleted_topics import TombstoneDeleted
from forebay.errors import ErrorCode
from forebay.storage.real_disk import RealDisk
from forebay.storage.strays import strays
from forebay.wire.batch import split
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce
from support.faults.faulty_disk import FaultyDisk

ACKS_ALL = -1
PRODUCE, CREATE_TOPICS, DELETE_TOPICS = 9, 7, 6
TOPIC = "t"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path, {"replica.lag.time.max.ms": "60000"}) as running:
        await create(running)
        yield running


async def create(cluster: LocalCluster, **configs: str) -> None:
    node = cluster.nodes[0]
    (made,) = (await cluster.ask(node, create_topic(TOPIC, 1, **configs), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)


async def delete(cluster: LocalCluster) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=5000)
    (gone,) = (await cluster.ask(cluster.nodes[0], request, DELETE_TOPICS)).responses
    assert gone.error_code == ErrorCode.NONE
    await eventually(lambda: all(TOPIC not in cluster[node].image.topics for node in cluster.nodes))


async def append(cluster: LocalCluster, *values: bytes, acks: int = ACKS_ALL, **how: Any) -> Any:
    request = produce(TOPIC, batch(*values, **how), acks=acks)
    return only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))


def held(cluster: LocalCluster, node: int) -> Partition:
    return cluster[node].partitions.held(TOPIC, 0)


def contents(cluster: LocalCluster, node: int) -> bytes:
    return b"".join(bytes(view) for view, _ in held(cluster, node).log.files.scan(0))


def same_logs(cluster: LocalCluster) -> bool:
    return len({contents(cluster, node) for node in cluster.nodes}) == 1


async def test_a_topic_made_again_has_nothing_of_the_old_one(cluster: LocalCluster, tmp_path: Path) -> None:
    await append(cluster, b"old", b"old", b"old")
    await eventually(lambda: same_logs(cluster))
    absent = cluster.state(TOPIC).replicas[2]
    await cluster.kill(absent)
    await delete(cluster)
    await create(cluster)
    assert absent in cluster.state(TOPIC).replicas, "it is missed only later"
    await append(cluster, b"new", b"new", b"new", b"new", acks=1)
    await cluster.start(absent)
    await cluster.in_sync(TOPIC)
    await eventually(lambda: held(cluster, absent).log.end_offset == 4)
    await eventually(lambda: same_logs(cluster))
    assert not list((tmp_path / f"node-{absent}").glob("*-stray")), "the store says it was deleted"


async def test_what_is_left_of_a_topic_that_nobody_remembers_is_put_aside(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await append(cluster, b"old", b"old", b"old")
    await eventually(lambda: same_logs(cluster))
    absent = cluster.state(TOPIC).replicas[2]
    await cluster.kill(absent)
    await delete(cluster)
    other = cluster[next(node for node in cluster.nodes if node != absent)]
    (topic_id,) = other.image.deleted
    await other.metadata.change(lambda _: [TombstoneDeleted(topic_id=topic_id)])
    await create(cluster)
    await cluster.start(absent)
    await cluster.in_sync(TOPIC)
    directory = tmp_path / f"node-{absent}"
    (found,) = strays(RealDisk(), str(directory))
    assert (found.topic, found.partition, found.topic_id, found.end_offset) == (TOPIC, 0, topic_id, 3)
    assert not found.in_place
    assert cluster[absent].data.aside.count == 1


# -- epochs ------------------------------------------------------------------------------------------------


def cut_off(cluster: LocalCluster, node: int) -> None:
    """Have a broker fetch this partition no more."""
    cluster[node].replication.following.dropped(held(cluster, node))


async def test_an_epoch_without_a_batch_is_not_taken_for_that_of_older_batches(
    cluster: LocalCluster,
) -> None:
    """A leader that wrote nothing follows one that has more of the epoch before."""
    leader, short, _ = cluster.state(TOPIC).replicas
    await append(cluster, b"a")
    await eventually(lambda: same_logs(cluster))
    cut_off(cluster, short)
    await append(cluster, b"b", acks=1)
    state = cluster.state(TOPIC)
    partition = held(cluster, short)
    partition.lead(short, replace(state, leader=short, leader_epoch=state.leader_epoch + 1), 0)
    partition.epochs.datasync()
    partition.follow(replace(state, leader_epoch=state.leader_epoch + 2))
    await cluster.lead(TOPIC, 0, leader)  # one epoch before the last is skipped
    await cluster.change(TOPIC, 0, leader_epoch=state.leader_epoch + 2)
    await append(cluster, b"c")
    await eventually(lambda: same_logs(cluster))
    assert partition.epochs.entries == held(cluster, leader).epochs.entries


# -- what comes damaged ------------------------------------------------------------------------------------


def overwrite(cluster: LocalCluster, node: int, position: int, data: bytes) -> None:
    """Damage the log of a broker behind its back."""
    directory = Path(held(cluster, node).log.directory)
    with (directory / "00000000000000000000.log").open("r+b") as file:
        file.seek(position)
        file.write(data)


def on_disk(cluster: LocalCluster, node: int) -> int:
    """Where the log ends in the file, whatever is in memory."""
    data = (Path(held(cluster, node).log.directory) / "00000000000000000000.log").read_bytes()
    return split(data)[-1][1].next_offset if data else 0


@pytest.mark.parametrize("at", [8, 65], ids=["length", "content"])
async def test_a_damaged_batch_stops_the_replica_and_not_the_broker(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    leader, follower, third = cluster.state(TOPIC).replicas
    await append(cluster, b"a")
    await eventually(lambda: same_logs(cluster))
    for node in (follower, third):
        cut_off(cluster, node)
    await append(cluster, b"b", acks=1)
    size = len(contents(cluster, leader))
    await append(cluster, b"c", acks=1)
    overwrite(cluster, leader, size + at, b"\x7f\x01\x02\x03")
    cluster[follower].assignment.roles.taken.send(held(cluster, follower), cluster.state(TOPIC))
    await eventually(lambda: "a partition cannot follow" in caplog.text)
    assert held(cluster, follower).log.end_offset == on_disk(cluster, follower)
    (made,) = (await cluster.ask(follower, create_topic("other"), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE


# -- what is cut short -------------------------------------------------------------------------------------


async def killed_with_less(cluster: LocalCluster, tmp_path: Path) -> tuple[int, list[int]]:
    """All brokers are killed, and the disk of the leader has lost synced messages."""
    leader, *followers = cluster.state(TOPIC).replicas
    await append(cluster, b"a")
    await append(cluster, b"b")
    await eventually(lambda: same_logs(cluster))
    for node in (*followers, leader):
        await cluster.kill(node)
    for node in (*followers, leader):
        await cluster.bury(node)
    file = tmp_path / f"node-{leader}" / f"{TOPIC}-0" / "00000000000000000000.log"
    os.truncate(file, file.stat().st_size // 2)
    return leader, followers


async def test_a_disk_that_lost_messages_is_owned_up_to(cluster: LocalCluster, tmp_path: Path) -> None:
    leader, followers = await killed_with_less(cluster, tmp_path)
    await cluster.start(leader)
    await cluster.settle()
    assert leader not in cluster.state(TOPIC).isr, "others have what it has lost"
    for node in followers:
        await cluster.start(node)
    await eventually(lambda: cluster.leader(TOPIC) in followers)
    assert [held(cluster, node).log.end_offset for node in followers] == [2, 2]


async def test_a_leader_that_lost_messages_has_nobody_else_cut_off_its_own(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    leader, followers = await killed_with_less(cluster, tmp_path)
    await cluster.start(leader)
    for node in followers:
        await cluster.start(node)
    await cluster.settle()
    await cluster.change(TOPIC, 0, leader=leader, isr=(leader,), eligible=(), leader_epoch=9)
    await eventually(lambda: cluster[followers[0]].partitions.held(TOPIC, 0).leader_epoch == 9)
    refused = ReplicaState(replica_id=followers[0], replica_epoch=cluster[followers[0]].lease.epoch)
    wanted = FetchPartition(
        partition=0, fetch_offset=2, last_fetched_epoch=0, current_leader_epoch=9, partition_max_bytes=1000
    )
    request = FetchRequest(
        replica_state=refused,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=cluster[leader].image.topics[TOPIC].topic_id, partitions=[wanted])],
    )
    answer = only_partition(await cluster.ask(leader, request, 17))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [held(cluster, node).log.end_offset for node in followers] == [2, 2]


async def test_an_empty_log_beyond_the_end_of_the_leader_begins_anew(tmp_path: Path) -> None:
    """As after an unclean election, when all that the replica had was deleted before."""
    async with local_cluster(tmp_path, {"replica.lag.time.max.ms": "1000"}) as cluster:
        await create(cluster)
        third = cluster.state(TOPIC).replicas[2]
        await append(cluster, b"a")
        await eventually(lambda: same_logs(cluster))
        cut_off(cluster, third)
        partition = held(cluster, third)
        partition.log.files.truncate_fully_and_start_at(100)
        partition.epochs.forget_from(0)
        partition.truncated()
        before = cluster.state(TOPIC).partition_epoch
        # It leaves the in-sync set. Hearing of that it follows again, and may be back before anybody looks.
        await eventually(lambda: cluster.state(TOPIC).partition_epoch > before)
        await cluster.in_sync(TOPIC)
        await eventually(lambda: same_logs(cluster))


async def test_a_fetcher_goes_on_after_a_mistake(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def mistaken(*_: object) -> int:
        raise RuntimeError("not foreseen")

    with monkeypatch.context() as patch:
        patch.setattr(FollowerAppend, "take_over", mistaken)
        await append(cluster, b"a", acks=1)
        await eventually(lambda: "not foreseen" in caplog.text)
    await append(cluster, b"b")
    await eventually(lambda: same_logs(cluster))


async def test_a_follower_whose_disk_was_full_at_the_end_of_a_segment_goes_on(tmp_path: Path) -> None:
    """What one fetch brings lies in two segments here: the first is written before all of it is queued."""
    async with local_cluster(tmp_path, make_disk=FaultyDisk) as cluster:
        await create(cluster, segment_bytes="1000")
        follower = cluster.state(TOPIC).replicas[1]
        log, disk = held(cluster, follower).log, cluster[follower].disk
        assert isinstance(disk, FaultyDisk)
        await append(cluster, bytes(400))
        log.roll()  # the leader's second segment begins after the next batch, the follower's with it
        await append(cluster, bytes(400))
        with cluster.deaf(TOPIC, follower):
            for _ in range(2):
                await append(cluster, bytes(400), acks=1)
            disk.break_path("append", f"{TOPIC}-0", errno.ENOSPC)
        await eventually(lambda: log.offline)
        assert log.end_offset == 2
        disk.repair()
        await eventually(lambda: log.end_offset == 4)
        await eventually(lambda: same_logs(cluster))
