"""Replication between brokers: what is committed, who is in sync, and logs that become one again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.partition.partition import Partition
from forebay.core.cluster.image_changes import PartitionPut
from forebay.errors import ErrorCode
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.wire_client import (
    batch,
    create_topic,
    fetch,
    list_offsets,
    only_partition,
    produce,
    values_of,
)

ACKS_ALL = -1
PRODUCE, FETCH, CREATE_TOPICS, LIST_OFFSETS = 9, 12, 7, 7
FETCH_BY_ID = 17
LATEST = -1
TOPIC = "t"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """Nobody leaves the in-sync set because the machine that runs the test is slow."""
    async with local_cluster(tmp_path, {"replica.lag.time.max.ms": "60000"}) as running:
        await create(running)
        yield running


@pytest.fixture
async def impatient(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path, {"replica.lag.time.max.ms": "2000"}) as running:
        await create(running)
        yield running


async def create(cluster: LocalCluster) -> None:
    (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)


async def append(cluster: LocalCluster, *values: bytes, acks: int = ACKS_ALL, **how: Any) -> Any:
    request = produce(TOPIC, batch(*values, **how), acks=acks)
    return only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))


async def values(cluster: LocalCluster, node: int, offset: int = 0) -> list[tuple[int, bytes | None]]:
    return values_of(only_partition(await cluster.ask(node, fetch(TOPIC, offset), FETCH)).records)


def held(cluster: LocalCluster, node: int) -> Partition:
    return cluster[node].partitions.held(TOPIC, 0)


def same_logs(cluster: LocalCluster, nodes: Sequence[int] = (1, 2, 3)) -> bool:
    logs = [held(cluster, node) for node in nodes]
    ends = {(each.log.end_offset, each.high_watermark) for each in logs}
    contents = {b"".join(bytes(view) for view, _ in each.log.files.scan(0)) for each in logs}
    return len(ends) == 1 and len(contents) == 1


# -- committing --------------------------------------------------------------------------------------------


async def test_what_is_acknowledged_is_on_every_replica(cluster: LocalCluster) -> None:
    for number in range(5):
        answer = await append(cluster, b"%d" % number)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
        assert all(held(cluster, node).log.end_offset == number + 1 for node in cluster.nodes)
    await eventually(lambda: same_logs(cluster))


async def test_nothing_is_shown_before_it_is_committed(cluster: LocalCluster) -> None:
    leader, *followers = cluster.state(TOPIC).replicas
    await append(cluster, b"committed")
    with cluster.deaf(TOPIC, *followers):
        assert (await append(cluster, b"alone", acks=1)).error_code == ErrorCode.NONE
        assert await values(cluster, leader) == [(0, b"committed")]
        answer = await cluster.ask(leader, list_offsets(TOPIC, LATEST), LIST_OFFSETS)
        assert answer.topics[0].partitions[0].offset == 1
    waiting = await cluster.ask(leader, fetch(TOPIC, 1, max_wait_ms=10_000), FETCH)
    assert values_of(only_partition(waiting).records) == [(1, b"alone")]


async def test_a_follower_that_lags_leaves_and_comes_back(impatient: LocalCluster) -> None:
    cluster = impatient
    leader, second, third = cluster.state(TOPIC).replicas
    with cluster.deaf(TOPIC, third):
        await append(cluster, b"before")  # waits until the third has left
        assert set(cluster.state(TOPIC).isr) == {leader, second}
        await append(cluster, b"after")
    await cluster.in_sync(TOPIC)
    await eventually(lambda: same_logs(cluster))


async def test_too_few_replicas_refuse_and_recover(impatient: LocalCluster) -> None:
    cluster = impatient
    leader, *followers = cluster.state(TOPIC).replicas
    with cluster.deaf(TOPIC, *followers):
        after = await append(cluster, b"too late to refuse")
        assert after.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert cluster.state(TOPIC).isr == (leader,)
        assert (await append(cluster, b"no")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await append(cluster, b"one will do", acks=1)).error_code == ErrorCode.NONE
    await cluster.in_sync(TOPIC)
    assert (await append(cluster, b"yes")).error_code == ErrorCode.NONE


async def test_a_request_that_waits_too_long_is_told_so(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await create(cluster)
        _, *followers = cluster.state(TOPIC).replicas
        with cluster.deaf(TOPIC, *followers):
            request = produce(TOPIC, batch(b"slow"), acks=ACKS_ALL)
            request.timeout_ms = 100
            answer = only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


# -- changing leaders --------------------------------------------------------------------------------------


async def test_what_only_the_old_leader_had_is_cut_off(cluster: LocalCluster) -> None:
    old, second, third = cluster.state(TOPIC).replicas
    await append(cluster, b"everywhere")
    with cluster.deaf(TOPIC, second, third):
        await append(cluster, b"lost", b"lost too", acks=1)
        await cluster.lead(TOPIC, 0, second)
    assert (await append(cluster, b"kept")).base_offset == 1
    await eventually(lambda: same_logs(cluster))
    assert await values(cluster, second) == [(0, b"everywhere"), (1, b"kept")]
    assert held(cluster, old).epochs.entries == held(cluster, second).epochs.entries


async def test_who_waits_for_a_leader_that_is_replaced_is_sent_elsewhere(cluster: LocalCluster) -> None:
    leader, second, third = cluster.state(TOPIC).replicas
    with cluster.deaf(TOPIC, second, third):
        producing = asyncio.create_task(append(cluster, b"x"))
        fetching = asyncio.create_task(cluster.ask(leader, fetch(TOPIC, max_wait_ms=10_000), 4))
        await eventually(lambda: held(cluster, leader).log.end_offset == 1)
        await cluster.lead(TOPIC, 0, second)
        assert (await producing).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert only_partition(await fetching).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_who_waits_for_a_topic_that_is_deleted_is_told_so(cluster: LocalCluster) -> None:
    leader, second, third = cluster.state(TOPIC).replicas
    # What the followers delete they cannot follow again, so nothing gives them their ears back.
    for follower in (second, third):
        cluster[follower].replication.following.dropped(held(cluster, follower))
    request = produce(TOPIC, batch(b"x"), acks=ACKS_ALL)
    request.timeout_ms = 3_600_000
    producing = asyncio.create_task(cluster.ask(leader, request, PRODUCE))
    await eventually(lambda: held(cluster, leader).log.end_offset == 1)
    await cluster.ask(second, DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=5000), 6)
    assert only_partition(await producing).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_idempotence_survives_a_change_of_leader(cluster: LocalCluster) -> None:
    _, second, _ = cluster.state(TOPIC).replicas
    how = {"producer_id": 9, "producer_epoch": 0, "timestamp": 1_700_000_000_000}
    for sequence in range(3):
        await append(cluster, b"%d" % sequence, base_sequence=sequence, **how)
    await cluster.lead(TOPIC, 0, second)
    again = await append(cluster, b"1", base_sequence=1, **how)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 1)

    async def send_with_gap() -> tuple[int, int]:
        code = (await append(cluster, b"9", base_sequence=9, **how)).error_code
        return code, code

    code = await retried(send_with_gap, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # until the leader is sure of it
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await append(cluster, b"3", base_sequence=3, **how)).base_offset == 3


async def test_a_killed_leader_comes_back_as_a_follower(cluster: LocalCluster) -> None:
    leader, *_ = cluster.state(TOPIC).replicas
    await append(cluster, b"a")
    await cluster.kill(leader)
    await cluster.bury(leader)
    assert cluster.leader(TOPIC) != leader
    await append(cluster, b"b")
    await cluster.start(leader)
    await cluster.in_sync(TOPIC)
    await eventually(lambda: same_logs(cluster))
    assert set(cluster.state(TOPIC).isr) == {1, 2, 3}


# -- disks -------------------------------------------------------------------------------------------------


async def test_an_empty_disk_is_filled_again_and_never_elected(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, {"min.insync.replicas": "1"}) as cluster:
        await create(cluster)
        leader, *followers = cluster.state(TOPIC).replicas
        await append(cluster, b"precious")
        for follower in followers:
            await cluster.kill(follower)
            await cluster.bury(follower)
        assert cluster.state(TOPIC).isr == (leader,)
        await cluster.kill(leader)
        (tmp_path / f"node-{leader}").rename(tmp_path / "gone")
        for node in (leader, *followers):
            await cluster.start(node)
        await cluster.settle()
        state = cluster.state(TOPIC)
        assert (state.leader, state.isr) == (-1, ()), "who has nothing must not be elected"
        await cluster.change(TOPIC, 0, leader=followers[0], isr=(followers[0],), leader_epoch=9)
        await cluster.in_sync(TOPIC)
        await eventually(lambda: same_logs(cluster))


async def test_a_loss_of_power_is_owned_up_to(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await create(cluster)
        leader = cluster.leader(TOPIC)
        await append(cluster, b"precious")
        await cluster.kill(leader)
        (tmp_path / f"node-{leader}" / ".kafka_cleanshutdown").unlink(missing_ok=True)
        (tmp_path / f"node-{leader}" / "boot-id").write_text("another boot")
        await cluster.start(leader, at_once=True)  # before anybody has missed it
        assert cluster.leader(TOPIC) != leader
        await cluster.in_sync(TOPIC)
        await eventually(lambda: same_logs(cluster))


async def test_a_follower_that_has_too_little_begins_where_the_leader_does(cluster: LocalCluster) -> None:
    leader, *_, third = cluster.state(TOPIC).replicas
    await cluster.kill(third)
    await cluster.bury(third)
    await append(cluster, b"a", b"b", b"c")
    wanted = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=3)])
    await cluster.ask(leader, DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), 2)
    await append(cluster, b"d")
    await cluster.start(third)
    await cluster.in_sync(TOPIC)
    await eventually(lambda: held(cluster, third).log.end_offset == 4)
    assert held(cluster, third).log.start_offset == 3
    assert await values(cluster, leader, 3) == [(3, b"d")]


# -- who may fetch -----------------------------------------------------------------------------------------


def replica_fetch(cluster: LocalCluster, node: int, *, broker_epoch: int, leader_epoch: int) -> FetchRequest:
    wanted = FetchPartition(
        partition=0, fetch_offset=0, current_leader_epoch=leader_epoch, partition_max_bytes=1000
    )
    topic_id = cluster[1].image.topics[TOPIC].topic_id
    return FetchRequest(
        replica_state=ReplicaState(replica_id=node, replica_epoch=broker_epoch),
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )


async def test_a_broker_that_is_not_what_it_was_does_not_count(cluster: LocalCluster) -> None:
    leader, second, _ = cluster.state(TOPIC).replicas
    epoch = cluster[second].lease.epoch
    stale = replica_fetch(cluster, second, broker_epoch=epoch - 1, leader_epoch=0)
    assert (await cluster.ask(leader, stale, FETCH_BY_ID)).error_code == ErrorCode.STALE_BROKER_EPOCH
    for leader_epoch, code in ((5, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, ErrorCode.NONE)):
        request = replica_fetch(cluster, second, broker_epoch=epoch, leader_epoch=leader_epoch)
        assert only_partition(await cluster.ask(leader, request, FETCH_BY_ID)).error_code == code
    await cluster.lead(TOPIC, 0, second)
    late = replica_fetch(cluster, leader, broker_epoch=cluster[leader].lease.epoch, leader_epoch=0)
    answer = only_partition(await cluster.ask(second, late, FETCH_BY_ID))
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert answer.current_leader.leader_id == second


async def test_consumers_read_from_a_follower_what_is_committed(cluster: LocalCluster) -> None:
    _, second, _ = cluster.state(TOPIC).replicas
    await append(cluster, b"a")
    await eventually(lambda: held(cluster, second).high_watermark == 1)
    assert await values(cluster, second) == [(0, b"a")]
    ahead = only_partition(await cluster.ask(second, fetch(TOPIC, 5), FETCH))
    assert ahead.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    old = only_partition(await cluster.ask(second, fetch(TOPIC), 10))
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "this client knows nothing of followers"
    held(cluster, second).log.advance_start(1)
    deleted = only_partition(await cluster.ask(second, fetch(TOPIC), FETCH))
    assert deleted.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader may still have it"


async def test_a_follower_has_one_session_with_its_leader(cluster: LocalCluster) -> None:
    """However often it begins anew: each session remembers all partitions."""
    for number in range(6):
        (made,) = (await cluster.ask(1, create_topic(f"t{number}", partitions=3), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await asyncio.sleep(0.05)
    await eventually(lambda: all(len(cluster[node].replication.sessions) <= 2 for node in cluster.nodes))
    assert await append(cluster, b"a")


async def test_who_may_have_joined_counts_until_the_partition_has_changed(cluster: LocalCluster) -> None:
    """A write that is refused for another's sake does not tell what became of the one before it."""
    third = next(node for node in cluster.state(TOPIC).replicas if node != cluster.leader(TOPIC))
    await cluster.kill(third)
    await cluster.bury(third)
    leader, state = cluster.leader(TOPIC), cluster.state(TOPIC)
    isr, partition = cluster[leader].replication.isr, held(cluster, leader)
    assert partition.leadership is not None and third not in state.isr
    put = PartitionPut(topic_id=partition.topic_id, state=replace(state, isr=(*state.isr, third)))
    partition.leadership.joining = (third,)
    isr.note_outcome([put], [put])
    assert partition.leadership.joining == (third,), "the store may still say that it has joined"
    older = replace(put, state=replace(put.state, partition_epoch=state.partition_epoch - 1))
    isr.note_outcome([older], [older])
    assert not partition.leadership.joining


async def test_who_may_have_joined_and_comes_back_without_its_messages_does_not_join(
    cluster: LocalCluster,
) -> None:
    """Its broker got an empty disk while the outcome of the leader's write was not known."""
    await append(cluster, b"a")
    leader = cluster.leader(TOPIC)
    third = next(node for node in cluster.state(TOPIC).replicas if node != leader)
    partition, replication = held(cluster, leader), cluster[leader].replication
    await eventually(lambda: partition.high_watermark == 1)
    await cluster.kill(third)  # its lease lives on
    left = tuple(node for node in cluster.state(TOPIC).isr if node != third)
    await cluster.change(TOPIC, 0, isr=left)
    leadership = partition.leadership
    assert leadership is not None
    leadership.joining = (third,)
    replication.followers.heard_of(third, None)
    replication.followers.fetched(partition, third, 0, cluster[leader].image.brokers[third].epoch, 0)
    replication.isr.consider(partition)
    await eventually(lambda: not leadership.joining)
    assert third not in cluster.state(TOPIC).isr


async def test_who_leaves_is_not_taken_back(cluster: LocalCluster) -> None:
    """A broker that stops has left the in-sync sets, and what it has fetched last does not change that."""
    leaving = next(node for node in cluster.state(TOPIC).replicas if node != cluster.leader(TOPIC))
    staying = next(node for node in cluster.nodes if node != leaving)
    isrs: list[tuple[int, ...]] = []
    image = cluster[staying].metadata
    image.listen(lambda _, after: isrs.append(after.topics[TOPIC].partitions[0].isr))
    stopped = asyncio.Event()
    cluster.slow_down(leaving, 0.1)

    async def keep_appending() -> None:
        while not stopped.is_set():
            await append(cluster, b"a" * 100, acks=1)

    load = [asyncio.create_task(keep_appending()) for _ in range(4)]
    await asyncio.sleep(0.1)
    await cluster.stop(leaving)
    stopped.set()
    await asyncio.gather(*load)
    returns = sum(leaving in now and leaving not in before for before, now in pairwise(isrs))
    assert returns <= 1, "at most for a fetch that was on its way"
    await eventually(lambda: leaving not in cluster[staying].image.brokers)  # its lease has ended too
    assert leaving not in cluster.state(TOPIC).isr


async def test_who_was_taken_out_of_a_quiet_partition_joins_again(cluster: LocalCluster) -> None:
    await append(cluster, b"a")
    await eventually(lambda: same_logs(cluster))
    await asyncio.sleep(0.6)  # longer than a fetch waits: there is nothing to tell any more
    await cluster.change(TOPIC, 0, isr=(cluster.leader(TOPIC),))
    await cluster.in_sync(TOPIC)


async def test_without_a_lease_nobody_is_told_where_a_log_ends(cluster: LocalCluster) -> None:
    """Another may lead by now, and have shown consumers more."""
    leader = cluster.leader(TOPIC)
    own = cluster[leader].lease
    lease, own.current = own.current, None
    wanted = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
    try:
        asked = await cluster.ask(leader, list_offsets(TOPIC, LATEST), LIST_OFFSETS)
        deleted = await cluster.ask(leader, DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), 2)
        fetched = await cluster.ask(leader, fetch(TOPIC, max_wait_ms=10_000), FETCH)
    finally:
        own.current = lease
    assert asked.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert deleted.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Told with the partition: after an error of the whole answer clients ask the same broker again at once.
    assert fetched.error_code == ErrorCode.NONE
    assert only_partition(fetched).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_fetch_that_waits_while_the_lease_ends_is_not_served(cluster: LocalCluster) -> None:
    """A broker that stood still meanwhile would else show an older end than others have shown."""
    leader = cluster.leader(TOPIC)
    own = cluster[leader].lease
    fetching = asyncio.create_task(cluster.ask(leader, fetch(TOPIC, max_wait_ms=3000), FETCH))
    await eventually(lambda: held(cluster, leader).waiters)
    lease, own.current = own.current, None
    try:
        assert only_partition(await fetching).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    finally:
        own.current = lease
