"""No acknowledgement leaves a broker that cannot be sure of its lease, whatever it has waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from forebay.broker.node import Node
from forebay.broker.partition.long_polls import Arrivals
from forebay.broker.partition.partition import Partition
from forebay.broker.produce.flush import GroupCommit
from forebay.broker.produce.write_cycle import ACKS_ALL, Appended, Unacknowledged, WriteCycle
from forebay.broker.telemetry.metrics import Metrics
from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import CREATE_TOPICS, batch, create_topic, only_partition, produce

PRODUCE = 9
TOPIC = "t"


@contextmanager
def uncertain(node: Node) -> Iterator[None]:
    """For this time the broker cannot know whether it is counted as dead."""
    lease = node.lease.current
    node.lease.current = None
    yield
    node.lease.current = lease


async def append(cluster: LocalCluster, leader: int, acks: int = ACKS_ALL) -> Any:
    request = produce(TOPIC, batch(b"x"), acks=acks)
    return only_partition(await cluster.ask(leader, request, PRODUCE))


@pytest.mark.parametrize("repeats", [0, 3], ids=["full path", "fast path"])
async def test_replicas_that_have_it_are_not_enough(tmp_path: Path, repeats: int) -> None:
    async with local_cluster(tmp_path, {"replica.lag.time.max.ms": "3600000"}) as cluster:
        await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)
        await cluster.knows(TOPIC)
        leader, *followers = cluster.state(TOPIC).replicas
        for _ in range(repeats):
            assert (await append(cluster, leader)).error_code == ErrorCode.NONE
        node = cluster[leader]
        partition = node.partitions.get(TOPIC, 0)
        with cluster.deaf(TOPIC, *followers):
            asked = asyncio.create_task(append(cluster, leader))
            await eventually(lambda: len(partition.acks) == 1)
            refused = node.metrics.acks_refused
            with uncertain(node):
                partition.high_watermark = partition.log.end_offset  # as if the followers had it
                node.write_cycle.advance(partition)
                answer = await asked
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert node.metrics.acks_refused == refused + 1


@pytest.mark.parametrize("acks", [1, ACKS_ALL])
async def test_answers_of_the_fast_path_are_counted(tmp_path: Path, acks: int) -> None:
    settings = {"default.replication.factor": "1", "forebay.flush.policy": "interval"}
    async with local_cluster(tmp_path, settings, brokers=1) as cluster:
        await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)
        await cluster.knows(TOPIC)
        for _ in range(3):
            assert (await append(cluster, 1, acks)).error_code == ErrorCode.NONE
        assert any(connection.memo for connection in cluster[1].server.connections)
        with uncertain(cluster[1]):
            answer = await append(cluster, 1, acks)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster[1].metrics.acks_refused == 1


class _Slow:
    """What a partition looks like to who waits for a sync of its disk, which takes long."""

    commits_at_once = True
    is_leader = True

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    @property
    def log(self) -> _Slow:
        return self

    @property
    def files(self) -> _Slow:
        return self

    def datasync(self) -> None:
        self.begun.set()
        assert self.may_end.wait(60)


async def test_a_disk_that_has_it_is_not_enough() -> None:
    metrics, disk, settled = Metrics(), _Slow(), asyncio.Event()
    is_certain = True
    result = Appended(0, cast(Partition, disk))
    with ThreadPoolExecutor(1) as pool:
        flush = GroupCommit(asyncio.get_running_loop(), metrics, pool)
        cycle = WriteCycle(flush, Arrivals(), metrics, sync_on_ack=True, lease_valid=lambda: is_certain)
        cycle.add(Unacknowledged([result], ACKS_ALL, settled.set))
        cycle.finish()
        await asyncio.to_thread(disk.begun.wait, 60)
        is_certain = False
        disk.may_end.set()
        async with asyncio.timeout(60):
            await settled.wait()
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert metrics.acks_refused == 1
