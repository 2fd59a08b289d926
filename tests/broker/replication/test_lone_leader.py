"""A leader whose followers are away, where one replica is enough: what it shows is on its disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ErrorCode
from forebay.storage.log.log import Log
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, fetch, only_partition, produce, values_of
from support.faults.faulty_disk import FaultyDisk

PRODUCE, FETCH, CREATE_TOPICS = 9, 12, 7
TOPIC = "t"


class HeldDisk(FaultyDisk):
    """Syncs only while it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.asked = threading.Event()

    def check(self, operation: str, path: str) -> None:
        if operation == "datasync" and f"{TOPIC}-0" in path:
            self.asked.set()
            assert self.may_sync.wait(60)
        super().check(operation, path)


@pytest.fixture
async def together(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """All replicas are in sync, and for that reason none is in a hurry to sync."""
    settings = {
        "min.insync.replicas": "1",
        "log.flush.interval.ms": "600000",
        "replica.lag.time.max.ms": "3000",
    }
    async with local_cluster(tmp_path, settings, make_disk=HeldDisk) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        yield cluster


@pytest.fixture
async def alone(together: LocalCluster) -> LocalCluster:
    await bury_followers(together)
    assert together.state(TOPIC).eligible == ()
    return together


async def bury_followers(cluster: LocalCluster) -> None:
    leader, *followers = cluster.state(TOPIC).replicas
    for node in followers:
        await cluster.kill(node)
        await cluster.bury(node)
    assert cluster.state(TOPIC).isr == (leader,)


def log_of_leader(cluster: LocalCluster) -> Log:
    return cluster[cluster.leader(TOPIC)].partitions.held(TOPIC, 0).log


async def append(cluster: LocalCluster, value: bytes, acks: int) -> Any:
    request = produce(TOPIC, batch(value), acks=acks)
    return only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))


async def values(cluster: LocalCluster) -> list[bytes | None]:
    answer = only_partition(await cluster.ask(cluster.leader(TOPIC), fetch(TOPIC, 0), FETCH))
    return [value for _, value in values_of(answer.records)]


def disk_of(cluster: LocalCluster) -> HeldDisk:
    disk = cluster[cluster.leader(TOPIC)].disk
    assert isinstance(disk, HeldDisk)
    return disk


async def test_nothing_is_shown_before_it_is_synced(alone: LocalCluster) -> None:
    assert (await append(alone, b"synced", -1)).error_code == ErrorCode.NONE
    assert await values(alone) == [b"synced"]
    disk_of(alone).may_sync.clear()
    try:
        assert (await append(alone, b"not yet", 1)).error_code == ErrorCode.NONE
        assert await values(alone) == [b"synced"]
    finally:
        disk_of(alone).may_sync.set()
    partition = alone[alone.leader(TOPIC)].partitions.held(TOPIC, 0)
    await eventually(lambda: partition.high_watermark == 2)
    assert await values(alone) == [b"synced", b"not yet"]


async def test_a_failed_sync_acknowledges_nothing(alone: LocalCluster) -> None:
    disk_of(alone).break_path("datasync", f"{TOPIC}-0")
    assert (await append(alone, b"lost", -1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await values(alone) == []


async def test_what_the_dead_had_is_synced_when_they_are_missed(together: LocalCluster) -> None:
    assert (await append(together, b"on three disks", -1)).error_code == ErrorCode.NONE
    assert log_of_leader(together).recovery_point == 0
    await bury_followers(together)
    await eventually(lambda: log_of_leader(together).recovery_point == 1)


async def test_a_leader_leaves_nobody_behind_before_it_has_synced(together: LocalCluster) -> None:
    assert (await append(together, b"on three disks", -1)).error_code == ErrorCode.NONE
    leader, *followers = together.state(TOPIC).replicas
    metrics, disk = together[leader].metrics, disk_of(together)
    disk.may_sync.clear()
    try:
        with together.deaf(TOPIC, *followers):  # until the in-sync set changes
            await write_until(together, disk.asked.is_set)
            assert metrics.isr_shrinks == 0
            disk.may_sync.set()
            await write_until(together, lambda: metrics.isr_shrinks > 0)
            assert log_of_leader(together).recovery_point > 0
    finally:
        disk.may_sync.set()


async def write_until(cluster: LocalCluster, condition: Callable[[], bool]) -> None:
    """Who has everything is not behind, and a fetch that was under way may bring it everything."""
    async with asyncio.timeout(60):
        while not condition():
            await append(cluster, b"more", 1)
            await asyncio.sleep(0.05)


async def test_a_replica_that_joins_stands_for_the_disk_only_when_the_store_says_so(
    alone: LocalCluster,
) -> None:
    """Nobody knows whether its join was written. If not, this broker leads again after a loss of power, and
    must have what was acknowledged."""
    leader, follower, *_ = alone.state(TOPIC).replicas
    disk, partition = alone[leader].disk, alone[leader].partitions.held(TOPIC, 0)
    assert isinstance(disk, HeldDisk)
    with alone.unwritable(leader) as refused:
        await alone.start(follower)
        await refused.wait()
        await eventually(lambda: partition.leadership is not None and partition.leadership.joining)
        disk.asked.clear()
        disk.may_sync.clear()
        appending = asyncio.create_task(append(alone, b"a", acks=-1))
        await eventually(lambda: alone[follower].partitions.held(TOPIC, 0).log.end_offset == 1)
        await eventually(disk.asked.is_set)
        assert not appending.done()
        assert partition.high_watermark == 0
        disk.may_sync.set()
        assert (await appending).error_code == ErrorCode.NONE
        assert partition.log.recovery_point == 1
