"""A leader whose followers are away, where one replica is enough: what it shows is on its disk."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ErrorCode
from forebay.storage.faults import FaultyDisk
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, fetch, only_partition, produce, values_of

PRODUCE, FETCH, CREATE_TOPICS = 9, 12, 7
TOPIC = "t"


class HeldDisk(FaultyDisk):
    """Syncs only while it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.may_sync.set()

    def check(self, operation: str, path: str) -> None:
        if operation == "datasync" and f"{TOPIC}-0" in path:
            assert self.may_sync.wait(20)
        super().check(operation, path)


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    settings = {"min.insync.replicas": "1", "log.flush.interval.ms": "600000"}
    async with local_cluster(tmp_path, settings, make_disk=HeldDisk) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        leader, *followers = cluster.state(TOPIC).replicas
        for node in followers:
            await cluster.kill(node)
            await cluster.bury(node)
        assert (cluster.state(TOPIC).isr, cluster.state(TOPIC).eligible) == ((leader,), ())
        yield cluster


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
    partition = alone[alone.leader(TOPIC)].replicas.held(TOPIC, 0)
    await eventually(lambda: partition.high_watermark == 2)
    assert await values(alone) == [b"synced", b"not yet"]


async def test_a_failed_sync_acknowledges_nothing(alone: LocalCluster) -> None:
    disk_of(alone).break_path("datasync", f"{TOPIC}-0")
    assert (await append(alone, b"lost", -1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await values(alone) == []
