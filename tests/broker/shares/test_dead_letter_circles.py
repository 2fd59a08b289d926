"""A dead-letter topic that members of the group read is refused where it is set, as far as that is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.broker.coordinators.groups import OFFSETS_TOPIC
from forebay.errors import ErrorCode
from forebay.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig as Change,
)
from forebay.wire.messages.incremental_alter_configs import (
    AlterConfigsResource as Changed,
)
from forebay.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.brokers.local_cluster import LocalCluster, local_cluster, retried
from support.clients.wire_client import create_topic

GROUP, SOURCE, NAME, KIND = "g", "jobs", "errors.deadletterqueue.topic.name", 32
MEMBER = "0123456789abcdef0123456789abcdef"


async def incremental(cluster: LocalCluster, node: int, value: str) -> tuple[int, str]:
    changes = [Change(name=NAME, config_operation=0, value=value)]
    changed = Changed(resource_type=KIND, resource_name=GROUP, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[changed])
    (answer,) = (await cluster.ask(node, request, 1)).responses
    return answer.error_code, answer.error_message or ""


async def whole(cluster: LocalCluster, node: int, value: str) -> tuple[int, str]:
    resource = AlterConfigsResource(
        resource_type=KIND, resource_name=GROUP, configs=[AlterableConfig(name=NAME, value=value)]
    )
    (answer,) = (await cluster.ask(node, AlterConfigsRequest(resources=[resource]), 2)).responses
    return answer.error_code, answer.error_message or ""


async def join(cluster: LocalCluster) -> None:
    """Have the group a member that reads the topic, at whichever broker coordinates it."""

    async def attempt() -> tuple[None, int]:
        any_node = cluster.nodes[0]
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        (found,) = (await cluster.ask(any_node, find, 6)).coordinators
        if found.error_code:
            return None, found.error_code
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=MEMBER, member_epoch=0, subscribed_topic_names=[SOURCE]
        )
        return None, (await cluster.ask(found.node_id, request, 1)).error_code

    await retried(
        attempt,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )


@pytest.mark.parametrize("alter", [incremental, whole])
async def test_a_topic_that_members_read_is_refused_by_every_broker(tmp_path: Path, alter: object) -> None:
    assert callable(alter)
    async with local_cluster(tmp_path, brokers=2) as cluster:
        (made,) = (await cluster.ask(cluster.nodes[0], create_topic(SOURCE), 7)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.knows(SOURCE)
        assert await alter(cluster, 1, SOURCE) == (ErrorCode.NONE, ""), "nobody reads it yet"
        assert await alter(cluster, 1, "dead") == (ErrorCode.NONE, "")
        await join(cluster)
        await cluster.knows(OFFSETS_TOPIC)
        for node in cluster.nodes:
            code, message = await alter(cluster, node, SOURCE)
            assert code == ErrorCode.INVALID_CONFIG
            assert "members of group 'g' read 'jobs'" in message
            assert await alter(cluster, node, "dead") == (ErrorCode.NONE, "")
