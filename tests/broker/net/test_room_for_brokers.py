"""Clients that take all connections keep no broker from following another."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.net.sockets import SocketNetwork
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.metadata import MetadataRequest
from forebay.wire.sasl.client import new_login
from forebay.wire.sasl.scram import BY_NAME
from support.brokers.local_cluster import LocalCluster, local_cluster
from support.clients.wire_client import CREATE_TOPICS, PRODUCE, batch, create_topic, only_partition, produce

TOPIC = "t"
CONNECTIONS = 12
SETTINGS = {"max.connections": str(CONNECTIONS), "replica.lag.time.max.ms": "60000"}


PASSWORD = "a secret"
MECHANISM = "SCRAM-SHA-512"
BROKERS_LOG_IN = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "forebay.sasl.username": "broker",
    "forebay.sasl.password": PASSWORD,
}
A_BROKERS = "forebay-broker-2"


async def connected(
    cluster: LocalCluster,
    node: int,
    client_id: str = "greedy",
    *,
    listener: str | None = None,
    user: str | None = None,
) -> PeerConnection | None:
    """A client that has been served once; None if it was refused."""
    addresses = cluster[node].server.addresses
    address = cluster.address(node) if listener is None else addresses[listener]
    try:
        return await PeerConnection.open(
            SocketNetwork().connect,
            *address,
            client_id=client_id,
            new_login=None if user is None else lambda: new_login(MECHANISM, user, PASSWORD, os.urandom),
            response_bytes_max=1 << 20,
        )
    except KafkaError:
        return None


async def add_users(cluster: LocalCluster, *names: str) -> None:
    mechanism = BY_NAME[MECHANISM]
    salted = mechanism.salted_password(PASSWORD, b"salt", 4096)
    upsertions = [
        ScramCredentialUpsertion(
            name=name, mechanism=mechanism.code, iterations=4096, salt=b"salt", salted_password=salted
        )
        for name in names
    ]
    answer = await cluster.ask(1, AlterUserScramCredentialsRequest(upsertions=upsertions), 0)
    assert {each.error_code for each in answer.results} == {ErrorCode.NONE}


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


async def test_a_client_that_calls_itself_a_broker_is_refused_on_the_listener_of_clients(
    tmp_path: Path,
) -> None:
    """With a login that brokers have to make, what a client calls itself proves nothing."""
    settings = SETTINGS | BROKERS_LOG_IN
    async with local_cluster(tmp_path, settings, brokers=2) as cluster, AsyncExitStack() as stack:
        await cluster.settle()
        await add_users(cluster, "broker")
        while (client := await connected(cluster, 1)) is not None:
            stack.callback(client.close)
        assert await connected(cluster, 1, A_BROKERS) is None
        served = await connected(cluster, 1, A_BROKERS, listener="BROKERS", user="broker")
        assert served is not None
        stack.callback(served.close)
        await served.ask(MetadataRequest(topics=[]), 9)


async def test_the_reserve_goes_by_the_right_to_act_as_a_broker(tmp_path: Path) -> None:
    rules = {"authorizer.class.name": "acl", "super.users": "User:broker;User:ANONYMOUS"}
    settings = SETTINGS | BROKERS_LOG_IN | rules
    async with local_cluster(tmp_path, settings, brokers=2) as cluster, AsyncExitStack() as stack:
        await cluster.settle()
        await add_users(cluster, "broker", "ada")
        while (client := await connected(cluster, 1)) is not None:
            stack.callback(client.close)
        for user, is_served in (("ada", False), ("broker", True)):
            served = await connected(cluster, 1, A_BROKERS, listener="BROKERS", user=user)
            assert served is not None, "the login itself is served"
            stack.callback(served.close)
            if is_served:
                await served.ask(MetadataRequest(topics=[]), 9)
            else:
                with pytest.raises(KafkaError):
                    await served.ask(MetadataRequest(topics=[]), 9)


async def test_silent_connections_on_trial_give_way_to_a_broker(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS, brokers=2) as cluster, AsyncExitStack() as stack:
        while (client := await connected(cluster, 1)) is not None:
            stack.callback(client.close)
        for _ in range(20):
            _, writer = await asyncio.open_connection(*cluster.address(1))
            stack.callback(writer.close)
        served = await connected(cluster, 1, A_BROKERS)
        assert served is not None
        stack.callback(served.close)
