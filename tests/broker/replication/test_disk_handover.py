"""A leader whose disk fails lets another lead at once, not when the in-sync sets are next looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.wire_client import batch, create_topic, only_partition, produce
from support.faults.faulty_disk import FaultyDisk

PRODUCE, CREATE_TOPICS = 9, 7
TOPIC = "t"
NEVER_LOOKED_AT = {"replica.lag.time.max.ms": "3600000"}


async def append(cluster: LocalCluster, acks: int) -> int:
    request = produce(TOPIC, batch(b"message"), acks=acks)
    code: int = only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE)).error_code
    return code


async def append_in_the_end(cluster: LocalCluster, *passing: int) -> int:
    """With acks=all, and again where the new leader has not heard of itself yet."""

    async def attempt() -> tuple[int, int]:
        code = await append(cluster, -1)
        return code, code

    code: int = await retried(attempt, ErrorCode.NOT_LEADER_OR_FOLLOWER, *passing)
    return code


@pytest.mark.parametrize("operation", ["append", "datasync"])
async def test_a_broken_disk_is_handed_over_at_once(tmp_path: Path, operation: str) -> None:
    settings = {**NEVER_LOOKED_AT, "log.flush.interval.ms": "50"}
    async with local_cluster(tmp_path, settings, make_disk=FaultyDisk) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        assert await append_in_the_end(cluster) == ErrorCode.NONE
        broken = cluster.leader(TOPIC)
        disk = cluster[broken].disk
        assert isinstance(disk, FaultyDisk)
        disk.break_path(operation, f"{TOPIC}-0")
        await append(cluster, 1)
        await eventually(lambda: cluster.leader(TOPIC) not in (broken, -1))
        if operation == "append":
            disk.repair()  # a failed write is tried again, a failed sync is not: that replica stays away
        assert await append_in_the_end(cluster) == ErrorCode.NONE
        if operation == "datasync":
            assert broken not in cluster.state(TOPIC).isr + cluster.state(TOPIC).eligible


async def test_disks_that_were_full_everywhere_need_no_restart(tmp_path: Path) -> None:
    """The last leader refuses acks=all, so no append finds out that there is room again."""
    async with local_cluster(tmp_path, NEVER_LOOKED_AT, make_disk=FaultyDisk) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        disks = [disk for node in cluster.nodes if isinstance(disk := cluster[node].disk, FaultyDisk)]
        for disk in disks:
            disk.free = 0
        full = ErrorCode.KAFKA_STORAGE_ERROR
        assert await append_in_the_end(cluster, full) == ErrorCode.NOT_ENOUGH_REPLICAS
        for disk in disks:
            disk.repair()
        assert await append_in_the_end(cluster, full, ErrorCode.NOT_ENOUGH_REPLICAS) == ErrorCode.NONE
        await cluster.in_sync(TOPIC)


async def test_a_broken_disk_is_not_handed_over_to_a_broker_that_is_only_registered(tmp_path: Path) -> None:
    """Its disk may be lost. It would be the only one in sync, and everything would be gone with it."""
    settings = {**NEVER_LOOKED_AT, "min.insync.replicas": "1"}
    async with local_cluster(tmp_path, settings, make_disk=FaultyDisk) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        assert await append_in_the_end(cluster) == ErrorCode.NONE
        first, last, silent = cluster.state(TOPIC).replicas
        await cluster.kill(silent)
        await cluster.kill(first)
        await cluster.bury(first)
        assert cluster.leader(TOPIC) == last
        assert silent in cluster.state(TOPIC).isr
        disk = cluster[last].disk
        assert isinstance(disk, FaultyDisk)
        disk.break_path("append", f"{TOPIC}-0")
        assert await append(cluster, 1) == ErrorCode.KAFKA_STORAGE_ERROR
        await cluster.settle()
        assert cluster.leader(TOPIC) == last
        disk.repair()
        await cluster.bury(silent)
        await eventually(lambda: cluster.state(TOPIC).isr == (last,))
        assert await append_in_the_end(cluster, ErrorCode.KAFKA_STORAGE_ERROR) == ErrorCode.NONE
