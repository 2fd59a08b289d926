"""A full disk: what a tiered topic has in the object store leaves the disk, though nothing can be written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from support.brokers.local_broker import local_broker
from support.brokers.local_cluster import eventually as soon
from support.brokers.local_cluster import local_cluster
from support.brokers.tiered import (
    TIERED,
    copied_to,
    create_tiered,
    eventually,
    fill,
    settings,
    value,
    values_from,
)
from support.clients.config_calls import increment
from support.clients.wire_client import (
    WireClient,
    append,
    batch,
    create_topic,
    offset_at,
    only_partition,
    produce,
)
from support.faults.faulty_disk import FaultyDisk

EARLIEST_LOCAL = -4


@pytest.mark.parametrize("copied", ["before", "meanwhile"])
def test_what_is_copied_leaves_a_disk_that_is_full(tmp_path: Path, topic: str, copied: str) -> None:
    store = tmp_path / "store"
    with (
        local_broker(tmp_path / "data", settings(store), make_disk=FaultyDisk) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        copies_none = "true" if copied == "meanwhile" else "false"
        topic_id = create_tiered(
            client, topic, local_retention_bytes="1000000", remote_log_copy_disable=copies_none
        )
        fill(client, topic, 60)
        if copied == "before":
            assert eventually(lambda: copied_to(store, topic_id) > 40)
        assert offset_at(client, topic, EARLIEST_LOCAL) == 0
        disk = broker.node.disk
        assert isinstance(disk, FaultyDisk)
        disk.break_path("append", f"{topic}-0", errno.ENOSPC)
        refused = append(client, topic, batch(bytes(10)))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert increment(client, 2, topic, ("remote.log.copy.disable", 0, "false")).error_code == 0
        assert increment(client, 2, topic, ("local.retention.bytes", 0, "1000")).error_code == 0
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
        assert broker.on_loop(lambda node: node.partitions.get(topic, 0).log.offline)
        disk.repair()
        assert eventually(lambda: append(client, topic, batch(value(60))).error_code == 0)
        assert values_from(client, topic, 0)[:61] == [
            *((number, value(number)) for number in range(60)),
            (60, value(60)),
        ]


async def test_a_follower_with_a_full_disk_deletes_what_its_leader_deletes(tmp_path: Path) -> None:
    """Each answer brings messages that it has no room for."""
    store = tmp_path / "store"
    async with local_cluster(tmp_path / "cluster", settings(store), make_disk=FaultyDisk) as cluster:
        configs = {**TIERED, "min.insync.replicas": "1", "local.retention.bytes": "10000"}
        (made,) = (await cluster.ask(1, create_topic("t", 1, **configs), 7)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.knows("t")

        async def send(start: int, count: int) -> None:
            for number in range(start, start + count):
                request = produce("t", batch(value(number)), acks=1)
                answer = only_partition(await cluster.ask(cluster.leader("t"), request, 9))
                assert answer.error_code == ErrorCode.NONE

        await send(0, 20)
        await cluster.in_sync("t")
        full = next(node for node in cluster.nodes if node != cluster.leader("t"))
        log = cluster[full].partitions.held("t", 0).log
        await soon(lambda: log.end_offset == 20)
        disk = cluster[full].disk
        assert isinstance(disk, FaultyDisk)
        disk.break_path("append", "t-0", errno.ENOSPC)
        await send(20, 30)
        await soon(lambda: log.offline is not None)
        await soon(lambda: log.begin_offset > 5)
        assert log.offline is not None
