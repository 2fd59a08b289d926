"""Brokers that talk to each other by a SASL listener: they log in, log in again, and say why they cannot."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.net.sockets import SocketNetwork
from forebay.config import broker_config
from forebay.errors import ConfigError, ErrorCode, KafkaError
from forebay.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from forebay.wire.messages.metadata import MetadataRequest
from forebay.wire.sasl.client import Login, new_login
from forebay.wire.sasl.scram import ScramMechanism
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.brokers.tls_files import TlsFiles
from support.clients.wire_client import batch, create_topic, produce

PASSWORD = "a broker's secret"
SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "forebay.sasl.username": "broker",
    "forebay.sasl.password": PASSWORD,
    "default.replication.factor": "3",
}


def new_user(password: str = PASSWORD) -> AlterUserScramCredentialsRequest:
    mechanism = ScramMechanism.SHA_512
    salted = mechanism.salted_password(password, b"salt", 4096)
    upsertion = ScramCredentialUpsertion(
        name="broker", mechanism=mechanism.code, iterations=4096, salt=b"salt", salted_password=salted
    )
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


async def add_user(cluster: LocalCluster, password: str = PASSWORD) -> None:
    answer = await cluster.ask(1, new_user(password), 0)
    assert answer.results[0].error_code == ErrorCode.NONE


async def produced(cluster: LocalCluster, value: bytes) -> int:
    request = produce("t", batch(value), acks=-1)
    answer = await cluster.ask(cluster.leader("t"), request, 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def test_brokers_replicate_after_they_have_logged_in(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS, brokers=3) as cluster:
        await add_user(cluster)
        assert (await cluster.ask(1, create_topic("t", 1), 7)).topics[0].error_code == ErrorCode.NONE
        await cluster.knows("t")
        assert await produced(cluster, b"x") == ErrorCode.NONE
        assert len(cluster.state("t").isr) == 3
        assert sum(cluster[node].metrics.logins for node in cluster.nodes) >= 2
        assert "User:broker" in {
            each.principal for node in cluster.nodes for each in cluster[node].server.connections
        }


async def test_brokers_log_in_over_tls(tmp_path: Path) -> None:
    tls = TlsFiles(tmp_path).broker_settings()
    settings = {**tls, **SETTINGS, "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_SSL"}
    async with local_cluster(tmp_path, settings, brokers=3) as cluster:
        await add_user(cluster)
        await cluster.ask(1, create_topic("t", 1), 7)
        await cluster.knows("t")
        assert await produced(cluster, b"x") == ErrorCode.NONE
        assert len(cluster.state("t").isr) == 3


async def test_brokers_wait_for_their_user(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS, brokers=3) as cluster:
        await add_user(cluster, "another password")
        await cluster.ask(1, create_topic("t", 1), 7)
        await cluster.knows("t")
        await eventually(lambda: any(cluster[node].metrics.logins_failed for node in cluster.nodes))
        assert not any(cluster[node].metrics.logins for node in cluster.nodes)
        await add_user(cluster)
        assert await produced(cluster, b"x") == ErrorCode.NONE


async def test_brokers_log_in_again_while_they_replicate(tmp_path: Path) -> None:
    settings = {**SETTINGS, "listener.name.brokers.connections.max.reauth.ms": "1500"}
    async with local_cluster(tmp_path, settings, brokers=3) as cluster:
        await add_user(cluster)
        await cluster.ask(1, create_topic("t", 1), 7)
        await cluster.knows("t")
        assert await produced(cluster, b"x") == ErrorCode.NONE
        leader = cluster[cluster.leader("t")]
        before = leader.metrics.logins, len(leader.server.connections)
        while leader.metrics.logins < before[0] + 4:
            assert await produced(cluster, b"y") == ErrorCode.NONE
            await asyncio.sleep(0.05)
        assert leader.metrics.sessions_expired == 0
        assert len(cluster.state("t").isr) == 3


async def test_requests_keep_their_order_when_a_login_is_renewed(tmp_path: Path) -> None:
    """One that comes at the end of the login does not overtake those that wait for it."""
    settings = {**SETTINGS, "listener.name.brokers.connections.max.reauth.ms": "60000"}
    async with local_cluster(tmp_path, settings, brokers=1) as cluster:
        await add_user(cluster)
        connection: Any = await PeerConnection.open(
            SocketNetwork().connect,
            *cluster[1].server.addresses["BROKERS"],
            client_id="test",
            response_bytes_max=1 << 20,
            new_login=lambda: new_login("SCRAM-SHA-512", "broker", PASSWORD, os.urandom),
        )
        send = connection._ask
        tasks: list[asyncio.Task[Any]] = []
        sent: list[MetadataRequest] = []

        def ask() -> None:
            tasks.append(asyncio.create_task(connection.ask(requests[len(tasks)])))

        async def log_in(_: Login) -> None:
            await asyncio.sleep(0.01)
            connection._renew_at = asyncio.get_running_loop().time() + 60
            ask()

        def asked(request: Any, *how: Any) -> Any:
            if isinstance(request, MetadataRequest):
                sent.append(request)
            return send(request, *how)

        requests = [MetadataRequest(topics=[]) for _ in range(3)]
        connection._log_in, connection._ask = log_in, asked
        connection._renew_at = 0.0
        ask()
        ask()
        await eventually(lambda: len(tasks) == len(requests))
        await asyncio.gather(*tasks)
        assert all(found is wanted for found, wanted in zip(sent, requests, strict=True))
        connection.close()


async def test_a_peer_says_why_it_was_refused(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS, brokers=1) as cluster:
        await add_user(cluster)

        async def opened(mechanism: str, password: str) -> PeerConnection:
            def login() -> Login:
                return new_login(mechanism, "broker", password, os.urandom)

            return await PeerConnection.open(
                SocketNetwork().connect,
                *cluster[1].server.addresses["BROKERS"],
                client_id="test",
                response_bytes_max=1 << 20,
                new_login=login,
            )

        with pytest.raises(KafkaError, match=r"SASL_AUTHENTICATION_FAILED.*forebay\.sasl\.password"):
            await opened("SCRAM-SHA-512", "wrong")
        with pytest.raises(KafkaError, match="UNSUPPORTED_SASL_MECHANISM"):
            await opened("PLAIN", PASSWORD)
        connection = await opened("SCRAM-SHA-512", PASSWORD)
        answer: Any = await connection.ask(MetadataRequest(topics=None), 12)
        assert answer.brokers
        connection.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forebay.sasl.username": ""}, "give forebay.sasl.username"),
        ({"forebay.sasl.password": ""}, "give forebay.sasl.username"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "is not one of the"),
        ({"listener.name.nobody.sasl.enabled.mechanisms": "PLAIN"}, "there is no such listener"),
        ({"listener.name.brokers.log.dirs": "x"}, "cannot be set for one listener"),
        ({"sasl.enabled.mechanisms": ""}, "name at least one"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "'GSSAPI' is not allowed"),
        (
            {
                "listeners": "CLIENTS://127.0.0.1:0,BROKERS://10.0.0.1:1",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            },
            "without encryption",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        broker_config({**SETTINGS, **change})


def test_a_password_is_shown_nowhere() -> None:
    config = broker_config(SETTINGS)
    assert config.sasl.broker_password is not None
    assert config.sasl.broker_password.reveal() == PASSWORD
    texts = repr(config), str(config), f"{config.sasl.broker_password}", repr(config.sasl), str(config.values)
    assert not any(PASSWORD in text for text in texts)
