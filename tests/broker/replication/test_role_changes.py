"""Partitions take new roles when the image changes, which brokers do not hear of at the same time."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from forebay.broker.partition.partition import Partition
from forebay.broker.replication import fetchers
from forebay.core.cluster.partition_state import PartitionState
from forebay.errors import ErrorCode
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from forebay.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce

PRODUCE, FETCH, CREATE_TOPICS, OFFSET_FOR_LEADER_EPOCH = 9, 16, 7, 4
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

        cluster[1].assignment.roles.taken.listen(note)
        heir = next(node for node in cluster.nodes if node != cluster.leader(TOPIC, 1))
        await cluster.lead(TOPIC, 1, heir)
        assert taken == [(1, heir)]


async def test_a_consumer_that_comes_before_the_news_waits_for_it(tmp_path: Path) -> None:
    """It was sent to a leader that has not heard of its election, as the leader before has."""
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster, 1)
        _, heir, _ = cluster.state(TOPIC).replicas
        topic_id = cluster[heir].image.topics[TOPIC].topic_id
        with cluster.uninformed(heir):
            await cluster.lead(TOPIC, 0, heir)
            epoch = cluster.state(TOPIC).leader_epoch
            wanted = FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=0)
            fetch = FetchRequest(topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])])
            end = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
            ends = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[end])])
            asked = [
                asyncio.create_task(cluster.ask(heir, fetch, FETCH)),
                asyncio.create_task(cluster.ask(heir, ends, OFFSET_FOR_LEADER_EPOCH)),
            ]
            await asyncio.wait(asked, timeout=0.05)
        fetched, ended = await asyncio.gather(*asked)
        assert fetched.responses[0].partitions[0].error_code == ErrorCode.NONE
        assert ended.topics[0].partitions[0].error_code == ErrorCode.NONE


async def test_a_consumer_that_knows_of_an_election_that_never_was_is_refused(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster, 1)
        leader = cluster.leader(TOPIC)
        wanted = FetchPartition(partition=0, current_leader_epoch=7, fetch_offset=0)
        topic = FetchTopic(topic_id=cluster[leader].image.topics[TOPIC].topic_id, partitions=[wanted])
        answer = await cluster.ask(leader, FetchRequest(topics=[topic]), FETCH)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_new_leader_does_not_keep_its_followers_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their fetches, which wait for other partitions, are answered, and the next ones name what is new."""
    monkeypatch.setattr(fetchers, "NEWCOMER_DELAY_S", 3600.0)
    settings = dict.fromkeys(
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms", "replica.socket.timeout.ms"), NEVER_MS
    )
    async with local_cluster(tmp_path, settings) as cluster:
        await make_topic(cluster, 3)
        before, heir = cluster.leader(TOPIC, 0), cluster.leader(TOPIC, 1)
        assert before != heir
        sessions = cluster[heir].replication.sessions
        await eventually(lambda: [each.on_changed is not None for each in sessions] == [True, True])
        await cluster.lead(TOPIC, 0, heir)
        answer = only_partition(await cluster.ask(heir, produce(TOPIC, batch(b"x"), acks=-1), PRODUCE))
        assert answer.error_code == ErrorCode.NONE
