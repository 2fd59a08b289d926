"""Tiered partitions with several replicas: leaders change, replicas come new, and history may be lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.batch import split
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.messages.list_offsets import ListOffsetsRequest
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.brokers.tiered import TIERED, copied_to, manifest_of, settings, value
from support.clients.wire_client import (
    batch,
    create_topic,
    fetch,
    list_offsets,
    only_partition,
    produce,
    values_of,
)

ACKS_ALL = -1
PRODUCE, CREATE_TOPICS, FETCH, LIST_OFFSETS, DELETE_RECORDS = 9, 7, 12, 8, 2
TOPIC = "t"
CONFIGS = {**TIERED, "min.insync.replicas": "1"}
EARLIEST, EARLIEST_LOCAL = -2, -4


class Tiered:
    """A cluster with a tiered topic."""

    def __init__(self, cluster: LocalCluster, store: Path, topic_id: bytes) -> None:
        self.cluster = cluster
        self.store = store
        self.topic_id = topic_id

    async def fill(self, start: int, count: int, *, acks: int = ACKS_ALL) -> None:
        for number in range(start, start + count):
            request = produce(TOPIC, batch(value(number)), acks=acks)
            answer = only_partition(await self.cluster.ask(self.cluster.leader(TOPIC), request, PRODUCE))
            assert answer.error_code == ErrorCode.NONE

    async def offset(self, timestamp: int) -> int:
        """-1 while the leader does not know."""
        request: ListOffsetsRequest = list_offsets(TOPIC, timestamp)
        answer = await self.cluster.ask(self.cluster.leader(TOPIC), request, LIST_OFFSETS)
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    async def read(self, start: int, end: int) -> list[tuple[int, bytes | None]]:
        found: list[tuple[int, bytes | None]] = []
        offset = start
        while offset < end:
            answer = only_partition(
                await self.cluster.ask(
                    self.cluster.leader(TOPIC), fetch(TOPIC, offset, max_wait_ms=200), FETCH
                )
            )
            assert answer.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER), answer.error_code
            batches = split(memoryview(answer.records or b""))
            if batches:
                found += [item for item in values_of(answer.records) if offset <= item[0] < end]
                offset = batches[-1][1].next_offset
        return found

    async def until_local_start(self, offset: int) -> None:
        """Wait until the leader and all its followers begin at this offset, or later."""
        nodes = self.cluster.nodes

        def all_begin() -> bool:
            logs = [self.cluster[node].partitions.held(TOPIC, 0).log for node in nodes]
            return all(log.start_offset >= offset for log in logs)

        await eventually(all_begin)

    async def leave_behind(self) -> int:
        """Fill the topic; returns a broker that has about 40 of its 100 messages."""
        cluster = self.cluster
        await self.fill(0, 40)
        leader = cluster.leader(TOPIC)
        behind = next(node for node in cluster.nodes if node != leader)
        await cluster.in_sync(TOPIC)
        await cluster.kill(behind)
        await cluster.bury(behind)
        await self.fill(40, 60)
        await eventually(lambda: copied_to(self.store, self.topic_id) > 80)
        return behind

    async def lose_all_but(self, behind: int) -> None:
        """An unclean election."""
        cluster = self.cluster
        for node in [node for node in cluster.nodes if node != behind]:
            await cluster.kill(node)
            await cluster.bury(node)
        await cluster.start(behind)
        await cluster.change(
            TOPIC, 0, leader=behind, isr=(behind,), leader_epoch=cluster.state(TOPIC).leader_epoch + 1
        )
        await cluster.knows(TOPIC)


@pytest.fixture
async def tiered(tmp_path: Path) -> AsyncIterator[Tiered]:
    store = tmp_path / "store"
    async with local_cluster(tmp_path / "cluster", settings(store)) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC, 1, **CONFIGS), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.knows(TOPIC)
        yield Tiered(cluster, store, made.topic_id)


def values(start: int, end: int) -> list[tuple[int, bytes | None]]:
    return [(number, value(number)) for number in range(start, end)]


async def test_followers_keep_as_little_as_their_leader(tiered: Tiered) -> None:
    await tiered.fill(0, 80)
    await tiered.until_local_start(50)
    assert await tiered.offset(EARLIEST) == 0
    assert await tiered.read(0, 80) == values(0, 80)


async def test_the_next_leader_serves_old_messages_and_goes_on_copying(tiered: Tiered) -> None:
    cluster = tiered.cluster
    await tiered.fill(0, 80)
    await tiered.until_local_start(50)
    await cluster.in_sync(TOPIC)
    first = cluster.leader(TOPIC)
    await cluster.kill(first)
    await cluster.bury(first)
    await eventually(lambda: cluster.leader(TOPIC) not in (first, -1))
    await cluster.knows(TOPIC)
    await tiered.fill(80, 80)
    assert await tiered.read(0, 160) == values(0, 160)
    await eventually(lambda: copied_to(tiered.store, tiered.topic_id) > 130)
    manifest = manifest_of(tiered.store, tiered.topic_id)
    assert manifest is not None and manifest.leader_epoch > 0
    await tiered.until_local_start(120)
    assert await tiered.read(0, 160) == values(0, 160)


async def test_a_leader_knows_where_old_epochs_end_in_the_object_store(tiered: Tiered) -> None:
    """So that readers of a lost history find out, although its local log begins later."""
    cluster = tiered.cluster
    ends: dict[int, int] = {}
    for start in (0, 80, 160):
        await tiered.fill(start, 80)
        await tiered.until_local_start(start + 50)
        ends[cluster.state(TOPIC).leader_epoch] = start + 80
        await cluster.in_sync(TOPIC)
        await cluster.lead(TOPIC, 0, next(node for node in cluster.nodes if node != cluster.leader(TOPIC)))
        await cluster.knows(TOPIC)
    await tiered.fill(240, 80)
    await tiered.until_local_start(290)
    partition = cluster[cluster.leader(TOPIC)].partitions.held(TOPIC, 0)
    assert partition.epochs.first > max(ends)
    assert {epoch: partition.end_of_epoch(epoch, -1)[1] for epoch in ends} == ends


async def test_a_replica_that_lost_its_disk_copies_only_the_local_part(tiered: Tiered) -> None:
    cluster = tiered.cluster
    await tiered.fill(0, 80)
    await tiered.until_local_start(50)
    leader = cluster.leader(TOPIC)
    other = next(node for node in cluster.nodes if node != leader)
    await cluster.kill(other)
    await cluster.bury(other)
    await cluster.start(other, "another-disk")
    await cluster.in_sync(TOPIC)
    log = cluster[other].partitions.held(TOPIC, 0).log
    assert log.start_offset >= 50
    await cluster.lead(TOPIC, 0, other)
    assert await tiered.read(0, 80) == values(0, 80)


async def test_a_replica_that_lost_its_disk_knows_the_producers_of_the_remote_part(tiered: Tiered) -> None:
    cluster = tiered.cluster

    async def send(sequence: int) -> tuple[int, int]:
        data = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence, timestamp=1)
        request = produce(TOPIC, data, acks=ACKS_ALL)
        answer = only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))
        return answer.error_code, answer.base_offset

    assert await send(0) == (ErrorCode.NONE, 0)
    await tiered.fill(1, 79)
    await tiered.until_local_start(50)
    other = next(node for node in cluster.nodes if node != cluster.leader(TOPIC))
    await cluster.kill(other)
    await cluster.bury(other)
    await cluster.start(other, "another-disk")
    await cluster.in_sync(TOPIC)
    await cluster.lead(TOPIC, 0, other)
    assert await send(2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(0) == (ErrorCode.NONE, 0), "it is a repeat"
    assert await send(1) == (ErrorCode.NONE, 80)
    await cluster.kill(other)
    await cluster.bury(other)
    await cluster.start(other, "another-disk")
    await cluster.in_sync(TOPIC)
    await cluster.lead(TOPIC, 0, other)
    assert await send(3) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), "they outlive a restart"


async def test_messages_that_an_unclean_election_lost_are_never_served(tiered: Tiered) -> None:
    cluster = tiered.cluster
    behind = await tiered.leave_behind()
    await tiered.lose_all_but(behind)
    end = cluster[behind].partitions.held(TOPIC, 0).log.end_offset
    assert 40 <= end < 80
    remote = cluster[behind].partitions.held(TOPIC, 0).remote
    await eventually(lambda: remote is not None and remote.known)
    assert copied_to(tiered.store, tiered.topic_id) <= end
    assert await tiered.read(0, end) == values(0, end)
    manifest = manifest_of(tiered.store, tiered.topic_id)
    assert manifest is not None and manifest.doomed, "the objects stay for a while"


@pytest.mark.parametrize("deleted_to", [90, 100])
async def test_what_was_deleted_before_an_unclean_election_deletes_no_new_messages(
    tiered: Tiered, deleted_to: int
) -> None:
    """The new leader gives others the offsets that were deleted."""
    cluster = tiered.cluster
    behind = await tiered.leave_behind()
    partition = DeleteRecordsPartition(partition_index=0, offset=deleted_to)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=TOPIC, partitions=[partition])], timeout_ms=30_000
    )
    answer = await cluster.ask(cluster.leader(TOPIC), request, DELETE_RECORDS)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    await tiered.lose_all_but(behind)
    end = cluster[behind].partitions.held(TOPIC, 0).log.end_offset
    assert 40 <= end < 80
    await tiered.fill(end, 120 - end)
    await eventually(lambda: copied_to(tiered.store, tiered.topic_id) > deleted_to)
    assert await tiered.offset(EARLIEST) <= end
    assert await tiered.read(end, 120) == values(end, 120)
