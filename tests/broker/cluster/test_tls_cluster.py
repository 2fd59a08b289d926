"""A cluster whose brokers talk to each other over TLS, with certificates on both sides."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from forebay.core.cluster.config_changes import AlterOp
from forebay.errors import ErrorCode, KafkaError
from forebay.local.certificates import Authority
from forebay.local.ports import ReservedPort
from forebay.wire.messages.describe_cluster import DescribeClusterRequest
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.brokers.local_cluster import eventually, local_cluster
from support.brokers.tls_files import TlsFiles
from support.clients.wire_client import batch, create_topic, produce

_LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:SSL",
    "inter.broker.listener.name": "INTERNAL",
}


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path / "tls")


def _settings(files: TlsFiles) -> dict[str, str]:
    return {**files.broker_settings(client_auth="required"), **_LISTENERS}


async def test_brokers_replicate_over_tls(tmp_path: Path, files: TlsFiles) -> None:
    async with local_cluster(tmp_path / "data", _settings(files)) as cluster:
        assert (await cluster.ask(1, create_topic("t", 6), 7)).topics[0].error_code == ErrorCode.NONE
        await cluster.knows("t")
        value = bytes(range(256)) * 2000
        for index in range(6):
            request = produce("t", batch(value), partition=index, acks=-1)
            answer = await cluster.ask(cluster.leader("t", index), request, 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        for node in cluster.nodes:
            found = {
                each.principal
                for each in cluster[node].server.connections
                if each.listener.name == "INTERNAL" and each.principal != "User:ANONYMOUS"
            }
            assert found == {"User:CN=broker"}
        victim = cluster.leader("t")
        await cluster.kill(victim)
        await cluster.bury(victim)
        await eventually(lambda: cluster.leader("t") != victim)
        request = produce("t", batch(b"after"), partition=0, acks=-1)
        answer = await cluster.ask(cluster.leader("t"), request, 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_a_broker_of_another_authority_is_kept_out(tmp_path: Path, files: TlsFiles) -> None:
    stranger = files.issue("stranger", "127.0.0.1", authority=Authority.create("another authority"))

    def settings_of(node: int) -> Mapping[str, str]:
        return {"ssl.keystore.location": stranger} if node == 2 else {}

    async with local_cluster(
        tmp_path / "data", _settings(files), brokers=2, settings_of=settings_of
    ) as cluster:
        for asking, asked, reason in ((1, 2, "certificate is not accepted"), (2, 1, "broke|TLS")):
            with pytest.raises(KafkaError, match=reason) as raised:
                await cluster[asking].peers.ask(asked, DescribeClusterRequest(), timeout_s=20)
            assert raised.value.code == ErrorCode.NETWORK_EXCEPTION


async def test_a_broker_at_an_address_that_its_certificate_is_not_for_is_not_trusted(
    tmp_path: Path, files: TlsFiles
) -> None:
    elsewhere = files.issue("elsewhere", "example.org")
    settings = {**_settings(files), "ssl.keystore.location": elsewhere}
    async with local_cluster(tmp_path / "data", settings, brokers=2) as cluster:
        with pytest.raises(KafkaError, match="IP address mismatch"):
            await cluster[1].peers.ask(2, DescribeClusterRequest(), timeout_s=20)
    unchecked = {**settings, "ssl.endpoint.identification.algorithm": ""}
    async with local_cluster(tmp_path / "other", unchecked, brokers=2) as cluster:
        assert await cluster[1].peers.ask(2, DescribeClusterRequest(), timeout_s=20)


async def test_the_name_in_the_certificate_is_the_advertised_one(tmp_path: Path, files: TlsFiles) -> None:
    """Also where a broker connects to itself, at the address that it listens on."""
    certificate = files.issue("named", "localhost")
    settings = {**_settings(files), "ssl.keystore.location": certificate}
    with contextlib.closing(ReservedPort()) as port:
        here = f"INTERNAL://localhost:{port.number}"
        own = {"listeners": f"PLAINTEXT://127.0.0.1:0,{here}", "advertised.listeners": here}
        async with local_cluster(tmp_path / "data", {**settings, **own}, brokers=1) as cluster:
            assert await cluster[1].peers.ask(1, DescribeClusterRequest(), timeout_s=20)


async def test_a_cluster_changes_from_plain_to_tls_broker_by_broker(tmp_path: Path, files: TlsFiles) -> None:
    """All brokers have both listeners; one talks to the others by the old one, the others by the new one."""

    def settings_of(node: int) -> Mapping[str, str]:
        return {"inter.broker.listener.name": "PLAINTEXT" if node == 2 else "INTERNAL"}

    async with local_cluster(tmp_path / "data", _settings(files), settings_of=settings_of) as cluster:
        assert (await cluster.ask(1, create_topic("t", 6), 7)).topics[0].error_code == ErrorCode.NONE
        await cluster.knows("t")
        for index in range(6):
            request = produce("t", batch(b"value"), partition=index, acks=-1)
            answer = await cluster.ask(cluster.leader("t", index), request, 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        for index in range(6):
            assert set(cluster.state("t", index).isr) == {1, 2, 3}


def _joined(file: Path, *authorities: Authority) -> str:
    file.write_bytes(b"".join(each.pem for each in authorities))
    return str(file)


async def test_certificates_between_brokers_are_changed_one_broker_after_the_other(
    tmp_path: Path, files: TlsFiles
) -> None:
    """First the truststores know both authorities, then the certificates are of the new one."""
    key = "listener.name.internal."
    authority = Authority.create("the next authority")
    strange = files.issue("strange", "127.0.0.1", authority=authority)
    both = _joined(tmp_path / "both.pem", files.authority, authority)

    async with local_cluster(tmp_path / "data", _settings(files)) as cluster:

        async def alter(asked: int, node: int, name: str, value: str | None) -> tuple[int, str]:
            op = AlterOp.DELETE if value is None else AlterOp.SET
            config = AlterableConfig(name=key + name, config_operation=op, value=value)
            resource = AlterConfigsResource(resource_type=4, resource_name=str(node), configs=[config])
            request = IncrementalAlterConfigsRequest(resources=[resource])
            (answer,) = (await cluster.ask(asked, request, 1)).responses
            return answer.error_code, answer.error_message or ""

        async def talk() -> None:
            for asking in cluster.nodes:
                for asked in cluster.nodes:
                    cluster[asking].peers.close()
                    assert await cluster[asking].peers.ask(asked, DescribeClusterRequest(), timeout_s=20)

        code, why = await alter(1, 1, "ssl.keystore.location", strange)
        assert (code, "each other's certificates" in why) == (ErrorCode.INVALID_REQUEST, True), why
        code, why = await alter(1, 2, "ssl.client.auth", "requested")
        assert (code, "ask it instead" in why) == (ErrorCode.INVALID_REQUEST, True), why
        for name, value in (("ssl.truststore.location", both), ("ssl.keystore.location", strange)):
            for node in cluster.nodes:
                assert await alter(node, node, name, value) == (ErrorCode.NONE, "")
                await talk()
        assert await alter(1, 2, "ssl.keystore.location", None) == (ErrorCode.NONE, ""), "any takes it back"
