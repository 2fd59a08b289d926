"""Deletions of a compacted topic, and a replica that was away when they were made."""

from __future__ import annotations

import time
from pathlib import Path

from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch, records, split
from forebay.wire.records import Record
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import create_topic, fetch, only_partition, produce

CREATE_TOPICS, FETCH, PRODUCE = 7, 12, 9
TOPIC = "t"
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.flush.interval.ms": "20",
    "min.insync.replicas": "2",
}
COMPACTED = {
    "cleanup_policy": "compact",
    "delete_retention_ms": "0",
    "segment_bytes": "500",
    "file_delete_delay_ms": "0",
}
ROUNDS = 4
"""The first cleaning notes when a deletion may be forgotten; one of those after that forgets it."""


async def put(cluster: LocalCluster, key: bytes, value: bytes | None) -> int:
    made = bytes(build_batch([Record(0, int(time.time() * 1000), key, value)]))
    answer = only_partition(await cluster.ask(cluster.leader(TOPIC), produce(TOPIC, made, acks=-1), PRODUCE))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    offset: int = answer.base_offset
    return offset


async def clean(cluster: LocalCluster) -> None:
    """Fill segments, and wait until the leader has compacted them."""
    for _ in range(10):
        last = await put(cluster, b"filler", b"v" * 100)
    leader = cluster[cluster.leader(TOPIC)]
    await eventually(lambda: leader.data.first_dirty_offset(TOPIC, 0) > last - 5)


async def messages(cluster: LocalCluster) -> list[Record]:
    """All that consumers get of the topic."""
    found: list[Record] = []
    offset = 0
    while True:
        answer = await cluster.ask(cluster.leader(TOPIC), fetch(TOPIC, offset), FETCH)
        partition = only_partition(answer)
        assert partition.error_code == ErrorCode.NONE
        data = bytes(partition.records or b"")
        if not data:
            return found
        for position, header in split(data):
            found += records(data[position : position + header.size])
            offset = header.next_offset


async def test_a_replica_that_was_away_hears_of_a_deletion_however_late(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC, 1, **COMPACTED), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.knows(TOPIC)
        *_, away = cluster.state(TOPIC).replicas
        await put(cluster, b"deleted", b"value")
        await clean(cluster)
        await cluster.in_sync(TOPIC)
        await cluster.kill(away)
        await cluster.bury(away)

        await put(cluster, b"deleted", None)
        for _ in range(ROUNDS):
            await clean(cluster)
        await cluster.start(away)
        await cluster.in_sync(TOPIC)
        await cluster.lead(TOPIC, 0, away)
        values = [each.value for each in await messages(cluster) if each.key == b"deleted"]
        assert values[-1:] in ([], [None])

        for _ in range(ROUNDS):
            await clean(cluster)
        assert b"deleted" not in {each.key for each in await messages(cluster)}
