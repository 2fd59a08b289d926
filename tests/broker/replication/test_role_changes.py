"""Partitions take new roles when the image changes, which brokers do not hear of at the same time."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from forebay.broker.partition.partition import Partition
from forebay.core.cluster.image import PartitionState
from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce

PRODUCE, CREATE_TOPICS = 9, 7
TOPIC = "t"
NEVER_MS = "3600000"


async def make_topic(cluster: LocalCluster, partitions: int) -> None:
    (made,) = (await cluster.ask(1, create_topic(TOPIC, partitions), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)
    for index in range(partitions):
        await cluster.in_sync(TOPIC, index)


async def test_followers_ask_a_leader_again_soon_that_has_not_heard_of_its_election(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"replica.fetch.backoff.ms": NEVER_MS, "replica.lag.time.max.ms": NEVER_MS}
    async with local_cluster(tmp_path, settings) as cluster:
        await make_topic(cluster, 1)
        _, heir, _ = cluster.state(TOPIC).replicas
        caplog.set_level(logging.DEBUG, "forebay.broker.replication.fetcher")
        with cluster.uninformed(heir):
            await cluster.lead(TOPIC, 0, heir)
            await eventually(lambda: "a partition cannot follow" in caplog.messages)
        await eventually(lambda: cluster[heir].partitions.get(TOPIC, 0).is_leader)
        answer = only_partition(await cluster.ask(heir, produce(TOPIC, batch(b"x"), acks=-1), PRODUCE))
        assert answer.error_code == ErrorCode.NONE


async def test_a_change_of_one_partition_leaves_the_others_of_its_topic_alone(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster, 3)
        taken: list[tuple[int, int]] = []

        def note(partition: Partition, state: PartitionState) -> None:
            taken.append((partition.index, state.leader))

        cluster[1].assignment.role_taken.listen(note)
        heir = next(node for node in cluster.nodes if node != cluster.leader(TOPIC, 1))
        await cluster.lead(TOPIC, 1, heir)
        assert taken == [(1, heir)]
