"""A broker that is stopped lets others lead before it goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.broker.cluster import departure
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut
from forebay.errors import ErrorCode
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce

PRODUCE, CREATE_TOPICS, FETCH = 9, 7, 16
TOPIC = "t"
PARTITIONS = 6


async def make_topic(cluster: LocalCluster) -> None:
    (made,) = (await cluster.ask(1, create_topic(TOPIC, PARTITIONS), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)
    for index in range(PARTITIONS):
        await cluster.in_sync(TOPIC, index)


async def images_of_a_stop(cluster: LocalCluster, victim: int) -> list[ClusterImage]:
    """What another broker sees while the first one stops."""
    other = next(node for node in cluster.nodes if node != victim)
    images = [cluster[other].image]
    cluster[other].metadata.listen(lambda _, after: images.append(after))
    await cluster.stop(victim)
    return images


def led(image: ClusterImage, node_id: int) -> int:
    return sum(state.leader == node_id for state in image.topics[TOPIC].partitions)


def in_sync(image: ClusterImage, node_id: int) -> int:
    return sum(node_id in state.isr for state in image.topics[TOPIC].partitions)


async def test_it_leads_nothing_before_it_leaves_the_in_sync_sets_of_what_it_follows(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster)
        images = await images_of_a_stop(cluster, 1)
        assert (led(images[0], 1), in_sync(images[0], 1)) == (2, PARTITIONS)
        assert (0, PARTITIONS - 2) in [(led(image, 1), in_sync(image, 1)) for image in images]
        assert (led(images[-1], 1), in_sync(images[-1], 1)) == (0, 0)


async def test_leaderships_move_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "_SLICE", 1)
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster)
        images = await images_of_a_stop(cluster, 1)
        assert list(dict.fromkeys(led(image, 1) for image in images)) == [2, 1, 0]


async def test_it_does_not_rejoin_the_in_sync_sets_that_it_has_left(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster)
        cluster.slow_down(1, 0.3)  # long enough for a replica that fetches to rejoin
        counts = [in_sync(image, 1) for image in await images_of_a_stop(cluster, 1)]
        assert counts == sorted(counts, reverse=True)


async def test_what_it_follows_is_followed_on_when_another_leads_it(tmp_path: Path) -> None:
    """Producers wait for it for as long as it is in sync, as when two brokers stop at the same time."""
    async with local_cluster(tmp_path, {"replica.lag.time.max.ms": "3600000"}) as cluster:
        await make_topic(cluster)
        _, heir, stopping = cluster.state(TOPIC).replicas
        cluster[stopping].replication.following.take_no_more()
        await cluster.lead(TOPIC, 0, heir)
        await eventually(lambda: cluster[heir].partitions.get(TOPIC, 0).is_leader)
        sent = produce(TOPIC, batch(b"x"), acks=-1)
        assert only_partition(await cluster.ask(heir, sent, PRODUCE)).error_code == ErrorCode.NONE
        assert stopping in cluster.state(TOPIC).isr


async def test_one_answer_tells_a_consumer_that_waits_of_all_new_leaders(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster)
        node, heir = cluster[1], 2
        topic = node.image.topics[TOPIC]
        mine = [state for state in topic.partitions if state.leader == 1]
        wanted = [FetchPartition(partition=state.index, fetch_offset=0) for state in mine]
        request = FetchRequest(
            max_wait_ms=3_600_000,
            min_bytes=1,
            topics=[FetchTopic(topic_id=topic.topic_id, partitions=wanted)],
        )
        fetch = asyncio.create_task(cluster.ask(1, request, FETCH))
        await eventually(lambda: bool(node.partitions.held(TOPIC, mine[0].index).waiters))
        moved = [
            PartitionPut(
                topic_id=topic.topic_id,
                state=replace(state, leader=heir, leader_epoch=state.leader_epoch + 1, isr=(2, 3)),
            )
            for state in mine
        ]
        await node.metadata.change(lambda _: moved)
        (answer,) = (await fetch).responses
        assert [data.current_leader.leader_id for data in answer.partitions] == [heir] * len(mine)
