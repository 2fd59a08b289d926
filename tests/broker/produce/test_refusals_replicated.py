"""Errors that producers take as final: a leader answers them when its followers have shown that it leads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.produce import write_cycle
from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.wire_client import batch, create_topic, only_partition, produce

ACKS_ALL = -1
PRODUCE, CREATE_TOPICS = 9, 7
TOPIC = "t"
NO_SESSIONS = {"max.incremental.fetch.session.cache.slots": "0", "replica.fetch.backoff.ms": "20"}
NEVER_OUT_OF_SYNC = {"replica.lag.time.max.ms": "3600000"}


async def begin(cluster: LocalCluster) -> None:
    (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)
    await cluster.in_sync(TOPIC)


async def send(cluster: LocalCluster, node: int, sequence: int, acks: int = ACKS_ALL) -> Any:
    data = batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence, timestamp=1)
    return only_partition(await cluster.ask(node, produce(TOPIC, data, acks=acks), PRODUCE))


async def send_until(cluster: LocalCluster, node: int, sequence: int, acks: int = ACKS_ALL) -> int:
    """The answer when the leader is found, or found again: a busy one may not be sure within its time."""

    async def attempt() -> tuple[int, int]:
        code = (await send(cluster, node, sequence, acks)).error_code
        return code, code

    code: int = await retried(attempt, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return code


@pytest.mark.parametrize("acks", [1, ACKS_ALL])
@pytest.mark.parametrize("settings", [{}, NO_SESSIONS], ids=["sessions", "no sessions"])
async def test_a_leader_that_is_followed_refuses_for_good(
    tmp_path: Path, settings: dict[str, str], acks: int
) -> None:
    async with local_cluster(tmp_path, settings) as cluster:
        await begin(cluster)
        leader = cluster.leader(TOPIC)
        for sequence in range(3):
            assert await send_until(cluster, leader, sequence, acks) == ErrorCode.NONE
        assert await send_until(cluster, leader, 9, acks) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send_until(cluster, leader, 3, acks) == ErrorCode.NONE


@pytest.mark.parametrize("acks", [1, ACKS_ALL])
async def test_a_deposed_leader_that_hears_nothing_refuses_nothing_for_good(
    tmp_path: Path, acks: int
) -> None:
    async with local_cluster(tmp_path, NEVER_OUT_OF_SYNC) as cluster:
        await begin(cluster)
        old, new, _ = cluster.state(TOPIC).replicas
        assert await send_until(cluster, old, 0) == ErrorCode.NONE
        with cluster.uninformed(old):
            await cluster.lead(TOPIC, 0, new)
            for sequence in (1, 2):
                assert await send_until(cluster, new, sequence, 1) == ErrorCode.NONE
            assert cluster[old].partitions.get(TOPIC, 0).is_leader, "it still believes so"
            answers = await asyncio.gather(*(send(cluster, old, sequence, acks) for sequence in (2, 3)))
            assert {each.error_code for each in answers} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert (await send(cluster, new, 2)).base_offset == 2, "nothing was lost"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals wait for followers as long as their requests may."""
    monkeypatch.setattr(write_cycle, "PROOF_S_MAX", 3_600.0)


@pytest.mark.usefixtures("patient")
async def test_who_waits_for_a_leader_that_is_replaced_is_sent_elsewhere(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, NEVER_OUT_OF_SYNC) as cluster:
        await begin(cluster)
        old, second, third = cluster.state(TOPIC).replicas
        assert await send_until(cluster, old, 0) == ErrorCode.NONE
        partition = cluster[old].partitions.get(TOPIC, 0)
        with cluster.deaf(TOPIC, second, third):
            asked = asyncio.create_task(send(cluster, old, 5))
            await eventually(lambda: partition.refusals)
            await cluster.lead(TOPIC, 0, second)
            assert (await asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.usefixtures("patient")
async def test_answers_keep_their_order_and_those_behind_a_refusal_are_appended(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, NEVER_OUT_OF_SYNC) as cluster:
        await begin(cluster)
        leader, second, third = cluster.state(TOPIC).replicas
        partition = cluster[leader].partitions.get(TOPIC, 0)
        assert await send_until(cluster, leader, 0) == ErrorCode.NONE
        with cluster.deaf(TOPIC, second, third):
            refused = asyncio.create_task(send(cluster, leader, 5, 1))
            await eventually(lambda: partition.refusals)
            taken = asyncio.create_task(send(cluster, leader, 1, 1))
            await eventually(lambda: partition.log.end_offset == 2)
            assert not refused.done() and not taken.done()
        assert (await refused).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await taken).error_code == ErrorCode.NONE


@pytest.mark.usefixtures("patient")
async def test_who_is_alone_in_sync_has_led(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, NEVER_OUT_OF_SYNC) as cluster:
        await begin(cluster)
        leader, *others = cluster.state(TOPIC).replicas
        assert await send_until(cluster, leader, 0) == ErrorCode.NONE
        for node in others:
            cluster[node].replication.following.stop()
        asked = asyncio.create_task(send(cluster, leader, 5))
        await eventually(lambda: cluster[leader].partitions.get(TOPIC, 0).refusals)
        await cluster.change(TOPIC, 0, isr=(leader,))
        assert (await asked).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_follower_that_is_silent_leaves_the_leader_unsure(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, NEVER_OUT_OF_SYNC) as cluster:
        await begin(cluster)
        leader, second, _ = cluster.state(TOPIC).replicas
        assert await send_until(cluster, leader, 0) == ErrorCode.NONE
        with cluster.deaf(TOPIC, second):
            assert (await send(cluster, leader, 5)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await send_until(cluster, leader, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
