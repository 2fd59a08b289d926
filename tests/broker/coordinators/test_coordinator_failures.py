"""A machine that fails is thrown away and made anew from its log, and everyone who waited is answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.coordinator_partition import partition_for
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.list_groups import ListGroupsRequest
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.transacting import (
    COME_BACK,
    ID,
    OFFSETS,
    TRANSACTIONS,
    Producer,
    give_leader,
    make_topic,
    read_committed,
    take_leader,
)
from support.faults.faulty_disk import FaultyDisk
from support.machines.tally import Faults, Tallies, Tally


@contextlib.asynccontextmanager
async def tallies(
    directory: Path, faults: Faults | None = None
) -> AsyncIterator[tuple[LocalCluster, Tallies]]:
    async with local_cluster(directory, brokers=1) as cluster:
        made = Tallies(cluster[1], faults or Faults())
        await made.coordinator.ensure_topic()
        await eventually(lambda: made.machine)
        yield cluster, made
        made.coordinator.close()


def availability(tallies: Tallies) -> ErrorCode:
    return tallies.coordinator.availability


async def next_machine(tallies: Tallies, before: Tally | None) -> Tally:
    await eventually(lambda: tallies.machine not in (None, before))
    assert tallies.machine is not None
    return tallies.machine


async def test_an_operation_that_raises_costs_the_machine_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    async with tallies(tmp_path) as (cluster, tally):
        assert await tally.add("1") == ErrorCode.NONE
        waiting = asyncio.create_task(tally.ask(Tally.wait))
        await asyncio.sleep(0)
        first = tally.machine
        failed = await tally.ask(Tally.fail)
        assert failed.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await tally.add("2") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert availability(tally) == ErrorCode.COORDINATOR_NOT_AVAILABLE

        again = await next_machine(tally, first)
        assert (again.numbers, again.half_done) == ([b"1"], False)
        assert await tally.add("2") == ErrorCode.NONE
        assert again.numbers == [b"1", b"2"]
        assert availability(tally) == ErrorCode.NONE
        assert cluster[1].metrics.coordinator_failures == 1


async def test_records_are_replayed_with_the_offsets_that_they_have_in_the_log(tmp_path: Path) -> None:
    async with tallies(tmp_path) as (_, tally):
        for text in ("1", "2", "3"):
            assert await tally.add(text) == ErrorCode.NONE
        first = tally.machine
        assert first is not None
        assert first.offsets == [0, 1, 2]
        await tally.ask(Tally.fail)
        second = await next_machine(tally, first)
        assert second.offsets == [0, 1, 2]
        assert await tally.add("4") == ErrorCode.NONE
        assert second.offsets == [0, 1, 2, 3]


async def test_what_cannot_be_replayed_is_not_written(tmp_path: Path) -> None:
    async with tallies(tmp_path) as (_, tally):
        assert await tally.add("1") == ErrorCode.NONE
        first = tally.machine
        assert await tally.add("not a number") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        again = await next_machine(tally, first)
        assert again.numbers == [b"1"]
        assert await tally.add("2") == ErrorCode.NONE


async def test_a_tick_that_raises_loses_nothing_of_other_timers(tmp_path: Path) -> None:
    faults = Faults(timers=[(10, "first"), (10, "second"), (10, "third"), (20, "boom"), (30, "last")])
    async with tallies(tmp_path, faults) as (_, tally):
        first = tally.machine
        faults.timers = [(10, "last")]
        again = await next_machine(tally, first)
        await eventually(lambda: again.numbers[-1:] == [b"last"])
        assert again.numbers == [b"first", b"second", b"third", b"last"]
        assert not again.half_done
        assert await tally.add("1") == ErrorCode.NONE


async def test_timers_that_are_due_together_are_steps_of_their_own(tmp_path: Path) -> None:
    names = [f"{number:03}" for number in range(200)]
    async with tallies(tmp_path, Faults(timers=[(0, name) for name in names])) as (cluster, tally):
        machine = await eventually(lambda: tally.machine)
        await eventually(lambda: len(machine.numbers) == len(names))
        assert machine.numbers == [name.encode() for name in names]
        log = cluster[1].partitions.get("__tally", 0).log
        assert [header.record_count for _, header in log.files.scan(0)] == [1] * len(names)


@pytest.mark.parametrize("loads_to_fail", [1, 2])
async def test_a_load_that_fails_is_tried_again(tmp_path: Path, loads_to_fail: int) -> None:
    """In the same term, with a longer pause each time; meanwhile clients hear that nobody is there."""
    faults = Faults()
    async with tallies(tmp_path, faults) as (_, tally):
        assert await tally.add("1") == ErrorCode.NONE
        first = tally.machine
        faults.loads_to_fail = loads_to_fail
        assert (await tally.ask(Tally.fail)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        codes = set()
        while tally.machine in (None, first):
            codes.add(await tally.add("2"))
            await asyncio.sleep(0.01)
        assert codes - {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert faults.machines == 2 + loads_to_fail
        assert tally.machine is not None and tally.machine.numbers == [b"1"]
        assert await tally.add("2") == ErrorCode.NONE


async def test_a_partition_that_cannot_be_taken_up_holds_up_no_other(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        tally = Tallies(cluster[1], Faults(makes_to_fail=1), partitions=2)
        await tally.coordinator.ensure_topic()
        (shard,) = await eventually(tally.coordinator.ready_shards)
        assert shard.partition.index == 1
        assert cluster[1].metrics.background_failures == 1
        tally.coordinator.close()


# -- logs that cannot be read ------------------------------------------------------------------------------


def disk_of(cluster: LocalCluster) -> FaultyDisk:
    disk = cluster[1].disk
    assert isinstance(disk, FaultyDisk)
    return disk


async def new_term(cluster: LocalCluster, topic: str, index: int) -> None:
    await cluster.lead(topic, index, 1)


async def commit(cluster: LocalCluster, group: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="events", partitions=[partition])
    response = await cluster.ask(1, OffsetCommitRequest(group_id=group, topics=[topic]), 8)
    code: int = response.topics[0].partitions[0].error_code
    return code


async def committed(cluster: LocalCluster, group: str) -> int:
    async def attempt() -> tuple[int, int]:
        topic = OffsetFetchRequestTopic(name="events", partition_indexes=[0])
        response = await cluster.ask(1, OffsetFetchRequest(group_id=group, topics=[topic]), 5)
        offset = response.topics[0].partitions[0].committed_offset if response.topics else -1
        return offset, response.error_code

    offset: int = await retried(attempt, *COME_BACK)
    return offset


async def test_a_coordinator_whose_log_cannot_be_read_is_loaded_when_it_can(tmp_path: Path) -> None:
    """Its broker lives, the groups of other partitions work, and nothing is forgotten."""
    group, other = "group-0", next(f"group-{n}" for n in range(9) if home(f"group-{n}") != home("group-0"))
    async with local_cluster(tmp_path, brokers=1, make_disk=FaultyDisk) as cluster:
        await make_topic(cluster)
        await cluster.ask(1, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)
        assert [await commit(cluster, each, 7) for each in (group, other)] == [0, 0]
        disk_of(cluster).break_path("pread", f"{OFFSETS}-{home(group)}/")
        await new_term(cluster, OFFSETS, home(group))
        failures = cluster[1].metrics.coordinator_failures
        await eventually(lambda: cluster[1].metrics.coordinator_failures > failures)
        assert await commit(cluster, group, 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await commit(cluster, other, 8) == ErrorCode.NONE
        listed = await cluster.ask(1, ListGroupsRequest(), 4)
        assert listed.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [each.group_id for each in listed.groups] == [other]
        disk_of(cluster).repair()
        assert await committed(cluster, group) == 7
        assert await committed(cluster, other) == 8


async def test_a_decided_transaction_gets_its_markers_after_a_load_that_failed(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1, make_disk=FaultyDisk) as cluster:
        topic = await make_topic(cluster)
        producer = Producer(cluster, topic)
        await producer.begin()
        await producer.add(0)
        assert await producer.send(0, b"kept") == ErrorCode.NONE
        await take_leader(cluster, topic, 0)
        await producer.end()
        index = partition_for(ID, 4)
        disk_of(cluster).break_path("pread", f"{TRANSACTIONS}-{index}/")
        await new_term(cluster, TRANSACTIONS, index)
        await eventually(lambda: cluster[1].metrics.coordinator_failures)
        await give_leader(cluster, topic, 0, 1)
        disk_of(cluster).repair()
        assert await read_committed(cluster, topic, 0) == [b"kept"]


def home(group: str) -> int:
    return partition_for(group, 4)
