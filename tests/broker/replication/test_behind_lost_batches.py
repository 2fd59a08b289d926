"""What is sent behind a batch that a leader took and lost is refused alike, when that broker leads again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce

TOPIC = "t"
QUIET = {"replica.lag.time.max.ms": "60000"}


async def code(cluster: LocalCluster, sequence: int, producer_id: int = 7, acks: int = -1) -> int:
    """The answer of broker 1, to a client with one connection."""
    data = batch(b"%d" % sequence, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return int(only_partition(await cluster.ask(1, produce(TOPIC, data, acks=acks), 9)).error_code)


@pytest.mark.parametrize("on_fast_path", [False, True])
async def test_it_is_not_taken_for_the_first_batch_of_its_producer(
    tmp_path: Path, on_fast_path: bool
) -> None:
    async with local_cluster(tmp_path, QUIET) as cluster:
        await create_topic_led_by_1(cluster)
        if on_fast_path:
            for sequence in range(3):
                assert await code(cluster, sequence, producer_id=8) == ErrorCode.NONE
        partition = cluster[1].partitions.get(TOPIC, 0)
        end_offset = partition.log.end_offset
        assert any(each.memo for each in cluster[1].server.connections) is on_fast_path
        with cluster.deaf(TOPIC, 2, 3):
            lost = asyncio.create_task(code(cluster, 0))
            await eventually(lambda: partition.log.end_offset > end_offset)
            await cluster.lead(TOPIC, 0, 2)
            assert await lost == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await eventually(lambda: partition.log.end_offset == end_offset and partition in in_use(cluster))
        await cluster.lead(TOPIC, 0, 1)
        await eventually(lambda: cluster[1].partitions.get(TOPIC, 0).enough_replicas)
        assert await code(cluster, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [await code(cluster, sequence) for sequence in (0, 1)] == [ErrorCode.NONE] * 2


def in_use(cluster: LocalCluster) -> list[object]:
    return list(cluster[1].partitions.usable.values())


async def create_topic_led_by_1(cluster: LocalCluster) -> None:
    await cluster.ask(1, create_topic(TOPIC), 7)
    await cluster.knows(TOPIC)
    await cluster.in_sync(TOPIC)
    await cluster.lead(TOPIC, 0, 1)
    await eventually(lambda: cluster[1].partitions.get(TOPIC, 0).enough_replicas)
