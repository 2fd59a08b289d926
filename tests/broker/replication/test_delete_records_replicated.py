"""DeleteRecords in a cluster: it is answered when the in-sync followers begin where the leader does."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.wire_client import batch, create_topic, only_partition, produce

PRODUCE, CREATE_TOPICS, DELETE_RECORDS = 9, 7, 2
TOPIC = "t"
UP_TO_THE_END = -1


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path) as running:
        (made,) = (await running.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await running.in_sync(TOPIC)
        request = produce(TOPIC, batch(b"a", b"b", b"c", b"d"), acks=-1)
        answer = only_partition(await running.ask(running.leader(TOPIC), request, PRODUCE))
        assert answer.error_code == ErrorCode.NONE
        yield running


async def delete(cluster: LocalCluster, offset: int, timeout_ms: int = 15_000) -> tuple[int, int]:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name=TOPIC, partitions=[wanted])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
    (answered,) = (await cluster.ask(cluster.leader(TOPIC), request, DELETE_RECORDS)).topics
    (result,) = answered.partitions
    return result.error_code, result.low_watermark


def starts(cluster: LocalCluster) -> list[int]:
    return [cluster[node].partitions.held(TOPIC, 0).log.start_offset for node in cluster.nodes]


async def test_what_is_deleted_is_deleted_on_every_in_sync_replica(cluster: LocalCluster) -> None:
    for offset in (1, 3, 2):  # the last has nothing to do
        assert await delete(cluster, offset) == (ErrorCode.NONE, max(offset, starts(cluster)[0]))
        assert len(set(starts(cluster))) == 1
    assert starts(cluster) == [3, 3, 3]


async def test_a_follower_that_does_not_hear_of_it_is_waited_for(cluster: LocalCluster) -> None:
    leader, follower, _ = cluster.state(TOPIC).replicas
    await cluster.kill(follower)  # nobody knows
    assert await delete(cluster, 2, timeout_ms=200) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert cluster[leader].partitions.held(TOPIC, 0).log.start_offset == 2
    await cluster.start(follower)
    await eventually(lambda: starts(cluster) == [2, 2, 2])
    assert await delete(cluster, 2) == (ErrorCode.NONE, 2)


async def test_who_left_the_in_sync_set_is_not_waited_for(cluster: LocalCluster) -> None:
    _, *followers = cluster.state(TOPIC).replicas
    await cluster.kill(followers[0])
    await cluster.bury(followers[0])
    assert await delete(cluster, 2) == (ErrorCode.NONE, 2)


async def test_all_that_is_committed_is_deleted(cluster: LocalCluster) -> None:
    assert await delete(cluster, UP_TO_THE_END) == (ErrorCode.NONE, 4)
    assert starts(cluster) == [4, 4, 4]


async def test_a_new_leader_does_not_decide_by_what_it_knows_as_committed(cluster: LocalCluster) -> None:
    """It has not heard how far the leader before has committed. Its client tries again."""
    leader, heir, third = cluster.state(TOPIC).replicas
    partition = cluster[heir].partitions.held(TOPIC, 0)
    with cluster.deaf(TOPIC, heir):
        for node in (leader, third):
            await cluster.kill(node)  # nobody knows
        partition.high_watermark = 1
        await cluster.lead(TOPIC, 0, heir)
        await eventually(lambda: partition.is_leader)
    for offset in (4, UP_TO_THE_END):
        assert await delete(cluster, offset) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert await delete(cluster, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert partition.log.start_offset == 0


async def test_a_new_replica_has_the_rest_of_a_batch_whose_beginning_was_deleted(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    leader, follower, _ = cluster.state(TOPIC).replicas
    await cluster.kill(follower)
    await cluster.bury(follower)
    assert await delete(cluster, 2) == (ErrorCode.NONE, 2)
    shutil.rmtree(tmp_path / f"node-{follower}" / f"{TOPIC}-0")
    await cluster.start(follower)
    await cluster.in_sync(TOPIC)
    await eventually(lambda: starts(cluster) == [2, 2, 2])
    logs = [cluster[node].partitions.held(TOPIC, 0).log for node in (leader, follower)]
    of_leader, of_follower = ([header for _, header in log.files.scan(2)] for log in logs)
    assert [header.base_offset for header in of_leader] == [0]
    assert of_follower == of_leader


def epochs(cluster: LocalCluster, node: int) -> list[int]:
    return [epoch for epoch, _ in cluster[node].partitions.held(TOPIC, 0).epochs.entries]


async def test_epochs_of_which_nothing_is_left_are_forgotten(cluster: LocalCluster) -> None:
    async def append(value: bytes) -> tuple[object, int]:
        request = produce(TOPIC, batch(value), acks=-1)
        answer = only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))
        return answer, answer.error_code

    for turn in range(4):
        await cluster.lead(TOPIC, 0, cluster.state(TOPIC).replicas[turn % 3])
        await retried(lambda: append(b"x"), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await eventually(lambda: all(epochs(cluster, node) == [0, 1, 2, 3, 4] for node in cluster.nodes))
    follower = next(node for node in cluster.nodes if node != cluster.leader(TOPIC))
    log = cluster[follower].partitions.held(TOPIC, 0).log
    await asyncio.to_thread(log.files.datasync)  # so that the stop has no batch to sync
    assert await delete(cluster, 7) == (ErrorCode.NONE, 7)
    # Epoch 4 has no message yet: the last one was of epoch 3.
    assert all(epochs(cluster, node) == [3, 4] for node in cluster.nodes)
    directory = log.directory
    await cluster.stop(follower)
    assert (Path(directory) / "leader-epoch-checkpoint").read_text().splitlines()[1:] == ["2", "3 6", "4 7"]
    await cluster.start(follower)
    assert epochs(cluster, follower) == [3, 4]
