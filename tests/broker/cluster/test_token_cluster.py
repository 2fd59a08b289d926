"""Delegation tokens in a cluster: created at one broker, used at another, ended at a third."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from forebay.errors import ErrorCode
from forebay.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from forebay.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from forebay.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from forebay.wire.messages.metadata import MetadataRequest
from forebay.wire.sasl.scram import ScramMechanism, encoded
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.brokers.sasl_broker import log_in
from support.clients.wire_client import WireClient

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "delegation.token.expiry.check.interval.ms": "20",
}


async def add_ada(cluster: LocalCluster) -> None:
    mechanism = ScramMechanism.SHA_256
    ada = ScramCredentialUpsertion(
        name="ada",
        mechanism=mechanism.code,
        iterations=4096,
        salt=b"salt",
        salted_password=mechanism.salted_password("secret", b"salt", 4096),
    )
    answer = await cluster.ask(1, AlterUserScramCredentialsRequest(upsertions=[ada]), 0)
    assert answer.results[0].error_code == ErrorCode.NONE
    await eventually(lambda: all("ada" in cluster[node].image.users for node in cluster.nodes))


def client_of(
    cluster: LocalCluster, node: int, user: str, password: str, **how: Any
) -> tuple[WireClient, int]:
    host, port = cluster[node].server.addresses["CLIENTS"]
    client = WireClient(f"{host}:{port}")
    return client, log_in(client, user=user, password=password, **how).error_code


async def test_a_token_is_good_at_every_broker_until_it_is_ended_at_one(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        await add_ada(cluster)
        ada, code = await asyncio.to_thread(client_of, cluster, 1, "ada", "secret")
        assert code == ErrorCode.NONE
        made = await asyncio.to_thread(ada.call, CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        assert made.error_code == ErrorCode.NONE
        await eventually(lambda: all(cluster[node].image.tokens for node in cluster.nodes))
        clients = []
        for node in cluster.nodes:
            login = (made.token_id, encoded(made.hmac))
            client, code = await asyncio.to_thread(client_of, cluster, node, *login, is_token=True)
            assert code == ErrorCode.NONE
            answer = await asyncio.to_thread(client.call, MetadataRequest(topics=[]), 12)
            assert answer.error_code == ErrorCode.NONE
            clients.append(client)
        other, code = await asyncio.to_thread(client_of, cluster, 3, "ada", "secret")
        ending = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        assert (await asyncio.to_thread(other.call, ending, 2)).error_code == ErrorCode.NONE
        for client in (*clients, ada, other):
            if client in clients:
                assert await asyncio.to_thread(client.is_closed)
            client.close()


async def test_the_controller_that_is_left_removes_expired_tokens(tmp_path: Path) -> None:
    settings = {**SETTINGS, "delegation.token.expiry.time.ms": "3000"}
    async with local_cluster(tmp_path, settings) as cluster:
        await add_ada(cluster)
        ada, _ = await asyncio.to_thread(client_of, cluster, 1, "ada", "secret")
        made = await asyncio.to_thread(ada.call, CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        assert made.error_code == ErrorCode.NONE
        ada.close()
        await eventually(lambda: all(cluster[node].image.tokens for node in cluster.nodes))
        controller = cluster[1].image.controller
        await cluster.kill(controller)
        await cluster.bury(controller)
        left = [node for node in cluster.nodes if node != controller]
        await eventually(lambda: not any(cluster[node].image.tokens for node in left))
