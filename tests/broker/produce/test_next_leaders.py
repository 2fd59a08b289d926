"""Producers that come to the wrong broker, or wait for one that is replaced, are told who leads now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce

CREATE_TOPICS, BEFORE_LEADERS, WITH_LEADERS = 7, 9, 12
TOPIC = "t"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.knows(TOPIC)
        await cluster.in_sync(TOPIC)
        yield cluster


async def send(cluster: LocalCluster, node: int, version: int = WITH_LEADERS) -> Any:
    return await cluster.ask(node, produce(TOPIC, batch(b"x"), acks=-1), version)


def named(cluster: LocalCluster, answer: Any) -> tuple[int, int]:
    """The leader in an answer, and its epoch; checks that the answer says where it is."""
    partition = only_partition(answer)
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader: int = partition.current_leader.leader_id
    endpoints = [(each.node_id, each.host, each.port) for each in answer.node_endpoints]
    assert endpoints == [(leader, *cluster.address(leader))]
    return leader, partition.current_leader.leader_epoch


async def test_a_broker_that_does_not_lead_says_who_does(cluster: LocalCluster) -> None:
    leader, other, _ = cluster.state(TOPIC).replicas
    assert named(cluster, await send(cluster, other)) == (leader, 0)
    refused = only_partition(await send(cluster, other, BEFORE_LEADERS))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_requests_that_wait_for_a_leader_are_told_of_the_next_at_once(cluster: LocalCluster) -> None:
    leader, second, third = cluster.state(TOPIC).replicas
    with cluster.deaf(TOPIC, second, third):
        # The third one takes the fast path for requests that are like the one before.
        asked = [asyncio.create_task(send(cluster, leader)) for _ in range(3)]
        held = cluster[leader].partitions.get(TOPIC, 0)
        await eventually(lambda: held.log.end_offset == 3)
        await cluster.lead(TOPIC, 0, second)
        answers = await asyncio.gather(*asked)
    assert [named(cluster, answer) for answer in answers] == [(second, 1)] * 3


async def test_a_leader_that_is_not_sure_of_itself_names_nobody(cluster: LocalCluster) -> None:
    leader = cluster.leader(TOPIC)
    held = cluster[leader].lease
    lease, held.current = held.current, None
    try:
        answer = await send(cluster, leader)
    finally:
        held.current = lease
    assert only_partition(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (only_partition(answer).current_leader.leader_id, answer.node_endpoints) == (-1, [])
