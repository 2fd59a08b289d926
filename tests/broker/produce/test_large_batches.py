"""Batches that are larger than any setting says, such as those that coordinators write, are replicated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forebay.errors import ErrorCode
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.wire_client import batch, create_topic, only_partition, produce

PRODUCE, CREATE_TOPICS, FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH = 9, 7, 4, 9, 8
TOPIC, OFFSETS = "t", "__consumer_offsets"
GROUP = "g" * 1000
COMMITS = 1000
SMALL = {
    "socket.request.max.bytes": "100000",
    "message.max.bytes": "20000",
    "replica.fetch.max.bytes": "30000",
    "replica.fetch.backoff.ms": "50",
    "offsets.topic.segment.bytes": "50000",
    "offsets.topic.num.partitions": "1",
    "replica.lag.time.max.ms": "60000",
}
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


async def create(cluster: LocalCluster) -> None:
    (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)


def same_ends(cluster: LocalCluster, topic: str) -> bool:
    return len({cluster[node].partitions.held(topic, 0).log.end_offset for node in cluster.nodes}) == 1


async def test_a_group_commits_more_than_a_request_could_hold(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SMALL) as cluster:
        await create(cluster)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        await cluster.ask(1, request, FIND_COORDINATOR)
        await cluster.knows(OFFSETS)

        async def commit() -> tuple[int, int]:
            partitions = [
                OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
                for number in range(COMMITS)
            ]
            topic = OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
            request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
            answer = await cluster.ask(cluster.leader(OFFSETS), request, OFFSET_COMMIT)
            (code,) = {each.error_code for each in answer.topics[0].partitions}
            return code, code

        assert await retried(commit, *RETRIED) == ErrorCode.NONE
        first = cluster.leader(OFFSETS)
        assert cluster[first].partitions.held(OFFSETS, 0).log.size > COMMITS * len(GROUP)
        await eventually(lambda: same_ends(cluster, OFFSETS))
        await cluster.kill(first)
        await cluster.bury(first)

        async def fetch() -> tuple[Any, int]:
            topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])
            answer = await cluster.ask(cluster.leader(OFFSETS), asked, OFFSET_FETCH)
            return answer.groups[0], answer.groups[0].error_code

        found = await retried(fetch, *RETRIED)
        assert found.topics[0].partitions[0].committed_offset == COMMITS - 1


async def test_a_follower_takes_answers_that_are_larger_than_requests_may_be(tmp_path: Path) -> None:
    settings = {**SMALL, "replica.fetch.max.bytes": "10000000"}
    async with local_cluster(tmp_path, settings) as cluster:
        await create(cluster)
        leader, follower, _ = cluster.state(TOPIC).replicas
        with cluster.deaf(TOPIC, follower):
            for _ in range(20):
                request = produce(TOPIC, batch(b"x" * 15_000), acks=1)
                assert (
                    only_partition(await cluster.ask(leader, request, PRODUCE)).error_code == ErrorCode.NONE
                )
        await eventually(lambda: same_ends(cluster, TOPIC))
