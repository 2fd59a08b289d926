"""What becomes of logs whose partitions are not this broker's any more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.coordination.store import Delete
from forebay.core.cluster.images.deleted_topics import TombstoneDeleted
from forebay.errors import ErrorCode
from forebay.storage.real_disk import RealDisk
from forebay.storage.strays import Stray, restore, strays
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce

ACKS_ALL = -1
PRODUCE, CREATE_TOPICS, DELETE_TOPICS = 9, 7, 6
TOPIC = "t"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path) as running:
        (made,) = (await running.ask(1, create_topic(TOPIC, 1), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await running.knows(TOPIC)
        for number in range(5):
            request = produce(TOPIC, batch(b"%d" % number), acks=ACKS_ALL)
            answer = await running.ask(running.leader(TOPIC), request, PRODUCE)
            assert only_partition(answer).error_code == ErrorCode.NONE
        yield running


async def delete(cluster: LocalCluster) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=5000)
    (gone,) = (await cluster.ask(cluster.nodes[0], request, DELETE_TOPICS)).responses
    assert gone.error_code == ErrorCode.NONE


def kept(node: Node | Path) -> list[Stray]:
    return strays(RealDisk(), str(node) if isinstance(node, Path) else node.data.path)


def directories(path: Path) -> set[str]:
    return {
        each.name for each in path.iterdir() if each.name.startswith(TOPIC) and "-delete" not in each.name
    }


async def gone(path: Path) -> None:
    await eventually(lambda: not directories(path))


async def test_a_topic_that_is_deleted_goes_from_all_disks(cluster: LocalCluster, tmp_path: Path) -> None:
    await delete(cluster)
    for node in cluster.nodes:
        await gone(tmp_path / f"node-{node}")


async def test_a_topic_that_was_deleted_while_a_broker_was_away_goes_when_it_is_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await cluster.kill(3)
    await delete(cluster)
    await cluster.start(3)
    assert not directories(tmp_path / "node-3")
    assert cluster[3].data.aside.count == 0


async def test_a_topic_that_a_broker_finds_missing_is_put_aside(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Nobody has told this broker of a deletion, and there is no tombstone."""
    node = cluster[3]
    topic = node.image.topics[TOPIC]
    with cluster.uninformed(3):
        keys = node.metadata.keys
        deletes = [Delete(key=keys.topic(TOPIC)), Delete(key=keys.states(topic.topic_id), prefix=True)]
        await cluster.session(1).txn(deletes=deletes)
        await node.metadata.catch_up()
        (stray,) = kept(node)
    assert (stray.topic, stray.topic_id, stray.end_offset) == (TOPIC, topic.topic_id, 5)
    assert not stray.in_place
    assert "knows neither" in stray.reason
    assert node.data.aside.count == 1
    for other in (1, 2):
        await gone(tmp_path / f"node-{other}")
        assert not kept(cluster[other]), "they have seen the deletion in the watch"


async def test_a_topic_that_nobody_knows_at_the_start_stays_where_it_is(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await cluster.kill(3)
    await delete(cluster)
    (topic_id,) = cluster[1].image.deleted
    await cluster[1].metadata.change(lambda _: [TombstoneDeleted(topic_id=topic_id)])
    await cluster.start(3)
    (stray,) = kept(cluster[3])
    assert (stray.name, stray.in_place, stray.end_offset) == (f"{TOPIC}-0", True, 5)


async def test_a_partition_that_comes_back_is_filled_by_its_leader_and_leaves_the_stray_alone(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The store says that it was moved away in an epoch before the last one in the log."""
    first, second, moved = cluster.state(TOPIC).replicas
    await cluster.lead(TOPIC, 0, moved)
    await eventually(lambda: cluster[moved].partitions.held(TOPIC, 0).epochs.latest == 1)
    await cluster.kill(moved)
    await cluster.bury(moved)
    replicas = (first, second)
    await cluster.change(TOPIC, 0, replicas=replicas, isr=replicas, eligible=(), leader=first, leader_epoch=0)
    await cluster.start(moved)
    (stray,) = kept(cluster[moved])
    assert stray.last_epoch == 1
    assert "leader epoch 0" in stray.reason
    await cluster.change(TOPIC, 0, replicas=(first, second, moved))
    await cluster.in_sync(TOPIC)
    assert cluster[moved].partitions.held(TOPIC, 0).log.end_offset == 5
    assert kept(cluster[moved]) == [stray]


async def test_a_log_that_is_taken_back_is_used_again(cluster: LocalCluster, tmp_path: Path) -> None:
    node = cluster[3]
    node.data.store_behind = True
    first, second = (replica for replica in cluster.state(TOPIC).replicas if replica != 3)
    isr = {"replicas": (first, second), "isr": (first, second), "eligible": ()}
    await cluster.change(TOPIC, 0, **isr, leader=first, leader_epoch=9)
    (stray,) = kept(node)
    await cluster.change(TOPIC, 0, replicas=(first, second, 3))
    await cluster.in_sync(TOPIC)
    await cluster.stop(3)
    path = tmp_path / "node-3"
    RealDisk().remove_tree(str(path / f"{TOPIC}-0"))
    restore(RealDisk(), str(path), stray.name)
    await cluster.start(3)
    await cluster.in_sync(TOPIC)
    assert cluster[3].partitions.held(TOPIC, 0).log.end_offset == 5
    assert not kept(cluster[3])


async def test_the_controller_forgets_deleted_topics_after_a_while(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, {"forebay.deleted.topics.max": "0"}) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC, 1), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.knows(TOPIC)
        await delete(cluster)
        await cluster.settle()
        nodes = [cluster[node] for node in cluster.nodes]
        await eventually(lambda: any(node.controller.active for node in nodes))
        for node in sorted(nodes, key=lambda node: node.controller.active):
            assert node.image.deleted, "only the controller does it"
            await node.upkeep.forget_deleted()
        await eventually(lambda: not any(node.image.deleted for node in nodes))
