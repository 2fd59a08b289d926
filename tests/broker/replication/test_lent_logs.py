"""A follower's log is cut in a thread: the loop goes on, and nobody sees half of it, whatever happens."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.net.sockets import SocketNetwork
from forebay.broker.partition.own_appends import append_own
from forebay.broker.partition.partition import Partition
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.real_disk import RealDisk, RealFile
from forebay.wire.batch import TRANSACTIONAL
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.wire_client import batch, create_topic, fetch, only_partition, produce, values_of
from support.faults.faulty_disk import FaultyDisk
from support.faults.held_disk import HeldDisk

PRODUCE, FETCH, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_LOG_DIRS = 9, 12, 7, 6, 4
TOPIC, OTHER = "t", "other"
QUIET = {"replica.lag.time.max.ms": "60000"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path, QUIET, make_disk=HeldDisk) as running:
        for topic in (TOPIC, OTHER):
            await create(running, topic)
        yield running


async def create(cluster: LocalCluster, topic: str, **config: str) -> None:
    (made,) = (await cluster.ask(1, create_topic(topic, 1, **config), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(topic)


async def set_segment_bytes(cluster: LocalCluster, value: str) -> None:
    change = AlterableConfig(name="segment.bytes", config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[change])
    (answer,) = (await cluster.ask(2, IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
    assert answer.error_code == ErrorCode.NONE
    images = [cluster[node].metadata for node in cluster.nodes]
    await eventually(lambda: all("segment.bytes" in m.image.topic_config(TOPIC).overrides for m in images))


async def append(cluster: LocalCluster, value: bytes, topic: str = TOPIC, acks: int = -1, **how: Any) -> Any:
    """As a client does: again, until somebody leads."""

    async def attempt() -> tuple[Any, int]:
        request = produce(topic, batch(value, **how), acks=acks)
        answer = only_partition(await cluster.ask(cluster.leader(topic), request, PRODUCE))
        return answer, answer.error_code

    return await retried(attempt, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def values(cluster: LocalCluster, node: int, topic: str = TOPIC) -> list[tuple[int, bytes | None]]:
    return values_of(only_partition(await cluster.ask(node, fetch(topic, 0), FETCH)).records)


def held(cluster: LocalCluster, node: int, topic: str = TOPIC) -> Partition:
    return cluster[node].partitions.held(topic, 0)


def contents(cluster: LocalCluster, node: int, topic: str = TOPIC) -> bytes:
    return b"".join(bytes(view) for view, _ in held(cluster, node, topic).log.files.scan(0))


def same_logs(cluster: LocalCluster) -> bool:
    return len({contents(cluster, node) for node in cluster.nodes}) == 1


@contextmanager
def cutting_held(cluster: LocalCluster, node: int) -> Iterator[HeldDisk]:
    disk = cluster[node].disk
    assert isinstance(disk, HeldDisk)
    with disk.cuts_held():
        yield disk


async def begin_to_cut(cluster: LocalCluster, disk: HeldDisk) -> tuple[int, int]:
    """Another leads than the first replica, which alone has something; returns when that is being cut off."""
    old, second, third = cluster.state(TOPIC).replicas
    with cluster.deaf(TOPIC, second, third):
        await append(cluster, b"lost", acks=1, producer_id=7, producer_epoch=3, base_sequence=0)
        await cluster.lead(TOPIC, 0, second)
    await eventually(disk.cut_began.is_set)
    return old, second


async def test_the_loop_goes_on_and_nobody_sees_the_log_meanwhile(cluster: LocalCluster) -> None:
    await append(cluster, b"everywhere")
    with cutting_held(cluster, cluster.leader(TOPIC)) as disk:
        old, second = await begin_to_cut(cluster, disk)
        assert (await append(cluster, b"served", OTHER)).error_code == ErrorCode.NONE
        assert (await append(cluster, b"kept", acks=1)).base_offset == 1
        with pytest.raises(KafkaError) as refused:
            held(cluster, old)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert all(partition.topic != TOPIC for partition in cluster[old].partitions.all())
        answer = only_partition(await cluster.ask(old, fetch(TOPIC, 0), FETCH))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        dirs = (await cluster.ask(old, DescribeLogDirsRequest(topics=None), DESCRIBE_LOG_DIRS)).results
        assert {topic.name for topic in dirs[0].topics} == {OTHER}
    await eventually(lambda: same_logs(cluster))
    assert await values(cluster, second) == [(0, b"everywhere"), (1, b"kept")]
    assert held(cluster, old).epochs.entries == held(cluster, second).epochs.entries
    assert not list(held(cluster, old).producers), "the producer of what was cut off is unknown"


async def test_it_leads_only_when_the_cut_is_done(cluster: LocalCluster) -> None:
    await append(cluster, b"everywhere")
    with cutting_held(cluster, cluster.leader(TOPIC)) as disk:
        old, second = await begin_to_cut(cluster, disk)
        await cluster.lead(TOPIC, 0, old)
        refused = only_partition(await cluster.ask(old, produce(TOPIC, batch(b"no"), acks=1), PRODUCE))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await append(cluster, b"after")).base_offset == 1
    await eventually(lambda: same_logs(cluster))
    assert await values(cluster, old) == [(0, b"everywhere"), (1, b"after")]
    assert held(cluster, second).leader_epoch == held(cluster, old).leader_epoch


async def test_a_topic_deleted_and_made_again_meanwhile(cluster: LocalCluster) -> None:
    await append(cluster, b"everywhere")
    with cutting_held(cluster, cluster.leader(TOPIC)) as disk:
        old, _ = await begin_to_cut(cluster, disk)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=5000)
        (gone,) = (await cluster.ask(2, request, DELETE_TOPICS)).responses
        assert gone.error_code == ErrorCode.NONE
        await eventually(lambda: all(TOPIC not in cluster[node].image.topics for node in cluster.nodes))
        await create(cluster, TOPIC)
        with pytest.raises(KafkaError):
            held(cluster, old)
    await eventually(lambda: held(cluster, old))
    assert held(cluster, old).topic_id == cluster[old].image.topics[TOPIC].topic_id
    await append(cluster, b"new")
    await eventually(lambda: same_logs(cluster))
    assert await values(cluster, cluster.leader(TOPIC)) == [(0, b"new")]


async def test_settings_changed_meanwhile_are_in_force_afterwards(cluster: LocalCluster) -> None:
    await append(cluster, b"everywhere")
    with cutting_held(cluster, cluster.leader(TOPIC)) as disk:
        old, _ = await begin_to_cut(cluster, disk)
        await set_segment_bytes(cluster, "4096")
    await eventually(lambda: held(cluster, old).config.segment_bytes == 4096)


async def test_a_broker_that_stops_meanwhile_finishes_the_cut(cluster: LocalCluster) -> None:
    await append(cluster, b"everywhere")
    with cutting_held(cluster, cluster.leader(TOPIC)) as disk:
        old, _ = await begin_to_cut(cluster, disk)
        # Stopping waits for the thread, and this loop with it: somebody else has to let go.
        threading.Timer(0.3, disk.cuts_released.set).start()
        await cluster.stop(old)
    await append(cluster, b"kept")
    await cluster.start(old)
    assert held(cluster, old).log.report.scanned_bytes == 0, "it was closed cleanly"
    await eventually(lambda: same_logs(cluster))


# -- when the disk fails -----------------------------------------------------------------------------------


async def test_a_cut_that_fails_stops_one_replica_until_its_broker_starts_again(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, QUIET, make_disk=FaultyDisk) as cluster:
        for topic in (TOPIC, OTHER):
            await create(cluster, topic)
        await append(cluster, b"everywhere")
        old, second, third = cluster.state(TOPIC).replicas
        disk = cluster[old].disk
        assert isinstance(disk, FaultyDisk)
        disk.break_path("truncate", f"{TOPIC}-0/")
        with cluster.deaf(TOPIC, second, third):
            await append(cluster, b"lost", acks=1)
            await cluster.lead(TOPIC, 0, second)
        await eventually(lambda: held(cluster, old).log.offline_for_good)
        assert (await append(cluster, b"served", OTHER)).error_code == ErrorCode.NONE
        await cluster.stop(old)
        await cluster.start(old)
        await append(cluster, b"kept")
        await eventually(lambda: same_logs(cluster))


class ForgetfulDisk(RealDisk):
    """Snapshots of producers cannot be read while it is told so."""

    forgets = False

    def read_bytes(self, path: str) -> bytes:
        if self.forgets and path.endswith(".snapshot"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().read_bytes(path)


async def test_producers_that_could_not_be_read_after_a_cut_are_known_again_after_a_restart(
    tmp_path: Path,
) -> None:
    settings = {**QUIET, "log.flush.interval.ms": "50"}
    async with local_cluster(tmp_path, settings, make_disk=ForgetfulDisk) as cluster:
        await create(cluster, TOPIC, segment_bytes="300")
        for number in range(8):
            await append(cluster, b"once", producer_id=7, producer_epoch=3, base_sequence=number)
        old, second, third = cluster.state(TOPIC).replicas
        await eventually(lambda: held(cluster, old).log.recovery_point == 8)
        disk = cluster[old].disk
        assert isinstance(disk, ForgetfulDisk)
        with cluster.deaf(TOPIC, second, third):
            await append(cluster, b"lost", acks=1)
            disk.forgets = True
            await cluster.lead(TOPIC, 0, second)
        await eventually(lambda: held(cluster, old).log.offline_for_good)
        disk.forgets = False
        await cluster.stop(old)
        await cluster.start(old)
        await cluster.in_sync(TOPIC)
        await cluster.lead(TOPIC, 0, old)
        repeated = await append(cluster, b"once", producer_id=7, producer_epoch=3, base_sequence=7)
        assert (repeated.error_code, repeated.base_offset) == (ErrorCode.NONE, 7)
        assert held(cluster, old).log.end_offset == 8


async def test_what_was_cut_off_is_not_acknowledged_as_a_repeat_by_a_leader_that_could_not_read_its_producers(
    tmp_path: Path,
) -> None:
    async with local_cluster(tmp_path, QUIET, make_disk=ForgetfulDisk) as cluster:
        await create(cluster, TOPIC, segment_bytes="300")
        for number in range(8):
            await append(cluster, b"once", producer_id=7, producer_epoch=3, base_sequence=number)
        old, second, third = cluster.state(TOPIC).replicas
        disk = cluster[old].disk
        assert isinstance(disk, ForgetfulDisk)
        with cluster.deaf(TOPIC, second, third):
            await append(cluster, b"lost", acks=1, producer_id=7, producer_epoch=3, base_sequence=8)
            disk.forgets = True
            await cluster.lead(TOPIC, 0, second)
        await eventually(lambda: held(cluster, old).log.offline_for_good)
        leading = held(cluster, old)
        leading.is_leader = True  # it was the only one in sync when its disk failed
        repeated = batch(b"lost", producer_id=7, producer_epoch=3, base_sequence=8)
        with pytest.raises(StorageError, match="cannot be read"):
            leading.append(memoryview(bytearray(repeated)), cluster[old].time.trusted_ms())


async def test_transactions_that_are_open_stay_so_for_readers_of_a_log_whose_cut_failed(
    tmp_path: Path,
) -> None:
    async with local_cluster(tmp_path, QUIET, make_disk=ForgetfulDisk) as cluster:
        await create(cluster, TOPIC, segment_bytes="300")
        old, second, third = cluster.state(TOPIC).replicas
        leading = held(cluster, old)
        undecided = batch(b"undecided", producer_id=7, producer_epoch=3, attributes=TRANSACTIONAL)
        append_own(leading, memoryview(bytearray(undecided)))
        cluster[old].write_cycle.queued(leading, len(undecided))
        for _ in range(8):
            await append(cluster, b"everywhere")
        disk = cluster[old].disk
        assert isinstance(disk, ForgetfulDisk)
        with cluster.deaf(TOPIC, second, third):
            await append(cluster, b"lost", acks=1)
            disk.forgets = True
            await cluster.lead(TOPIC, 0, second)
        await eventually(lambda: held(cluster, old).log.offline_for_good)
        assert held(cluster, old).high_watermark > 0
        assert held(cluster, old).last_stable_offset == 0


async def test_a_full_disk_that_has_room_again_needs_no_restart(tmp_path: Path) -> None:
    """The disk is full when a segment has to end in the middle of what the leader sent."""
    settings = {**QUIET, "replica.fetch.backoff.ms": "50"}
    async with local_cluster(tmp_path, settings, make_disk=FaultyDisk) as cluster:
        await create(cluster, TOPIC)
        await append(cluster, b"everywhere")
        leader, follower, _ = cluster.state(TOPIC).replicas
        await cluster.lead(TOPIC, 0, leader)  # another epoch, whose first batch finds no room
        disk = cluster[follower].disk
        assert isinstance(disk, FaultyDisk)
        with cluster.deaf(TOPIC, follower):
            for number in range(20):
                await append(
                    cluster,
                    b"%d" % number * 100,
                    acks=1,
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=number,
                )
            await set_segment_bytes(cluster, "1000")
            disk.free = 0
        await eventually(lambda: not is_open(cluster, follower) or held(cluster, follower).log.offline)
        disk.repair()
        await eventually(lambda: same_logs(cluster))
        (state,) = held(cluster, follower).producers
        assert state.last_sequence == 19


def is_open(cluster: LocalCluster, node: int) -> bool:
    return any(partition.topic == TOPIC for partition in cluster[node].partitions.all())


# -- opening -----------------------------------------------------------------------------------------------


class SlowlyOpeningDisk(RealDisk):
    """Making a file in the directory of a topic takes as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()
        self.released = threading.Event()

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> RealFile:
        if f"/{TOPIC}-0/" in path and not self.released.is_set():
            self.began.set()
            assert self.released.wait(60)
        return super().open(path, create=create, absent=absent)


async def test_the_loop_goes_on_while_a_partition_is_opened(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, QUIET, brokers=1, make_disk=SlowlyOpeningDisk) as cluster:
        disk = cluster[1].disk
        assert isinstance(disk, SlowlyOpeningDisk)
        await create(cluster, OTHER)
        creating = asyncio.create_task(create(cluster, TOPIC))
        await eventually(disk.began.is_set)
        async with asyncio.timeout(60):
            another = await PeerConnection.open(
                SocketNetwork().connect, *cluster.address(1), client_id="another", response_bytes_max=1 << 20
            )
            answer = await another.ask(produce(OTHER, batch(b"served")), PRODUCE, timeout_s=60)
            assert only_partition(answer).error_code == ErrorCode.NONE
            another.close()
        assert not creating.done(), "it is answered when the partition is there"
        disk.released.set()
        await creating
        assert (await append(cluster, b"first")).base_offset == 0
