"""Group coordinators follow the leaders of their partitions: who answers, from when, and what survives."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.coordinators import loaded_shard
from forebay.broker.partition.own_appends import append_own
from forebay.broker.worker_threads import WorkerThreads
from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch
from forebay.wire.coordinator_partition import partition_for
from forebay.wire.messages.describe_groups import DescribeGroupsRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.heartbeat import HeartbeatRequest
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from forebay.wire.messages.list_groups import ListGroupsRequest
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from forebay.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from forebay.wire.records import Record
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.wire_client import create_topic

OFFSETS = "__consumer_offsets"
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
GROUP = "orders"
COME_BACK = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@contextlib.asynccontextmanager
async def _cluster(directory: Path, settings: dict[str, str] | None = None) -> AsyncIterator[LocalCluster]:
    async with local_cluster(directory, settings) as cluster:
        (made,) = (await cluster.ask(1, create_topic("t"), 7)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.knows("t")
        yield cluster


async def _coordinator(cluster: LocalCluster, group: str = GROUP) -> int:
    """The node that every broker says is the group's coordinator."""
    found: set[tuple[int, int]] = set()
    for node in cluster.nodes:
        response = await cluster.ask(node, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)
        (each,) = response.coordinators
        assert each.error_code == ErrorCode.NONE, each.error_message
        found.add((each.node_id, each.port))
    assert len(found) == 1
    home = next(iter(found))[0]
    await cluster.knows(OFFSETS)
    await eventually(lambda: cluster[home].groups.coordinator.at(_index(group)))
    return home


def _commit(offset: int, group: str = GROUP) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )


async def _committed(cluster: LocalCluster, node: int, offset: int, group: str = GROUP) -> int:
    """The error code of a commit."""
    response = await cluster.ask(node, _commit(offset, group), 8)
    code: int = response.topics[0].partitions[0].error_code
    return code


async def _offset(cluster: LocalCluster, node: int, group: str = GROUP) -> tuple[int, int]:
    """The committed offset, and the error code of asking for it."""
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    )
    response = await cluster.ask(node, request, 5)
    if response.error_code != ErrorCode.NONE:
        return -1, response.error_code
    return response.topics[0].partitions[0].committed_offset, ErrorCode.NONE


async def _offset_in_the_end(cluster: LocalCluster, group: str = GROUP) -> int:
    async def attempt() -> tuple[int, int]:
        return await _offset(cluster, cluster.leader(OFFSETS, _index(group)), group)

    offset: int = await retried(attempt, *COME_BACK)
    return offset


async def test_loading_lets_others_have_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_shard, "_RECORDS_PER_TURN", 100)
    async with _cluster(tmp_path) as cluster:
        home = await _coordinator(cluster)
        await cluster.ask(1, create_topic("wide", 40), 7)
        await cluster.knows("wide")
        for offset in range(30):
            partitions = [
                OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                for index in range(40)
            ]
            topic = OffsetCommitRequestTopic(name="wide", partitions=partitions)
            await cluster.ask(home, OffsetCommitRequest(group_id=GROUP, topics=[topic]), 8)
        turn = 0
        records: Counter[int] = Counter()

        class Machine:
            def replay(self, *_: object) -> None:
                records[turn] += 1

        async def take_turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        shard = loaded_shard.Shard[Any](cluster[home].partitions.get(OFFSETS, _index()), Machine())
        others = asyncio.create_task(take_turns())
        with ThreadPoolExecutor(1) as pool:
            readers = WorkerThreads(asyncio.get_running_loop(), pool)
            await shard.replay_log(readers, None, lambda: True)
        others.cancel()
        assert records.total() >= 30 * 40
        assert max(records.values()) < 200


def _index(group: str = GROUP) -> int:
    return partition_for(group, 4)


def _join(member_id: str = "", group: str = GROUP) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


async def test_every_broker_names_the_leader_and_only_the_leader_answers(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        home = await _coordinator(cluster)
        assert home == cluster.leader(OFFSETS, _index())
        assert await _committed(cluster, home, 7) == ErrorCode.NONE
        for node in set(cluster.nodes) - {home}:
            assert await _committed(cluster, node, 8) == ErrorCode.NOT_COORDINATOR
            assert (await _offset(cluster, node))[1] == ErrorCode.NOT_COORDINATOR
            (described,) = (await cluster.ask(node, DescribeGroupsRequest(groups=[GROUP]), 5)).groups
            assert described.error_code == ErrorCode.NOT_COORDINATOR
        assert await _offset(cluster, home) == (7, ErrorCode.NONE)


async def test_groups_are_listed_where_they_are_coordinated(tmp_path: Path) -> None:
    groups = [f"group-{n}" for n in range(12)]
    async with _cluster(tmp_path) as cluster:
        for group in groups:
            assert await _committed(cluster, await _coordinator(cluster, group), 1, group) == ErrorCode.NONE
        listed = []
        for node in cluster.nodes:
            response = await cluster.ask(node, ListGroupsRequest(), 4)
            assert response.error_code == ErrorCode.NONE
            listed += [each.group_id for each in response.groups]
        assert sorted(listed) == sorted(groups)


async def test_offsets_survive_the_death_of_their_coordinator(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        for offset in range(1, 4):
            home = await _coordinator(cluster)
            assert await _committed(cluster, home, offset) == ErrorCode.NONE
            await cluster.kill(home)
            await cluster.bury(home)
            assert cluster.leader(OFFSETS, _index()) != home
            assert await _offset_in_the_end(cluster) == offset
            await cluster.start(home)
            await cluster.in_sync(OFFSETS, _index())


async def test_a_group_goes_on_at_its_next_coordinator(tmp_path: Path) -> None:
    """Members keep their ids, their generation and their assignment."""
    async with _cluster(tmp_path) as cluster:
        home = await _coordinator(cluster)
        asked = await cluster.ask(home, _join(), 5)
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await cluster.ask(home, _join(asked.member_id), 5)
        assert (joined.error_code, joined.leader) == (ErrorCode.NONE, joined.member_id)
        member = {
            "group_id": GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
        }
        own = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all of it")
        synced = await cluster.ask(home, SyncGroupRequest(**member, assignments=[own]), 3)
        assert synced.error_code == ErrorCode.NONE
        await cluster.kill(home)
        await cluster.bury(home)
        home = await _coordinator(cluster)

        async def beat() -> tuple[Any, int]:
            response = await cluster.ask(home, HeartbeatRequest(**member), 3)
            return response, response.error_code

        assert (await retried(beat, *COME_BACK)).error_code == ErrorCode.NONE
        await eventually(lambda: cluster[home].groups.coordinator.availability is not LOADING)
        synced = await cluster.ask(home, SyncGroupRequest(**member), 3)
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"all of it")


async def test_who_waits_is_sent_away_when_the_leadership_moves(tmp_path: Path) -> None:
    async with _cluster(tmp_path, {"group.initial.rebalance.delay.ms": "60000"}) as cluster:
        home = await _coordinator(cluster)
        asked = await cluster.ask(home, _join(), 5)
        waiting = asyncio.create_task(cluster.ask(home, _join(asked.member_id), 5))
        await eventually(lambda: cluster[home].groups.coordinator.at(_index()).tickets)
        heir = next(node for node in cluster.nodes if node != home)
        await cluster.lead(OFFSETS, _index(), heir)
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert await _coordinator(cluster) == heir
        assert (await cluster.ask(heir, _join(), 5)).error_code == ErrorCode.MEMBER_ID_REQUIRED


async def test_a_new_term_of_the_same_leader_begins_from_the_log(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        home = await _coordinator(cluster)
        assert await _committed(cluster, home, 5) == ErrorCode.NONE
        before = cluster[home].groups.coordinator.at(_index())
        await cluster.lead(OFFSETS, _index(), home)
        assert await _offset_in_the_end(cluster) == 5
        after = cluster[home].groups.coordinator.at(_index())
        assert after is not before and not before.ready
        assert after.leader_epoch == before.leader_epoch + 1


async def test_nothing_is_told_that_only_the_leader_has(tmp_path: Path) -> None:
    """A commit waits for the in-sync replicas, and so does everyone who would hear of it."""
    async with _cluster(tmp_path) as cluster:
        home = await _coordinator(cluster)
        assert await _committed(cluster, home, 1) == ErrorCode.NONE
        others = [node for node in cluster.nodes if node != home]
        for node in others:
            await cluster.kill(node)
        shard = cluster[home].groups.coordinator.at(_index())
        commit = asyncio.create_task(_committed(cluster, home, 2))
        await eventually(lambda: shard.newest_commit)
        reading = asyncio.create_task(cluster[home].peers.ask(home, _fetch_all(), version=5))
        await eventually(lambda: len(shard.tickets) == 2)
        await asyncio.sleep(0.1)
        assert not commit.done() and not reading.done()

        # Too few are left to promise anything; the next to have a quorum finds the commit in the log.
        for node in others:
            await cluster.bury(node)
        assert await commit == ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer: Any = await reading
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await _committed(cluster, home, 3) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        for node in others:
            await cluster.start(node)
        assert await _offset_in_the_end(cluster) == 2


def _fetch_all() -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id=GROUP, topics=None)


async def test_what_was_loaded_is_told_only_when_it_is_committed(tmp_path: Path) -> None:
    """The new leader has what the old one never acknowledged; another failover may take it away again."""
    async with _cluster(tmp_path) as cluster:
        home = await _coordinator(cluster)
        assert await _committed(cluster, home, 1) == ErrorCode.NONE
        heir, slow = (node for node in cluster.nodes if node != home)
        await cluster.kill(slow)
        commit = asyncio.create_task(_committed(cluster, home, 2))
        held = cluster[heir].partitions.held(OFFSETS, _index())
        led = cluster[home].partitions.get(OFFSETS, _index())
        await eventually(lambda: led.log.end_offset > led.high_watermark)
        await eventually(lambda: held.log.end_offset == led.log.end_offset)
        await cluster.kill(home)
        await asyncio.gather(commit, return_exceptions=True)
        await cluster.change(
            OFFSETS,
            _index(),
            leader=heir,
            leader_epoch=1,
            isr=(heir, slow),
        )
        await eventually(lambda: cluster[heir].groups.coordinator.availability is not LOADING)
        reading = asyncio.create_task(_offset(cluster, heir))
        await asyncio.sleep(0.2)
        assert not reading.done()
        await cluster.bury(home)
        await cluster.start(slow)
        assert (await reading)[1] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await _offset_in_the_end(cluster) == 2


async def test_a_broker_without_its_lease_coordinates_nothing(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        home = await _coordinator(cluster)
        assert await _committed(cluster, home, 1) == ErrorCode.NONE
        held = cluster[home].lease
        lease = held.current
        held.current = None
        assert await _committed(cluster, home, 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await _offset(cluster, home))[1] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        held.current = lease
        assert await _offset_in_the_end(cluster) == 1


async def test_what_cannot_be_read_ends_no_broker(tmp_path: Path) -> None:
    """A record that nobody understands costs its partition the coordinator, and nothing else."""
    async with _cluster(tmp_path) as cluster:
        node = await _coordinator(cluster)
        index = partition_for(GROUP, len(cluster[node].image.topics[OFFSETS].partitions))
        await eventually(lambda: cluster[node].groups.coordinator.ready_shards())
        partition = cluster[node].partitions.get(OFFSETS, index)
        garbage = build_batch([Record(0, 0, b"\0\1\x7f\x7f", b"value")])
        append_own(partition, memoryview(garbage))
        cluster[node].write_cycle.queued(partition, 1)
        cluster[node].write_cycle.finish_soon()
        other = next(each for each in cluster.state(OFFSETS, index).isr if each != node)
        await eventually(lambda: cluster[other].partitions.held(OFFSETS, index).log.end_offset == 1)
        await cluster.lead(OFFSETS, index, other)
        assert await _committed(cluster, other, 1) in COME_BACK
        unharmed = next(f"group-{n}" for n in range(1000) if _index(f"group-{n}") != index)
        there = await _coordinator(cluster, unharmed)
        await retried(lambda: _answered(_committed(cluster, there, 1, unharmed)), *COME_BACK)


async def _answered(code: Any) -> tuple[int, int]:
    answer: int = await code
    return answer, answer
