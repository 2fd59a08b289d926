"""Fetches that wait at a leader while their follower begins anew: it may have less by then than it had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.net.sockets import SocketNetwork
from forebay.broker.replication import follower_tracking
from forebay.core.partition.fetch_session import FetchSession
from forebay.core.partition.leadership import UNKNOWN_OFFSET, Follower
from forebay.errors import ErrorCode
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import CREATE_TOPICS, PRODUCE, batch, create_topic, only_partition, produce

FETCH = 17
TOPIC = "t"
END_OFFSET = 4


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalCluster]:
    monkeypatch.setattr(follower_tracking, "_NEWS_S", 0.0)
    async with local_cluster(tmp_path, {"replica.lag.time.max.ms": "3600000"}) as running:
        (made,) = (await running.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await running.in_sync(TOPIC)
        request = produce(TOPIC, batch(b"a", b"b", b"c", b"d"), acks=-1)
        answer = only_partition(await running.ask(running.leader(TOPIC), request, PRODUCE))
        assert answer.error_code == ErrorCode.NONE
        yield running


def followed(cluster: LocalCluster, node: int) -> Follower:
    leadership = cluster[cluster.leader(TOPIC)].partitions.get(TOPIC, 0).leadership
    assert leadership is not None
    return leadership.followers[node]


async def fetch(cluster: LocalCluster, node: int, offset: int, *, wait_ms: int) -> Any:
    """What the leader answers this follower, on a connection of its own."""
    leader = cluster.leader(TOPIC)
    connection = await PeerConnection.open(
        SocketNetwork().connect, *cluster.address(leader), client_id="test", response_bytes_max=1 << 24
    )
    wanted = FetchPartition(partition=0, current_leader_epoch=0, fetch_offset=offset)
    topic_id = cluster[leader].image.topics[TOPIC].topic_id
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=node, replica_epoch=cluster[node].lease.epoch),
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_epoch=0,
        topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )
    try:
        return await connection.ask(request, FETCH)
    finally:
        connection.close()


async def waiting_fetch(cluster: LocalCluster, node: int) -> tuple[asyncio.Task[Any], FetchSession]:
    """A fetch of a follower that has everything, and its session; returns when it waits at the leader."""
    sessions = cluster[cluster.leader(TOPIC)].replication.sessions
    known = {each.id for each in sessions}
    fetching = asyncio.create_task(fetch(cluster, node, END_OFFSET, wait_ms=3_600_000))
    (session,) = await eventually(
        lambda: [each for each in sessions if each.id not in known and each.on_changed is not None]
    )
    assert followed(cluster, node).end_offset == END_OFFSET
    return fetching, session


async def test_a_fetch_of_an_earlier_session_does_not_count_any_more(cluster: LocalCluster) -> None:
    """A machine that lost its power closed no connection."""
    leader = cluster.leader(TOPIC)
    node = next(each for each in cluster.nodes if each != leader)
    with cluster.deaf(TOPIC, node):
        waiting, session = await waiting_fetch(cluster, node)
        answer = await fetch(cluster, node, 1, wait_ms=0)
        assert only_partition(answer).error_code == ErrorCode.NONE
        assert session.on_changed is not None
        session.on_changed()  # as when its time is over
        cluster[leader].write_cycle.finish_soon()
        answer = await waiting
        assert followed(cluster, node).end_offset == 1
        assert answer.responses == []


async def test_a_fetch_of_a_broker_that_is_not_registered_any_more_does_not_count(
    cluster: LocalCluster,
) -> None:
    node = next(each for each in cluster.nodes if each != cluster.leader(TOPIC))
    with cluster.deaf(TOPIC, node):
        waiting, _ = await waiting_fetch(cluster, node)
        await cluster.kill(node)
        await cluster.bury(node)
        assert node not in cluster.state(TOPIC).isr
        answer = await waiting
        assert followed(cluster, node).end_offset == UNKNOWN_OFFSET
        assert answer.responses == []
