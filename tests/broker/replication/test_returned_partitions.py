"""A partition that is taken from a follower and given back while one fetch waits at its leader.

The answer is for the log that it had before, and the leader's session remembers what that one was told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.broker.cluster.peers.peer_connection import _in_use
from forebay.broker.partition.partition import Partition
from forebay.core.cluster.replicas.reassignment import reassign
from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import (
    CREATE_TOPICS,
    FETCH,
    PRODUCE,
    batch,
    create_topic,
    fetch,
    only_partition,
    produce,
    values_of,
)

TOPIC, PARTITIONS = "t", 6
PATIENT = {"replica.fetch.wait.max.ms": "20000", "replica.lag.time.max.ms": "3600000"}
"""The fetch still waits when the partition is back."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path, PATIENT) as running:
        (made,) = (await running.ask(1, create_topic(TOPIC, PARTITIONS), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        for index in range(PARTITIONS):
            await running.in_sync(TOPIC, index)
        yield running


def follower(cluster: LocalCluster) -> int:
    return next(node for node in cluster.nodes if node != cluster.leader(TOPIC))


async def append(cluster: LocalCluster, *values: bytes, acks: int = 1) -> None:
    request = produce(TOPIC, batch(*values), acks=acks)
    answer = only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))
    assert answer.error_code == ErrorCode.NONE


def held(cluster: LocalCluster, node: int) -> Partition | None:
    return cluster[node].partitions.usable.get((TOPIC, 0))


async def take_and_give_back(cluster: LocalCluster, node: int) -> Partition:
    """As when a reassignment is taken back: the partition that the follower has then, with an empty log."""
    before, state = held(cluster, node), cluster.state(TOPIC)
    others = tuple(each for each in state.replicas if each != node)
    await cluster.change(TOPIC, 0, replicas=others, isr=others)
    await cluster.change(TOPIC, 0, replicas=state.replicas)
    await eventually(lambda: held(cluster, node) not in (None, before))
    partition = held(cluster, node)
    assert partition is not None and partition.log.end_offset == 0
    return partition


async def test_what_its_log_had_before_is_fetched_again(cluster: LocalCluster) -> None:
    leader, node = cluster.leader(TOPIC), follower(cluster)
    await append(cluster, b"a", b"b", acks=-1)
    with cluster.uninformed(leader):
        partition = await take_and_give_back(cluster, node)
        await append(cluster, b"c")
        await eventually(lambda: partition.log.end_offset == 3)
    await cluster.settle()
    await cluster.in_sync(TOPIC)
    await cluster.lead(TOPIC, 0, node)
    await eventually(lambda: partition.is_leader)
    records = only_partition(await cluster.ask(node, fetch(TOPIC, 0), FETCH)).records
    assert values_of(records) == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_it_is_not_in_sync_by_the_log_that_it_is_about_to_delete(cluster: LocalCluster) -> None:
    """It hears late that it was removed and added again, and fetches on meanwhile as the replica it was."""
    leader = cluster.leader(TOPIC)
    node = max(each for each in cluster.nodes if each != leader)
    await append(cluster, b"a", b"b", acks=-1)
    before, state = held(cluster, node), cluster.state(TOPIC)
    with cluster.uninformed(node):
        await reassign_to(cluster, tuple(each for each in state.replicas if each != node))
        await reassign_to(cluster, state.replicas)
        await append(cluster, b"c")
        await asyncio.sleep(0.3)  # more than it takes to join
        assert node not in cluster.state(TOPIC).isr
        assert cluster.leader(TOPIC) == leader
    await cluster.in_sync(TOPIC)
    partition = held(cluster, node)
    assert partition is not None and partition is not before
    assert partition.log.end_offset == 3


async def reassign_to(cluster: LocalCluster, target: tuple[int, ...]) -> None:
    metadata = cluster[cluster.leader(TOPIC)].metadata
    await metadata.change(lambda image: reassign(image, TOPIC, 0, target))


async def test_the_high_watermark_is_told_again(cluster: LocalCluster) -> None:
    """The log is as long as before, but its follower does not know how much of it is committed."""
    node = follower(cluster)
    await append(cluster, b"a", acks=-1)
    partition = held(cluster, node)
    assert partition is not None
    await end_the_wait(cluster)
    await eventually(lambda: partition.high_watermark == 1)
    with cluster.deaf(TOPIC, node):
        partition.high_watermark = 0
    await end_the_wait(cluster)
    await eventually(lambda: partition.high_watermark == 1)


async def end_the_wait(cluster: LocalCluster) -> None:
    """Another partition of the leader gets a message, and its followers' fetches are answered."""
    leader = cluster.leader(TOPIC)
    other = next(index for index in range(1, PARTITIONS) if cluster.leader(TOPIC, index) == leader)
    request = produce(TOPIC, batch(b"x"), acks=1, partition=other)
    assert only_partition(await cluster.ask(leader, request, PRODUCE)).error_code == ErrorCode.NONE


async def test_the_memory_of_the_first_answer_is_used_again(cluster: LocalCluster) -> None:
    leader, node = cluster.leader(TOPIC), follower(cluster)
    partition = held(cluster, node)
    assert partition is not None
    fetcher = cluster[node].replication.following._fetchers[leader]
    with cluster.deaf(TOPIC, node):
        await append(cluster, b"x" * 100_000)
    fetcher._interrupt()
    await eventually(lambda: partition.log.end_offset == 1)
    connection = fetcher._connection
    assert connection is not None and len(connection._spare) > 100_000
    await append(cluster, b"y", acks=-1)
    assert not _in_use(connection._spare)
