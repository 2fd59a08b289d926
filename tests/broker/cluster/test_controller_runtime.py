"""The controller at work among real brokers: elected, replaced, acting on deaths, returns and moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.cluster import controller as controller_module
from forebay.broker.cluster.departure import Departure
from forebay.broker.node import Node
from forebay.config import DRAINED
from forebay.coordination.store import Delete
from forebay.core.cluster.config_changes import AlterOp
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, PartitionPut
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.placement import staying
from forebay.core.cluster.replicas.balancing import Move, drain, rebalance
from forebay.core.cluster.replicas.reassignment import reassign as core_reassign
from forebay.core.cluster.resources import ResourceType
from forebay.errors import ErrorCode
from forebay.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from forebay.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from forebay.wire.messages.describe_cluster import DescribeClusterRequest
from forebay.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, fetch, only_partition, produce, values_of

TOPIC = "t"
ACKS_ALL = -1
PREFERRED, UNCLEAN = 0, 1
PARTITIONS_PER_TRANSACTION = 64


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path) as running:
        yield running


async def create(cluster: LocalCluster, *assignment: list[int], topic: str = TOPIC) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                    for index, replicas in enumerate(assignment)
                ],
            )
        ]
    )
    (made,) = (await cluster.ask(cluster.nodes[0], request, 7)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(topic)


async def append(cluster: LocalCluster, *values: bytes) -> int:
    request = produce(TOPIC, batch(*values), acks=ACKS_ALL)
    return int(only_partition(await cluster.ask(cluster.leader(TOPIC), request, 9)).error_code)


async def read(cluster: LocalCluster, node: int) -> list[bytes | None]:
    found = values_of(only_partition(await cluster.ask(node, fetch(TOPIC, 0), 12)).records)
    return [value for _, value in found]


def controllers(cluster: LocalCluster) -> list[int]:
    return [node for node in cluster.nodes if cluster[node].controller.active]


async def controller(cluster: LocalCluster) -> int:
    """The one that is elected, once all know of it."""

    def agreed() -> bool:
        known = {cluster[node].image.controller for node in cluster.nodes}
        return len(known) == 1 and controllers(cluster) == list(known)

    await eventually(agreed)
    return controllers(cluster)[0]


async def reassign(cluster: LocalCluster, *moves: tuple[int, list[int] | None], **more: Any) -> list[int]:
    """The error code of each partition."""
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=TOPIC,
                partitions=[ReassignablePartition(partition_index=i, replicas=to) for i, to in moves],
            )
        ],
        **more,
    )
    (topic,) = (await cluster.ask(cluster.nodes[0], request, 1)).responses
    assert [result.partition_index for result in topic.partitions] == list(dict.fromkeys(i for i, _ in moves))
    return [result.error_code for result in topic.partitions]


async def elect(
    cluster: LocalCluster, places: list[int] | None, election_type: int = PREFERRED
) -> dict[int, int]:
    wanted = None if places is None else [TopicPartitions(topic=TOPIC, partitions=places)]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=wanted)
    answer = await cluster.ask(cluster.nodes[0], request, 2)
    assert answer.error_code == ErrorCode.NONE
    return {
        result.partition_id: result.error_code
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }


# -- being the controller -----------------------------------------------------------------------------------


async def test_a_plan_that_was_overtaken_is_made_again_at_once(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions wait for their next leader, and another broker has changed one of them meanwhile."""
    monkeypatch.setattr(controller_module, "_RETRY_S", 3600.0)
    elected = await controller(cluster)
    dead, other = (node for node in cluster.nodes if node != elected)
    await create(cluster, [dead, elected, other])
    await cluster.in_sync(TOPIC)
    metadata = cluster[elected].metadata
    change_all = metadata.change_all
    overtaken: list[ClusterImage] = []

    async def hinder(*args: Any) -> list[Change]:
        if not overtaken:
            state = cluster.state(TOPIC)
            put = PartitionPut(topic_id=cluster[other].image.topics[TOPIC].topic_id, state=state)
            overtaken.append(await cluster[other].metadata.change(lambda _: [put]))
        return await change_all(*args)

    await cluster.kill(dead)
    monkeypatch.setattr(metadata, "change_all", hinder)
    async with asyncio.timeout(60):
        await cluster.bury(dead)
    assert overtaken and cluster.leader(TOPIC) == elected


async def test_one_broker_is_the_controller_and_all_tell_so(cluster: LocalCluster) -> None:
    elected = await controller(cluster)
    for node in cluster.nodes:
        answer = await cluster.ask(node, DescribeClusterRequest(), 0)
        assert answer.controller_id == elected


async def test_another_controller_takes_over_and_elects_leaders(cluster: LocalCluster) -> None:
    first = await controller(cluster)
    others = [node for node in cluster.nodes if node != first]
    await create(cluster, [first, *others])
    assert await append(cluster, b"a") == ErrorCode.NONE
    await cluster.kill(first)
    await cluster.bury(first)
    assert await controller(cluster) in others
    state = cluster.state(TOPIC)
    assert (state.leader, state.leader_epoch, set(state.isr)) == (others[0], 1, set(others))
    assert await append(cluster, b"b") == ErrorCode.NONE
    assert await read(cluster, others[0]) == [b"a", b"b"]


async def test_a_controller_whose_key_is_gone_is_elected_anew_or_replaced(cluster: LocalCluster) -> None:
    old = cluster[await controller(cluster)]
    epoch = old.controller.epoch
    await old.store.txn(deletes=[Delete(key=old.metadata.keys.controller)])

    # It hears of it when it next wants to write something.
    await create(cluster, [1, 2], [2, 1])
    await cluster.change(TOPIC, 0, leader=NO_LEADER, leader_epoch=1)
    await eventually(lambda: cluster.leader(TOPIC) == 1)
    acting = cluster[await controller(cluster)]
    assert acting.controller.epoch > epoch


async def test_a_controller_that_loses_its_lease_resigns(cluster: LocalCluster) -> None:
    old = cluster[await controller(cluster)]
    epoch, membership = old.controller.epoch, old.lease.epoch
    assert old.lease.current is not None
    await old.lease.current.revoke()
    await eventually(lambda: old.lease.epoch > membership)
    acting = cluster[await controller(cluster)]
    assert acting.controller.epoch > epoch


# -- deaths and returns -------------------------------------------------------------------------------------


async def test_the_last_in_sync_replica_is_waited_for(cluster: LocalCluster) -> None:
    await create(cluster, [1, 2, 3])
    assert await append(cluster, b"a") == ErrorCode.NONE
    for node in (3, 2, 1):
        await cluster.kill(node)
        if node != 1:
            await cluster.bury(node)
    await cluster.start(3)
    await cluster.bury(1)
    assert cluster.leader(TOPIC) == NO_LEADER
    assert (cluster.state(TOPIC).isr, cluster.state(TOPIC).eligible) == ((1,), (2,))
    assert cluster.leader(TOPIC) == NO_LEADER
    await cluster.start(1)
    await eventually(lambda: cluster.leader(TOPIC) == 1)
    assert await read(cluster, 1) == [b"a"]


async def test_leadership_goes_back_to_the_first_replica(tmp_path: Path) -> None:
    settings = {"leader.imbalance.check.interval.seconds": "1"}
    async with local_cluster(tmp_path, settings) as cluster:
        await create(cluster, [1, 2, 3])
        await cluster.lead(TOPIC, 0, 2)
        await eventually(lambda: cluster.leader(TOPIC) == 1)
        assert cluster.state(TOPIC).leader_epoch == 2


async def test_leadership_stays_where_that_is_wished(tmp_path: Path) -> None:
    settings = {"leader.imbalance.check.interval.seconds": "1", "auto.leader.rebalance.enable": "false"}
    async with local_cluster(tmp_path, settings) as cluster:
        await create(cluster, [1, 2, 3])
        await cluster.lead(TOPIC, 0, 2)
        acting = cluster[await controller(cluster)].controller
        assert acting.idle_s() > 0
        assert acting.preferences() == []


# -- moves ---------------------------------------------------------------------------------------------------


async def test_a_partition_moves_with_its_messages(cluster: LocalCluster) -> None:
    await create(cluster, [1, 2])
    assert await append(cluster, b"a", b"b") == ErrorCode.NONE
    assert await reassign(cluster, (0, [3, 2])) == [ErrorCode.NONE]
    await eventually(lambda: cluster.state(TOPIC).replicas == (3, 2))
    state = await eventually(lambda: cluster.state(TOPIC) if cluster.leader(TOPIC) == 3 else None)
    assert (set(state.isr), state.adding, state.removing) == ({2, 3}, (), ())
    await eventually(lambda: leads(cluster[3]))
    assert await read(cluster, 3) == [b"a", b"b"]
    assert await append(cluster, b"c") == ErrorCode.NONE


def leads(broker: Node) -> bool:
    return any(partition.is_leader for partition in broker.partitions.all())


async def test_moves_are_listed_until_they_end(cluster: LocalCluster) -> None:
    await create(cluster, [1], [2], [1])
    await cluster.kill(3)  # nobody has missed it yet, so moves to it begin, and wait
    assert await reassign(cluster, (0, [1, 3]), (1, [3])) == [ErrorCode.NONE] * 2
    assert await listed(cluster, None) == {0: ([1, 3], [3], []), 1: ([3, 2], [3], [2])}
    assert await listed(cluster, [1, 2, 9]) == {1: ([3, 2], [3], [2])}
    assert await reassign(cluster, (0, None), (1, None), (2, None)) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
    assert await listed(cluster, None) == {}
    assert cluster.state(TOPIC, 1).replicas == (2,)


async def listed(
    cluster: LocalCluster, indexes: list[int] | None
) -> dict[int, tuple[list[int], list[int], list[int]]]:
    topics = None
    if indexes is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=TOPIC, partition_indexes=indexes),
            ListPartitionReassignmentsTopics(name="unknown", partition_indexes=[0]),
        ]
    answer = await cluster.ask(cluster.nodes[0], ListPartitionReassignmentsRequest(topics=topics), 0)
    return {
        move.partition_index: (move.replicas, move.adding_replicas, move.removing_replicas)
        for topic in answer.topics
        for move in topic.partitions
    }


async def test_a_move_that_cannot_be_is_refused_and_the_others_begin(cluster: LocalCluster) -> None:
    await create(cluster, [1, 2], [1, 2])
    assert await reassign(cluster, (0, [1, 9]), (1, [2, 1]), (7, [1])) == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert cluster.state(TOPIC, 1).replicas == (2, 1)
    assert await reassign(cluster, (0, [3]), (0, [1])) == [ErrorCode.INVALID_REQUEST]
    assert await reassign(cluster, (0, [3]), allow_replication_factor_change=False) == [
        ErrorCode.INVALID_REPLICATION_FACTOR
    ]


async def test_many_moves_fill_a_new_broker_and_empty_one_that_goes(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=2) as cluster:
        await create(cluster, *([[1, 2], [2, 1]] * 50))
        await cluster.start(3)
        await eventually(lambda: 3 in cluster[1].image.brokers)
        await carry_out(cluster, rebalance(cluster[1].image))
        held = Counter(replica for index in range(100) for replica in cluster.state(TOPIC, index).replicas)
        assert sorted(held.values()) == [66, 67, 67]
        await carry_out(cluster, drain(cluster[1].image, 1))
        held = Counter(replica for index in range(100) for replica in cluster.state(TOPIC, index).replicas)
        assert held == {2: 100, 3: 100}


async def carry_out(cluster: LocalCluster, moves: list[Move]) -> None:
    assert len(moves) > PARTITIONS_PER_TRANSACTION
    codes = await reassign(cluster, *((move.partition, list(move.replicas)) for move in moves))
    assert set(codes) == {ErrorCode.NONE}
    await eventually(lambda: all(ended(cluster, move.partition, move.replicas) for move in moves))


def ended(cluster: LocalCluster, index: int, replicas: tuple[int, ...]) -> bool:
    state = cluster.state(TOPIC, index)
    return state.replicas == replicas and not state.adding and not state.removing


# -- elections on request -----------------------------------------------------------------------------------


async def test_first_replicas_are_elected_on_request(cluster: LocalCluster) -> None:
    await create(cluster, [1, 2], [1, 2], [2, 1])
    await cluster.lead(TOPIC, 0, 2)
    assert await elect(cluster, [0, 1, 5]) == {
        0: ErrorCode.NONE,
        1: ErrorCode.ELECTION_NOT_NEEDED,
        5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [cluster.leader(TOPIC, index) for index in range(3)] == [1, 1, 2]
    await cluster.lead(TOPIC, 2, 1)
    # Asked for all, a broker tells only of those where there was something to do.
    assert await elect(cluster, None) == {2: ErrorCode.NONE}


async def test_an_unclean_election_is_made_only_when_it_is_asked_for(cluster: LocalCluster) -> None:
    await create(cluster, [1, 2, 3])
    for node in (3, 2, 1):
        await cluster.kill(node)
        if node != 1:
            await cluster.bury(node)
    await cluster.start(3)
    await cluster.bury(1)
    assert await elect(cluster, [0]) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert await elect(cluster, [0], UNCLEAN) == {0: ErrorCode.NONE}
    assert (cluster.leader(TOPIC), cluster.state(TOPIC).isr) == (3, (3,))
    assert await elect(cluster, [0], UNCLEAN) == {0: ErrorCode.ELECTION_NOT_NEEDED}


async def test_there_are_two_kinds_of_elections(cluster: LocalCluster) -> None:
    answer = await cluster.ask(1, ElectLeadersRequest(election_type=7, topic_partitions=[]), 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_internal_topics_grow_with_the_cluster_and_stay_as_an_administrator_has_them(
    tmp_path: Path,
) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        await cluster[1].groups.coordinator.ensure_topic()
        for node in (2, 3):
            await cluster.start(node)

        def held_by(*nodes: int) -> bool:
            states = cluster[1].image.topics["__consumer_offsets"].partitions
            return all(set(s.isr) == set(s.replicas) == set(nodes) and not s.adding for s in states)

        await eventually(lambda: held_by(1, 2, 3))
        for each in drain(cluster[1].image, 3, fewer_replicas=True):
            await cluster[1].metadata.change(partial(_begin, each))
        await eventually(lambda: held_by(1, 2))
        await create(cluster, [1], topic="later")  # the controller has looked at the image again
        assert held_by(1, 2)


async def test_a_drained_broker_is_given_partitions_again_when_it_is_started(cluster: LocalCluster) -> None:
    mark = AlterableConfig(name=DRAINED, config_operation=AlterOp.APPEND, value="2")
    everyone = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="", configs=[mark])
    answer = await cluster.ask(1, IncrementalAlterConfigsRequest(resources=[everyone]), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE
    await eventually(lambda: 2 not in staying(cluster[1].image))
    await cluster.stop(2)
    await cluster.start(2)
    await eventually(lambda: 2 in staying(cluster[1].image))


async def test_another_controller_acts_while_one_that_stops_hands_over(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker dies in that time, and what it led is led by another before the farewell is over."""
    stopping = await controller(cluster)
    dying, last = [node for node in cluster.nodes if node != stopping]
    await create(cluster, [dying, last])
    await cluster.in_sync(TOPIC)
    leaving, may_leave = asyncio.Event(), asyncio.Event()

    async def hand_over(_: object) -> None:
        leaving.set()
        await may_leave.wait()

    monkeypatch.setattr(Departure, "hand_over", hand_over)
    stopped = asyncio.create_task(cluster.stop(stopping))
    await leaving.wait()
    await cluster.kill(dying)
    await cluster.bury(dying)
    await eventually(lambda: cluster[last].image.topics[TOPIC].partitions[0].leader == last)
    assert not stopped.done()
    assert cluster[last].controller.active
    may_leave.set()
    await stopped


def _begin(move: Move, image: ClusterImage) -> list[PartitionPut]:
    return core_reassign(image, move.topic, move.partition, move.replicas)
