"""Features, brokers that have gone, and producers on any replica: what administrators ask of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.config import DRAINED
from forebay.errors import ErrorCode
from forebay.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.unregister_broker import UnregisterBrokerRequest
from forebay.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import (
    CREATE_TOPICS,
    PRODUCE,
    WireClient,
    batch,
    create_topic,
    only_partition,
    produce,
)

TOPIC = "t"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path) as running:
        yield running


# -- features ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_levels_of_features_come_with_the_program(broker: BrokerProcess, version: int) -> None:
    def update(**levels: int) -> UpdateFeaturesResponse:
        updates = [
            FeatureUpdateKey(feature=name.replace("_", "."), max_version_level=level)
            for name, level in levels.items()
        ]
        answer: UpdateFeaturesResponse = client.call(UpdateFeaturesRequest(feature_updates=updates), version)
        return answer

    with WireClient(broker.bootstrap) as client:
        done = update(group_version=1, transaction_version=2)
        assert (done.error_code, done.error_message) == (ErrorCode.NONE, None)
        features = ["group.version", "transaction.version"] if version < 2 else []
        assert [(each.feature, each.error_code) for each in done.results] == [(name, 0) for name in features]
        refused = update(group_version=1, transaction_version=3)
        assert (refused.error_code, refused.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
        assert refused.error_message is not None
        assert "Invalid update version 3 for feature transaction.version." in refused.error_message


# -- brokers -------------------------------------------------------------------------------------------------


async def unregister(cluster: LocalCluster, broker_id: int) -> int:
    answer = await cluster.ask(1, UnregisterBrokerRequest(broker_id=broker_id), 0)
    assert (answer.error_message is None) == (answer.error_code == ErrorCode.NONE)
    return int(answer.error_code)


async def test_a_broker_that_has_gone_is_unregistered(cluster: LocalCluster) -> None:
    assert await unregister(cluster, 3) == ErrorCode.INVALID_REQUEST, "it runs"
    assert await unregister(cluster, 9) == ErrorCode.BROKER_ID_NOT_REGISTERED
    mark = AlterableConfig(name=DRAINED, config_operation=2, value="3")
    drained = AlterConfigsResource(resource_type=4, resource_name="", configs=[mark])
    await cluster.ask(1, IncrementalAlterConfigsRequest(resources=[drained]), 1)
    setting = AlterableConfig(name="log.retention.ms", config_operation=0, value="3600000")
    own = AlterConfigsResource(resource_type=4, resource_name="3", configs=[setting])
    await cluster.ask(1, IncrementalAlterConfigsRequest(resources=[own]), 1)
    await eventually(lambda: bool(cluster[1].image.broker_config("3").overrides))
    await cluster.kill(3)
    await cluster.bury(3)
    await eventually(lambda: 3 not in cluster[1].image.brokers)
    assert await unregister(cluster, 3) == ErrorCode.NONE
    await eventually(lambda: not cluster[1].image.broker_config("").overrides.get(DRAINED))
    assert not cluster[1].image.broker_config("3").overrides
    assert await unregister(cluster, 3) == ErrorCode.BROKER_ID_NOT_REGISTERED, "nothing of it is left"


async def test_a_broker_that_has_gone_keeps_its_replicas(cluster: LocalCluster) -> None:
    await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)
    await eventually(lambda: TOPIC in cluster[1].image.topics)
    await cluster.kill(3)
    await cluster.bury(3)
    await eventually(lambda: 3 not in cluster[1].image.brokers)
    assert await unregister(cluster, 3) == ErrorCode.NONE
    assert 3 in cluster.state(TOPIC).replicas


# -- producers -----------------------------------------------------------------------------------------------


async def test_producers_are_described_by_any_replica(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)
        await cluster.knows(TOPIC)
        data = batch(b"a", producer_id=77, producer_epoch=3, base_sequence=0)
        answer = await cluster.ask(cluster.leader(TOPIC), produce(TOPIC, data, acks=-1), PRODUCE)
        assert only_partition(answer).error_code == ErrorCode.NONE
        request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0, 9])])
        for node in cluster.nodes:
            (topic,) = (await cluster.ask(node, request, 0)).topics
            held, unknown = topic.partitions
            assert held.error_code == ErrorCode.NONE
            assert [(each.producer_id, each.producer_epoch) for each in held.active_producers] == [(77, 3)]
            assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
