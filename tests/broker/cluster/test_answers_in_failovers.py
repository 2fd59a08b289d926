"""What clients are told while the leader of what they ask for has just died: who leads after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.net.sockets import SocketNetwork
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.errors import ErrorCode
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import create_topic

METADATA, FIND_COORDINATOR, CREATE_TOPICS = 12, 4, 7
TOPIC = "t"
GROUP, GROUP_OFFSETS = "g", "__consumer_offsets"
SETTINGS = {"forebay.failover.verdicts.per.minute": "3", "offsets.topic.num.partitions": "1"}
ABOUT_TOPIC = MetadataRequest(
    topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=TOPIC)], allow_auto_topic_creation=False
)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """Three brokers that watch each other."""
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        nodes = set(cluster.nodes)
        await eventually(
            lambda: all(cluster[node].failover.watch.watched == nodes - {node} for node in cluster.nodes)
        )
        yield cluster


async def make_topic(cluster: LocalCluster, replicas: int = -1) -> None:
    request = create_topic(TOPIC)
    request.topics[0].replication_factor = replicas
    (made,) = (await cluster.ask(1, request, CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)
    await cluster.in_sync(TOPIC)


async def kill(cluster: LocalCluster, victim: int) -> int:
    """Kill a broker; another one, which may not know it yet."""
    other = next(node for node in cluster.nodes if node != victim)
    await cluster.ask(other, ABOUT_TOPIC, METADATA)  # so that a connection to it is there
    await cluster.kill(victim)
    return other


def leader_in(answer: Any) -> int:
    ((partition,),) = [topic.partitions for topic in answer.topics]
    return int(partition.leader_id)


async def test_metadata_that_is_asked_for_after_a_death_names_the_next_leader(cluster: LocalCluster) -> None:
    await make_topic(cluster)
    victim = cluster.leader(TOPIC)
    other = await kill(cluster, victim)
    assert leader_in(await cluster.ask(other, ABOUT_TOPIC, METADATA)) not in (victim, NO_LEADER)


async def test_metadata_of_all_topics_after_a_death_names_the_next_leader(cluster: LocalCluster) -> None:
    await make_topic(cluster)
    victim = cluster.leader(TOPIC)
    other = await kill(cluster, victim)
    answer = await cluster.ask(other, MetadataRequest(topics=None), METADATA)
    assert leader_in(answer) not in (victim, NO_LEADER)


async def test_a_coordinator_that_is_asked_for_after_a_death_is_the_next_one(cluster: LocalCluster) -> None:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
    (first,) = (await cluster.ask(1, find, FIND_COORDINATOR)).coordinators
    await cluster.in_sync(GROUP_OFFSETS)
    other = await kill(cluster, first.node_id)
    (found,) = (await cluster.ask(other, find, FIND_COORDINATOR)).coordinators
    assert found.error_code == ErrorCode.NONE
    assert found.node_id != first.node_id


async def test_metadata_waits_not_for_ever_for_a_leader_that_has_no_heir(cluster: LocalCluster) -> None:
    await make_topic(cluster, replicas=1)
    victim = cluster.leader(TOPIC)
    other = await kill(cluster, victim)
    assert leader_in(await cluster.ask(other, ABOUT_TOPIC, METADATA)) == victim


async def test_clients_on_librdkafka_are_shown_a_broker_that_has_just_gone(cluster: LocalCluster) -> None:
    await make_topic(cluster)
    victim = cluster.leader(TOPIC)
    other = await kill(cluster, victim)
    answer = await cluster.ask(other, ABOUT_TOPIC, METADATA)
    assert victim not in [broker.node_id for broker in answer.brokers]
    client = await PeerConnection.open(
        SocketNetwork().connect, *cluster.address(other), client_id="rdkafka", response_bytes_max=1 << 20
    )
    try:
        software = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.12.0")
        await client.ask(software, 3)
        shown: Any = await client.ask(ABOUT_TOPIC, METADATA)
    finally:
        client.close()
    assert victim in [broker.node_id for broker in shown.brokers]
    assert leader_in(shown) not in (victim, NO_LEADER)
