"""Deletions of a compacted topic, and a replica that was away when they were made."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from forebay.broker.partition.partition import Partition
from forebay.broker.upkeep import compaction
from forebay.core.partition.compaction.plan import CompactionPlan
from forebay.errors import ErrorCode
from forebay.storage.log.compaction.cleaner import Cleaner, Rewritten
from forebay.storage.log.segment.segment import Segment
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


class HeldCleaning:
    """Keeps one broker from compacting, and then holds a cleaning that forgets deletions."""

    def __init__(self, patch: pytest.MonkeyPatch, directory: str) -> None:
        self.may_begin = False
        self.began, self.may_go_on = threading.Event(), threading.Event()
        plan, rewrite = compaction.Compactor._plan, Cleaner.rewrite

        def held_plan(compactor: compaction.Compactor, partition: Partition) -> CompactionPlan | None:
            found = plan(compactor, partition)
            is_held = partition.log.directory.startswith(directory) and not self.may_begin
            return None if is_held else found

        def held_rewrite(cleaner: Cleaner, group: Sequence[Segment]) -> Rewritten | None:
            if cleaner._directory.startswith(directory) and cleaner._task.forgets_deletions:
                self.began.set()
                assert self.may_go_on.wait(60)
            return rewrite(cleaner, group)

        patch.setattr(compaction.Compactor, "_plan", held_plan)
        patch.setattr(Cleaner, "rewrite", held_rewrite)


async def test_a_replica_that_is_added_while_a_deletion_is_forgotten_does_not_bring_the_message_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldCleaning(monkeypatch, str(tmp_path / "node-2"))
    one_batch = {"replica.fetch.max.bytes": "1024"}
    async with local_cluster(tmp_path, SETTINGS | one_batch | {"min.insync.replicas": "1"}) as cluster:
        await cluster.ask(1, create_topic(TOPIC, 1, **COMPACTED), CREATE_TOPICS)
        await cluster.knows(TOPIC)
        await cluster.change(TOPIC, 0, leader=1, leader_epoch=1, replicas=(1, 2), isr=(1, 2))
        value_at = await put(cluster, b"deleted", b"value")
        for _ in range(300):
            await put(cluster, b"filler", b"v" * 1000)
        await cluster.in_sync(TOPIC)

        # Broker 2 comes back with the message, and gets the deletion when its time is over.
        await cluster.kill(2)
        await cluster.bury(2)
        await put(cluster, b"deleted", None)
        for _ in range(ROUNDS):
            await clean(cluster)
        await cluster.start(2)
        await cluster.in_sync(TOPIC)
        await cluster.lead(TOPIC, 0, 2)
        leader = cluster[2]
        await eventually(lambda: leader.compactor._forgets_deletions(leader.partitions.get(TOPIC, 0)))
        held.may_begin = True
        await eventually(held.began.is_set)

        # Broker 3 has copied the message, and not the deletion, when the cleaning goes on.
        state = cluster.state(TOPIC)
        await cluster.change(TOPIC, 0, replicas=(*state.replicas, 3), adding=(3,))
        copy = await eventually(lambda: cluster[3].partitions.held(TOPIC, 0))
        await eventually(lambda: copy.log.end_offset > value_at)
        with cluster.deaf(TOPIC, 3):
            held.may_go_on.set()
            await eventually(lambda: leader.compactor.cleaning is None)
        await eventually(lambda: not cluster.state(TOPIC).adding)
        await cluster.lead(TOPIC, 0, 3)
        values = [each.value for each in await messages(cluster) if each.key == b"deleted"]
        assert values[-1:] in ([], [None])
