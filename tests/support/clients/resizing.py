"""What tests of topics with fewer or more partitions, over several brokers, share."""

from __future__ import annotations

import asyncio
from typing import Any

from forebay.clock import SystemClock
from forebay.errors import ErrorCode
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.folded_produce import FoldedProduceRequest
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.brokers.local_cluster import LocalCluster, eventually, retried
from support.clients.transacting import MOVED
from support.clients.wire_client import batch, fetch, only_partition, produce, values_of

SETTINGS = {"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "4"}
PASSING = (*MOVED, ErrorCode.REQUEST_TIMED_OUT)
ONCE = (ErrorCode.LEADER_NOT_AVAILABLE,)
"""Answers that are tried again, if only those of an election are."""
PRODUCER = 4711
NOW_MS = SystemClock().now_ms()


async def fold(cluster: LocalCluster, topic: str, count: int, *, node: int = 1, **how: Any) -> None:
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None, **how)
    response = await cluster.ask(node, CreatePartitionsRequest(topics=[wanted], timeout_ms=60_000), 3)
    assert response.results[0].error_code == ErrorCode.NONE, response.results[0].error_message


async def known(cluster: LocalCluster, topic: str, closed_from: int, *nodes: int) -> None:
    await eventually(
        lambda: all(cluster[node].image.topics[topic].closed_from == closed_from for node in nodes)
    )


def numbered(sequence: int, *, of: int) -> bytes:
    return batch(
        b"%d:%d" % (of, sequence),
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
        timestamp=NOW_MS,
    )


async def send(
    cluster: LocalCluster, topic: str, partition: int, data: bytes, *passing: int, node: int | None = None
) -> tuple[int, int]:
    async def attempt() -> tuple[Any, int]:
        leader = cluster.leader(topic, partition) if node is None else node
        answer = only_partition(
            await cluster.ask(leader, produce(topic, data, partition=partition, acks=-1), 9)
        )
        return answer, answer.error_code

    answer = await retried(attempt, *(passing or PASSING))
    assert answer.index == partition
    return answer.error_code, answer.base_offset


async def values(cluster: LocalCluster, topic: str, partition: int) -> list[bytes]:
    async def attempt() -> tuple[Any, int]:
        leader = cluster.leader(topic, partition)
        data = only_partition(await cluster.ask(leader, fetch(topic, partitions=[partition]), 12))
        behind = data.high_watermark < cluster[leader].partitions.get(topic, partition).log.end_offset
        return data, data.error_code or (ErrorCode.OFFSET_NOT_AVAILABLE if behind else 0)

    data = await retried(attempt, *PASSING, ErrorCode.OFFSET_NOT_AVAILABLE)
    return [value for _, value in values_of(data.records) if value is not None]


async def lead_apart(cluster: LocalCluster, topic: str) -> None:
    """Partition 3 is folded into 1: let two brokers lead them, none of them the first."""
    await cluster.lead(topic, 1, 2)
    await cluster.lead(topic, 3, 3)


async def need_replicas(cluster: LocalCluster, topic: str, index: int, count: str) -> None:
    """Have the leader of a partition ask for this many replicas in sync: there are 3."""
    change = AlterableConfig(name="min.insync.replicas", config_operation=0, value=count)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    (answer,) = (await cluster.ask(1, IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
    assert answer.error_code == ErrorCode.NONE
    leader = cluster[cluster.leader(topic, index)]
    await eventually(lambda: leader.partitions.get(topic, index).enough_replicas is (count != "4"))


class Pipelined:
    """An idempotent producer with five batches in flight. It sends again, in order, what was refused."""

    def __init__(self, cluster: LocalCluster, topic: str, partition: int, total: int) -> None:
        self.expected = [b"%d:%d" % (partition, sequence) for sequence in range(total)]
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._total = total
        self._acknowledged = 0
        self._step = asyncio.Event()
        self._producing = asyncio.create_task(self._produce_all())

    async def _one(self, sequence: int) -> bool:
        data = numbered(sequence, of=self._partition)
        request = produce(self._topic, data, partition=self._partition, acks=-1)
        try:
            leader = self._cluster.leader(self._topic, self._partition)
            code = only_partition(await self._cluster.ask(leader, request, 9)).error_code
        except Exception:
            return False
        assert code in (0, *PASSING, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), ErrorCode(code)
        return bool(code == ErrorCode.NONE)

    async def _produce_all(self) -> None:
        while self._acknowledged < self._total:
            window = range(self._acknowledged, min(self._acknowledged + 5, self._total))
            outcomes = await asyncio.gather(*(self._one(sequence) for sequence in window))
            for is_there in outcomes:
                if not is_there:
                    await asyncio.sleep(0.01)
                    break
                self._acknowledged += 1
            self._step.set()

    async def reach(self, count: int) -> None:
        """Wait until that many batches are acknowledged."""
        async with asyncio.timeout(120):
            while self._acknowledged < count:
                self._step.clear()
                waiting = asyncio.ensure_future(self._step.wait())
                await asyncio.wait((waiting, self._producing), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if self._producing.done():
                    await self._producing

    async def finish(self) -> None:
        await asyncio.wait_for(self._producing, 120)


class HeldHandovers:
    """Batches that a broker hands over to others, and that leave when a test says so."""

    def __init__(self, cluster: LocalCluster, node: int) -> None:
        self._peers: Any = cluster[node].peers
        self._ask = self._peers.ask
        self.count = 0
        """How many are held, or were."""
        self._go = asyncio.Event()

    async def _held(self, node_id: int, request: Any, **how: Any) -> Any:
        if isinstance(request, FoldedProduceRequest):
            self.count += 1
            await self._go.wait()
        return await self._ask(node_id, request, **how)

    def __enter__(self) -> HeldHandovers:
        self._peers.ask = self._held
        return self

    def __exit__(self, *_: object) -> None:
        self._go.set()
        del self._peers.ask
