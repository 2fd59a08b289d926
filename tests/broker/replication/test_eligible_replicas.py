"""Replicas that left the in-sync set when it became too small have everything, and lead if they must."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.partition.partition import Partition
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.errors import ErrorCode
from forebay.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
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
PRODUCE, FETCH, CREATE_TOPICS, LIST_OFFSETS = 9, 12, 7, 7
LATEST = -1
TOPIC = "t"
UNSYNCED = {"log.flush.interval.ms": "600000"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path, UNSYNCED) as running:
        (made,) = (await running.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await running.in_sync(TOPIC)
        yield running


async def append(cluster: LocalCluster, *values: bytes, acks: int = ACKS_ALL) -> Any:
    request = produce(TOPIC, batch(*values), acks=acks)
    return only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))


async def values(cluster: LocalCluster, node: int) -> list[bytes | None]:
    answer = only_partition(await cluster.ask(node, fetch(TOPIC, 0), FETCH))
    return [value for _, value in values_of(answer.records)]


def held(cluster: LocalCluster, node: int) -> Partition:
    return cluster[node].partitions.held(TOPIC, 0)


async def bury(cluster: LocalCluster, *nodes: int) -> None:
    for node in nodes:
        await cluster.kill(node)
        await cluster.bury(node)


def take_power(tmp_path: Path, node: int) -> None:
    """What a machine finds that was cut off before it had synced anything of the topic."""
    directory = tmp_path / f"node-{node}"
    (directory / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (directory / "boot-id").write_text("another boot")
    (directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    for segment in (directory / f"{TOPIC}-0").glob("*.log"):
        segment.write_bytes(b"")


def summary(state: PartitionState) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return state.leader, state.isr, state.eligible


async def test_a_broker_that_lost_its_power_unnoticed_does_not_lead_without_its_last_messages(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    first, second, third = cluster.state(TOPIC).replicas
    await append(cluster, b"precious")
    await cluster.kill(first)  # its lease goes on: nobody knows
    take_power(tmp_path, first)
    await cluster.stop(second)
    await cluster.stop(third)
    await cluster.start(first)
    await cluster.settle()
    assert summary(cluster.state(TOPIC)) == (NO_LEADER, (), (third,)), "who may lack something must not lead"
    await cluster.start(second)
    await cluster.settle()
    assert cluster.leader(TOPIC) == NO_LEADER
    await cluster.start(third)
    await cluster.in_sync(TOPIC)
    assert await values(cluster, cluster.leader(TOPIC)) == [b"precious"]


async def test_a_restarted_replica_leads_in_place_of_one_that_lost_its_power(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    controller = cluster[1].image.controller
    first = next(node for node in cluster.nodes if node != controller)
    second, third = (node for node in cluster.nodes if node != first)
    await cluster.lead(TOPIC, 0, first)
    await append(cluster, b"precious")
    await cluster.kill(first)
    take_power(tmp_path, first)
    for node in (second, third):
        await cluster.kill(node)
        await cluster.start(node)
        await cluster.settle()
    await cluster.bury(first)
    assert cluster.leader(TOPIC) != first
    await cluster.start(first)
    await cluster.in_sync(TOPIC)
    assert await values(cluster, cluster.leader(TOPIC)) == [b"precious"]


async def test_an_eligible_replica_takes_the_place_of_a_lost_disk(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    first, second, third = cluster.state(TOPIC).replicas
    await append(cluster, b"precious")
    await bury(cluster, second, third)
    await cluster.kill(first)
    (tmp_path / f"node-{first}").rename(tmp_path / "gone")
    await cluster.start(first)
    await cluster.start(second)
    await cluster.settle()
    assert cluster.leader(TOPIC) == NO_LEADER, "the second had left while others could still commit"
    await cluster.start(third)
    await cluster.in_sync(TOPIC)
    assert await values(cluster, cluster.leader(TOPIC)) == [b"precious"]


async def test_nothing_is_committed_while_too_few_are_in_sync(cluster: LocalCluster) -> None:
    first, second, third = cluster.state(TOPIC).replicas
    await append(cluster, b"committed")
    await bury(cluster, second, third)
    answer = await append(cluster, b"refused")
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await append(cluster, b"alone", acks=1)).error_code == ErrorCode.NONE
    assert await values(cluster, first) == [b"committed"]
    (listed,) = (await cluster.ask(first, list_offsets(TOPIC, LATEST), LIST_OFFSETS)).topics
    (latest,) = listed.partitions
    assert (latest.error_code, latest.offset) == (ErrorCode.NONE, 1)
    await cluster.start(third)
    await eventually(lambda: held(cluster, first).high_watermark == 2)
    assert await values(cluster, first) == [b"committed", b"alone"]
    assert cluster.state(TOPIC).eligible == ()


async def test_a_leader_that_is_left_alone_says_when_it_has_synced(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    first, second, third = cluster.state(TOPIC).replicas
    await append(cluster, b"precious")
    await bury(cluster, second, third)
    await eventually(lambda: cluster.state(TOPIC).synced)
    assert summary(cluster.state(TOPIC)) == (first, (first,), (third,))
    await cluster.kill(first)
    (tmp_path / f"node-{first}" / "boot-id").write_text("another boot")
    (tmp_path / f"node-{first}" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    await cluster.start(first)
    await cluster.settle()
    assert summary(cluster.state(TOPIC)) == (first, (first,), (third,)), "its disk has everything"
    assert held(cluster, first).log.end_offset == 1


async def test_administrators_see_who_is_eligible(cluster: LocalCluster) -> None:
    first, second, third = cluster.state(TOPIC).replicas
    await bury(cluster, second, third)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
    (topic,) = (await cluster.ask(first, request, 0)).topics
    (partition,) = topic.partitions
    assert (partition.isr_nodes, partition.eligible_leader_replicas) == ([first], [third])
