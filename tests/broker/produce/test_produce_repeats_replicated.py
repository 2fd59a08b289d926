"""The fast path for repeated Produce requests, where acks=all waits for other brokers.

tests/broker/replication/test_replication.py has the same tests for the full path.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce

ACKS_ALL = -1
PRODUCE, CREATE_TOPICS = 9, 7
TOPIC = "t"
ALONE = {"default.replication.factor": "1", "forebay.flush.policy": "interval"}
"""With these acks=all waits for nothing."""


@pytest.fixture
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[LocalCluster]:
    """Followers leave the in-sync set after the time that the test is parametrized with, or never."""
    lag_ms = getattr(request, "param", 3_600_000)
    async with local_cluster(tmp_path, {"replica.lag.time.max.ms": str(lag_ms)}) as running:
        (made,) = (await running.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await running.knows(TOPIC)
        for _ in range(3):
            assert (await append(running)).error_code == ErrorCode.NONE
        assert any(c.memo for c in running[running.leader(TOPIC)].server.connections)
        yield running


async def append(cluster: LocalCluster, *, timeout_ms: int = 30_000) -> Any:
    request = produce(TOPIC, batch(b"x"), acks=ACKS_ALL)
    request.timeout_ms = timeout_ms
    return only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))


async def test_many_at_once_are_answered_in_order_when_all_have_them(cluster: LocalCluster) -> None:
    _, *followers = cluster.state(TOPIC).replicas
    with cluster.deaf(TOPIC, *followers):
        asked = [asyncio.create_task(append(cluster)) for _ in range(20)]
        leader = cluster[cluster.leader(TOPIC)].partitions.get(TOPIC, 0)
        await eventually(lambda: leader.log.end_offset == 23)
        assert not any(task.done() for task in asked)
    answers = await asyncio.gather(*asked)
    assert [(a.error_code, a.base_offset) for a in answers] == [(0, n) for n in range(3, 23)]
    ends = {cluster[node].partitions.held(TOPIC, 0).log.end_offset for node in cluster.nodes}
    assert ends == {23}


@pytest.mark.parametrize("cluster", [2_000], indirect=True)
async def test_too_few_replicas_refuse_and_recover(cluster: LocalCluster) -> None:
    _, *followers = cluster.state(TOPIC).replicas
    with cluster.deaf(TOPIC, *followers):
        assert (await append(cluster)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        refused = await append(cluster)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "min.insync.replicas" in refused.error_message
    await cluster.in_sync(TOPIC)
    assert (await append(cluster)).error_code == ErrorCode.NONE


async def test_a_request_that_waits_too_long_is_told_so(cluster: LocalCluster) -> None:
    for _ in range(3):
        assert (await append(cluster, timeout_ms=3_000)).error_code == ErrorCode.NONE
    _, *followers = cluster.state(TOPIC).replicas
    with cluster.deaf(TOPIC, *followers):
        late = await append(cluster, timeout_ms=3_000)
    assert (late.error_code, late.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert late.error_message


async def test_who_waits_for_a_leader_that_is_replaced_is_sent_elsewhere(cluster: LocalCluster) -> None:
    leader, second, third = cluster.state(TOPIC).replicas
    with cluster.deaf(TOPIC, second, third):
        asked = [asyncio.create_task(append(cluster)) for _ in range(3)]
        held = cluster[leader].partitions.get(TOPIC, 0)
        await eventually(lambda: held.log.end_offset == 6)
        await cluster.lead(TOPIC, 0, second)
        answers = await asyncio.gather(*asked)
    assert {answer.error_code for answer in answers} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert (await append(cluster)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("settings", [{}, ALONE], ids=["three replicas", "one replica, no flush"])
@pytest.mark.parametrize("acks", [1, ACKS_ALL])
async def test_without_a_lease_repeated_batches_are_not_acknowledged_either(
    tmp_path: Path, settings: dict[str, str], acks: int
) -> None:
    """Nothing is written for them, but others may have taken this broker's place, and lack what it has."""
    async with local_cluster(tmp_path, settings) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.knows(TOPIC)
        leader = cluster.leader(TOPIC)
        data = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)

        async def send() -> tuple[int, int]:
            answer = only_partition(await cluster.ask(leader, produce(TOPIC, data, acks=acks), PRODUCE))
            return answer.error_code, answer.base_offset

        assert [await send() for _ in range(3)] == [(ErrorCode.NONE, 0)] * 3
        held = cluster[leader].lease
        lease, held.current = held.current, None
        try:
            assert [await send() for _ in range(3)] == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 3
        finally:
            held.current = lease
        assert await send() == (ErrorCode.NONE, 0)
