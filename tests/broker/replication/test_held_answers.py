"""Answers to followers that are behind are held back for a moment, in which more may come, and no longer."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.fetch.follower_fetch import ReplicaFetch
from forebay.broker.net.sockets import SocketNetwork
from forebay.errors import ErrorCode
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from support.brokers.local_cluster import local_cluster
from support.clients.wire_client import CREATE_TOPICS, PRODUCE, batch, create_topic, only_partition, produce

FETCH = 17
TOPIC = "t"
CLIENT = "one of a test"
TURN_S = 0.002


@pytest.mark.parametrize("busy", [False, True])
async def test_an_answer_is_held_for_some_turns_of_the_loop_if_these_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    async with local_cluster(tmp_path) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        leader = cluster.leader(TOPIC)
        follower = next(node for node in (1, 2, 3) if node != leader)
        answer = only_partition(await cluster.ask(leader, produce(TOPIC, batch(b"a")), PRODUCE))
        assert answer.error_code == ErrorCode.NONE
        held: list[int] = []
        hold = ReplicaFetch._hold

        def counted(fetch: ReplicaFetch, turns: int, until_s: float) -> None:
            if fetch._context.client_id == CLIENT:
                held.append(turns)
            hold(fetch, turns, until_s)

        monkeypatch.setattr(ReplicaFetch, "_hold", counted)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=follower, replica_epoch=cluster[follower].lease.epoch),
            max_wait_ms=60_000,
            min_bytes=1,
            session_epoch=0,
            topics=[
                FetchTopic(
                    topic_id=cluster[leader].image.topics[TOPIC].topic_id,
                    partitions=[FetchPartition(partition=0, current_leader_epoch=0, fetch_offset=0)],
                )
            ],
        )
        connection = await PeerConnection.open(
            SocketNetwork().connect, *cluster.address(leader), client_id=CLIENT, response_bytes_max=1 << 24
        )
        keeping = asyncio.ensure_future(keep_busy()) if busy else None
        try:
            found: Any = await connection.ask(request, FETCH)
        finally:
            connection.close()
            if keeping is not None:
                keeping.cancel()
        assert found.responses[0].partitions[0].records
        assert held[0] == 4
        assert len(held) <= 2 if busy else len(held) > 1


async def keep_busy() -> None:
    """Let each turn of the loop take long, as when others have the core."""
    while True:
        end = time.monotonic() + TURN_S
        while time.monotonic() < end:
            pass
        await asyncio.sleep(0)
