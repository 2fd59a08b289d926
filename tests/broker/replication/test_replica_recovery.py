"""What a replica has after its broker crashed, and whether it still counts as in sync."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from forebay.broker.partition.partition import Partition
from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch, split
from forebay.wire.records import Record
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import create_topic, only_partition, produce

PRODUCE, CREATE_TOPICS = 9, 7
TOPIC = "t"
EAGER = {"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0"}
QUIET = {"replica.lag.time.max.ms": "60000"}
TINY_SEGMENTS = {"segment_bytes": "1000", "file_delete_delay_ms": "0"}


async def create(cluster: LocalCluster, **config: str) -> None:
    request = create_topic(TOPIC, 1, **config, **TINY_SEGMENTS)
    (made,) = (await cluster.ask(cluster.nodes[0], request, CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)


async def put(cluster: LocalCluster, key: bytes) -> None:
    made = bytes(build_batch([Record(0, int(time.time() * 1000), key, b"v" * 100)]))
    answer = only_partition(await cluster.ask(cluster.leader(TOPIC), produce(TOPIC, made, acks=-1), PRODUCE))
    assert answer.error_code == ErrorCode.NONE


def held(cluster: LocalCluster, node: int) -> Partition:
    return cluster[node].partitions.held(TOPIC, 0)


def offsets(cluster: LocalCluster, node: int) -> list[int]:
    """The base offset of every batch."""
    return [header.base_offset for _, header in held(cluster, node).log.files.scan(0)]


def damage_second_segment(directory: Path) -> None:
    file = sorted(directory.glob("*.log"))[1]
    data = bytearray(file.read_bytes())
    data[split(bytes(data))[1][0] + 70] ^= 1
    file.write_bytes(data)


async def test_a_copy_of_a_compacted_log_survives_a_crash_whole(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, EAGER) as cluster:
        await create(cluster, cleanup_policy="compact")
        leader, _, follower = cluster.state(TOPIC).replicas
        for number in range(40):
            await put(cluster, b"once-%d" % number)
            for _ in range(3):
                await put(cluster, b"again")
        await eventually(lambda: len(offsets(cluster, leader)) < 60)
        await cluster.kill(follower)
        await cluster.start(follower, "another-disk")
        await cluster.in_sync(TOPIC)
        await eventually(lambda: held(cluster, follower).log.end_offset == 160)
        await cluster.crash(follower)
        await cluster.start(follower, "another-disk")
        report = held(cluster, follower).log.report
        assert (report.truncated_bytes, report.removed_segments) == (0, 0)
        newest_of_each_key = {*range(0, 160, 4), 159}
        assert set(offsets(cluster, follower)) >= newest_of_each_key
        assert held(cluster, follower).log.end_offset == 160


async def test_a_replica_whose_recovery_removed_segments_leaves_the_in_sync_set(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await create(cluster)
        leader, *followers = cluster.state(TOPIC).replicas
        for number in range(30):
            await put(cluster, b"%d" % number)
        directory = Path(held(cluster, leader).log.directory)
        for node in followers:
            await cluster.kill(node)
        await cluster.crash(leader)
        for node in (*followers, leader):
            await cluster.bury(node)
        damage_second_segment(directory)
        await cluster.start(leader)
        await cluster.settle()
        assert held(cluster, leader).log.report.removed_segments
        assert leader not in cluster.state(TOPIC).isr, "the others have what it lacks"
        for node in followers:
            await cluster.start(node)
        await cluster.in_sync(TOPIC)
        assert [held(cluster, node).log.end_offset for node in cluster.nodes] == [30, 30, 30]


async def test_a_replica_that_was_moved_away_while_its_broker_was_down_is_copied_anew(tmp_path: Path) -> None:
    """What it has is out of date: in a compacted topic, deletions may have been forgotten since."""
    async with local_cluster(tmp_path) as cluster:
        await create(cluster)
        for number in range(10):
            await put(cluster, b"%d" % number)
        first, second, moved = cluster.state(TOPIC).replicas
        await cluster.crash(moved)
        await cluster.bury(moved)
        await cluster.change(TOPIC, 0, replicas=(first, second), isr=(first, second), eligible=())
        await cluster.start(moved)
        assert (TOPIC, 0) not in cluster[moved].data.partitions()
        await cluster.change(TOPIC, 0, replicas=(first, second, moved))
        await cluster.in_sync(TOPIC)
        await eventually(lambda: offsets(cluster, moved) == list(range(10)))


def rob(directory: Path, *, keep_directory: bool) -> None:
    shutil.rmtree(directory)
    if keep_directory:
        directory.mkdir()


@pytest.mark.parametrize("left", ["nothing", "an empty directory"])
@pytest.mark.parametrize("leads", [True, False])
async def test_a_replica_whose_log_is_gone_leaves_the_in_sync_set(
    tmp_path: Path, left: str, leads: bool
) -> None:
    """Its broker is back before anybody has missed it. If it led on, the others would cut their logs."""
    async with local_cluster(tmp_path, QUIET) as cluster:
        await create(cluster)
        for number in range(3):
            await put(cluster, b"%d" % number)
        leader, follower, _ = cluster.state(TOPIC).replicas
        robbed = leader if leads else follower
        directory = Path(held(cluster, robbed).log.directory)
        isrs: list[tuple[int, ...]] = []
        witness = next(node for node in cluster.nodes if node != robbed)
        cluster[witness].metadata.listen(lambda _, after: isrs.append(after.topics[TOPIC].partitions[0].isr))
        await cluster.crash(robbed)
        rob(directory, keep_directory=left != "nothing")
        await cluster.start(robbed, at_once=True)
        await eventually(lambda: any(robbed not in isr for isr in isrs))
        assert cluster.leader(TOPIC) != robbed
        await cluster.in_sync(TOPIC)
        await eventually(lambda: all(offsets(cluster, node) == [0, 1, 2] for node in cluster.nodes))


async def test_the_only_replica_of_a_log_that_is_gone_begins_anew(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, QUIET, brokers=1) as cluster:
        await create(cluster)
        await put(cluster, b"gone")
        directory = Path(held(cluster, 1).log.directory)
        await cluster.crash(1)
        shutil.rmtree(directory)
        await cluster.start(1)
        await eventually(lambda: held(cluster, 1).is_leader)
        await put(cluster, b"after")
        assert held(cluster, 1).leader_epoch > 0, "it can be told from what was there before"


async def test_a_replica_that_joined_while_its_broker_was_started_again_leaves_too(tmp_path: Path) -> None:
    """Its log is gone, and the image with which its broker has opened the others does not show it in sync."""
    async with local_cluster(tmp_path, QUIET) as cluster:
        await create(cluster)
        await put(cluster, b"kept")
        robbed, leader, other = 1, 2, 3  # the first is the controller, so that nobody else drops it
        await cluster.lead(TOPIC, 0, leader)
        directory = Path(held(cluster, robbed).log.directory)
        await cluster.crash(robbed)
        rob(directory, keep_directory=False)
        await cluster.change(TOPIC, 0, isr=(leader, other))
        isrs: list[tuple[int, ...]] = []

        async def join() -> None:
            await cluster.change(TOPIC, 0, isr=(leader, other, robbed))
            metadata = cluster[leader].metadata
            metadata.listen(lambda _, after: isrs.append(after.topics[TOPIC].partitions[0].isr))

        await cluster.start(robbed, at_once=True, meanwhile=join)
        await eventually(lambda: (leader, other) in isrs)  # it left before it could be elected
        await cluster.in_sync(TOPIC)
        assert offsets(cluster, robbed) == [0]
