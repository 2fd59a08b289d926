"""A leader whose disk fails lets another lead at once, not when the in-sync sets are next looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ErrorCode
from forebay.storage.faults import FaultyDisk
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce

PRODUCE, CREATE_TOPICS = 9, 7
TOPIC = "t"
NEVER_LOOKED_AT = {"replica.lag.time.max.ms": "3600000"}


async def append(cluster: LocalCluster, acks: int) -> Any:
    request = produce(TOPIC, batch(b"message"), acks=acks)
    return only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))


@pytest.mark.parametrize("operation", ["append", "datasync"])
async def test_a_broken_disk_is_handed_over_at_once(tmp_path: Path, operation: str) -> None:
    settings = {**NEVER_LOOKED_AT, "log.flush.interval.ms": "50"}
    async with local_cluster(tmp_path, settings, make_disk=FaultyDisk) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        assert (await append(cluster, -1)).error_code == ErrorCode.NONE
        broken = cluster.leader(TOPIC)
        disk = cluster[broken].disk
        assert isinstance(disk, FaultyDisk)
        disk.break_path(operation, f"{TOPIC}-0")
        await append(cluster, 1)
        await eventually(lambda: cluster.leader(TOPIC) not in (broken, -1))
        if operation == "append":
            disk.repair()  # a failed write is tried again, a failed sync is not: that replica stays away
        assert (await append(cluster, -1)).error_code == ErrorCode.NONE
        if operation == "datasync":
            assert broken not in cluster.state(TOPIC).isr + cluster.state(TOPIC).eligible
