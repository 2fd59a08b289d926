"""Brokers with several listeners: each client is given the addresses of the listener that it came by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.net.sockets import SocketNetwork
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.stored.image_text import decode_broker, encode_broker
from forebay.errors import ConfigError, ErrorCode
from forebay.wire.messages.describe_cluster import DescribeClusterRequest
from forebay.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.brokers.local_broker import local_broker
from support.brokers.local_cluster import LocalCluster, local_cluster
from support.clients.wire_client import batch, create_topic, produce

_MAP = {"listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT"}
_TWO = {**_MAP, "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0"}
_BROKER = 4


async def _ask(cluster: LocalCluster, node_id: int, listener: str, request: Any, version: int) -> Any:
    connection = await PeerConnection.open(
        SocketNetwork().connect,
        *cluster[node_id].server.addresses[listener],
        client_id="test",
        response_bytes_max=1 << 20,
    )
    try:
        return await connection.ask(request, version)
    finally:
        connection.close()


def _bound(cluster: LocalCluster, listener: str) -> dict[int, tuple[str, int]]:
    return {node: cluster[node].server.addresses[listener] for node in cluster.nodes}


async def _topic(cluster: LocalCluster) -> None:
    answer = await cluster.ask(1, create_topic("t", 4), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    await cluster.knows("t")


async def test_clients_are_answered_with_addresses_of_their_listener(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, {**_TWO, "default.replication.factor": "1"}, brokers=2) as cluster:
        await _topic(cluster)
        index = next(index for index in range(4) if cluster.leader("t", index) == 2)
        assert _bound(cluster, "INTERNAL") != _bound(cluster, "EXTERNAL")
        for listener in ("INTERNAL", "EXTERNAL"):
            bound = _bound(cluster, listener)
            told = await _ask(cluster, 1, listener, MetadataRequest(topics=None), 12)
            assert {each.node_id: (each.host, each.port) for each in told.brokers} == bound
            told = await _ask(cluster, 1, listener, DescribeClusterRequest(), 1)
            assert {each.broker_id: (each.host, each.port) for each in told.brokers} == bound
            told = await _ask(cluster, 1, listener, FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            (found,) = told.coordinators
            assert (found.host, found.port) == bound[found.node_id]
            wanted = FetchTopic(
                topic_id=cluster[1].image.topics["t"].topic_id,
                partitions=[FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)],
            )
            request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[wanted])
            told = await _ask(cluster, 1, listener, request, 16)
            (other,) = told.node_endpoints
            assert (other.node_id, (other.host, other.port)) == (2, bound[2])


async def test_brokers_talk_to_each_other_by_their_own_listener(tmp_path: Path) -> None:
    """The first listener is advertised at an address where nobody is: brokers need another."""

    def settings_of(_: int) -> Mapping[str, str]:
        return {
            "inter.broker.listener.name": "INTERNAL",
            "listeners": "EXTERNAL://127.0.0.1:0,INTERNAL://127.0.0.1:0",
            "advertised.listeners": "EXTERNAL://127.0.0.1:9",
        }

    async with local_cluster(tmp_path, _MAP, brokers=2, settings_of=settings_of) as cluster:
        await _topic(cluster)
        answer = await cluster.ask(cluster.leader("t", 0), produce("t", batch(b"v"), partition=0, acks=-1), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_brokers_without_the_listener_are_away_for_its_clients(tmp_path: Path) -> None:
    def settings_of(node: int) -> Mapping[str, str]:
        return _TWO if node == 1 else {"listeners": "INTERNAL://127.0.0.1:0"}

    async with local_cluster(tmp_path, _MAP, brokers=2, settings_of=settings_of) as cluster:
        await _topic(cluster)
        led_by = {index: cluster.leader("t", index) for index in range(4)}
        assert set(led_by.values()) == {1, 2}
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        for version, missing in ((12, ErrorCode.LISTENER_NOT_FOUND), (5, ErrorCode.LEADER_NOT_AVAILABLE)):
            told = await _ask(cluster, 1, "EXTERNAL", request, version)
            assert [each.node_id for each in told.brokers] == [1]
            for partition in told.topics[0].partitions:
                led_here = led_by[partition.partition_index] == 1
                assert partition.leader_id == (1 if led_here else NO_LEADER)
                assert partition.error_code == (ErrorCode.NONE if led_here else missing)
                assert partition.offline_replicas == [2]
        keys = [f"group-{number}" for number in range(40)]
        told = await _ask(cluster, 1, "EXTERNAL", FindCoordinatorRequest(coordinator_keys=keys), 4)
        assert {each.error_code for each in told.coordinators} <= {
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        }
        assert all(each.node_id in (1, -1) for each in told.coordinators)


async def test_each_listener_of_a_cluster_needs_an_address_for_others(tmp_path: Path) -> None:
    settings = {
        **_MAP,
        "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://0.0.0.0:0",
        "forebay.allow.insecure": "true",
    }
    with pytest.raises(ExceptionGroup) as raised:
        async with local_cluster(tmp_path, settings, brokers=1):
            pass
    (error,) = raised.value.exceptions
    assert isinstance(error, ConfigError)
    assert "add EXTERNAL://" in str(error)


def test_real_clients_use_each_listener(tmp_path: Path) -> None:
    with local_broker(tmp_path, _TWO) as broker:
        for name, (host, port) in broker.on_loop(lambda node: node.server.addresses).items():
            found = AdminClient({"bootstrap.servers": f"{host}:{port}"}).list_topics(timeout=10)
            assert [f"{each.host}:{each.port}" for each in found.brokers.values()] == [f"{host}:{port}"], name


async def test_a_client_sees_the_listeners_in_force(tmp_path: Path) -> None:
    settings = {**_TWO, "advertised.listeners": "INTERNAL://127.0.0.1:9"}
    async with local_cluster(tmp_path, settings, brokers=1) as cluster:
        port = cluster[1].server.addresses["EXTERNAL"][1]
        names = ["listeners", "advertised.listeners"]
        asked = DescribeConfigsResource(resource_type=_BROKER, resource_name="1", configuration_keys=names)
        told = await _ask(cluster, 1, "EXTERNAL", DescribeConfigsRequest(resources=[asked]), 4)
        assert {each.name: each.value for each in told.results[0].configs} == {
            "listeners": f"INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:{port}",
            "advertised.listeners": f"INTERNAL://127.0.0.1:9,EXTERNAL://127.0.0.1:{port}",
        }


def test_registrations_keep_their_listeners_and_old_ones_are_read() -> None:
    listeners = (("INTERNAL", "10.0.0.1", 9092), ("EXTERNAL", "example.org", 443))
    registration = BrokerRegistration(id=1, host="10.0.0.1", port=9092, listeners=listeners)
    assert decode_broker(1, encode_broker(registration), 0) == registration
    assert registration.address_of("EXTERNAL") == ("example.org", 443)
    assert registration.address_of("PLAINTEXT") is None
    old = decode_broker(2, b'{"host": "10.0.0.2", "port": 9092, "rack": null}', 7)
    assert old.address_of("PLAINTEXT") == ("10.0.0.2", 9092)
    assert old.address_of("INTERNAL") is None
