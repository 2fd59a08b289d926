"""Clients that take all connections keep no broker from following another."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from forebay.broker.cluster.peer_connection import PeerConnection
from forebay.broker.net.sockets import SocketNetwork
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.api_versions import ApiVersionsRequest
from support.brokers.local_cluster import LocalCluster, local_cluster
from support.clients.wire_client import CREATE_TOPICS, PRODUCE, batch, create_topic, only_partition, produce

TOPIC = "t"
CONNECTIONS = 12
SETTINGS = {"max.connections": str(CONNECTIONS), "replica.lag.time.max.ms": "60000"}


async def connected(cluster: LocalCluster, node: int) -> PeerConnection | None:
    """A client that has been served once; None if it was refused."""
    try:
        return await PeerConnection.open(
            SocketNetwork().connect, *cluster.address(node), client_id="greedy", response_bytes_max=1 << 20
        )
    except KafkaError:
        return None


async def test_brokers_are_served_beyond_the_limit_of_connections(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS, brokers=2) as cluster, AsyncExitStack() as stack:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        leader = cluster.leader(TOPIC)
        follower = 3 - leader
        await cluster.ask(leader, ApiVersionsRequest(), 0)
        await cluster.kill(follower)
        await cluster.bury(follower)
        leader = cluster.leader(TOPIC)
        taken = 0
        while (client := await connected(cluster, leader)) is not None:
            stack.callback(client.close)
            taken += 1
        assert CONNECTIONS // 2 < taken < CONNECTIONS
        await cluster.start(follower)
        await cluster.in_sync(TOPIC)
        answer = await cluster.ask(leader, produce(TOPIC, batch(b"x"), acks=-1), PRODUCE)
        assert only_partition(answer).error_code == ErrorCode.NONE
        assert await connected(cluster, leader) is None, "there is no more room for clients than before"


async def test_a_silent_connection_takes_no_room_for_long(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS, brokers=2) as cluster, AsyncExitStack() as stack:
        server = cluster[1].server
        while (client := await connected(cluster, 1)) is not None:
            stack.callback(client.close)
        reader, writer = await asyncio.open_connection(*cluster.address(1))
        stack.callback(writer.close)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        assert server.connection_count <= CONNECTIONS
