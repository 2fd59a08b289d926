"""What tests of transactions over several brokers share: a producer, and what happens to its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from forebay.clock import SystemClock
from forebay.errors import ErrorCode
from forebay.wire.batch import TRANSACTIONAL, build_batch, split
from forebay.wire.coordinator_partition import partition_for
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.list_transactions import ListTransactionsRequest
from forebay.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from forebay.wire.records import Record
from support.brokers.local_cluster import LocalCluster, retried
from support.clients.wire_client import create_topic, fetch, only_partition, produce, values_of

TRANSACTIONS = "__transaction_state"
OFFSETS = "__consumer_offsets"
ID = "payments"
GROUP = "orders"
EPOCH_PER_TXN = 5
"""EndTxn from this version on ends a transaction of version 2."""
COME_BACK = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
MOVED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.LEADER_NOT_AVAILABLE,
)


@dataclass
class Producer:
    """What a client library does for a transactional producer, one partition at a time."""

    cluster: LocalCluster
    topic: str
    transactional_id: str = ID
    adds_itself: bool = False
    """Transaction version 2: Produce and TxnOffsetCommit add their partitions."""
    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)
    time_ms: int = field(default_factory=SystemClock().now_ms)
    """Of all its messages: what is sent again has the same bytes."""

    @property
    def home(self) -> int:
        return self.cluster.leader(TRANSACTIONS, partition_for(self.transactional_id, 4))

    async def begin(self) -> None:
        await find_coordinator(self.cluster, 1, self.transactional_id)
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)

        async def attempt() -> tuple[Any, int]:
            response = await self.cluster.ask(self.home, request, 4)
            return response, response.error_code

        response = await retried(attempt, *COME_BACK)
        assert response.error_code == ErrorCode.NONE
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self.sequences.clear()

    async def add(self, *partitions: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=list(partitions))],
        )

        async def attempt() -> tuple[Any, int]:
            response = await self.cluster.ask(self.home, request, 3)
            (topic,) = response.results_by_topic_v3_and_below
            return topic, topic.results_by_partition[0].partition_error_code

        added = await retried(attempt, *COME_BACK)
        assert {each.partition_error_code for each in added.results_by_partition} == {ErrorCode.NONE}

    async def send(self, partition: int, value: bytes, *, retry: bool = True) -> int:
        """The error code of sending one message."""
        sequence = self.sequences.get(partition, 0)
        data = bytes(
            build_batch(
                [Record(0, self.time_ms, None, value)],
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=sequence,
                attributes=TRANSACTIONAL,
            )
        )
        request = produce(
            self.topic, data, partition=partition, acks=-1, transactional_id=self.transactional_id
        )

        async def attempt() -> tuple[int, int]:
            leader = self.cluster.leader(self.topic, partition)
            response = await self.cluster.ask(leader, request, 12 if self.adds_itself else 11)
            code: int = only_partition(response).error_code
            return code, code

        code: int = await retried(attempt, *(MOVED if retry else ()))
        if code == ErrorCode.NONE:
            self.sequences[partition] = sequence + 1
        return code

    async def send_offset(self, offset: int, version: int = 3, *, retry: bool = True) -> int:
        """The error code of committing a group's offset as part of the transaction."""
        await find_coordinator(self.cluster, 0, GROUP)
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )

        async def attempt() -> tuple[int, int]:
            response = await self.cluster.ask(group_home(self.cluster), request, version)
            code: int = response.topics[0].partitions[0].error_code
            return code, code

        code: int = await retried(attempt, *(COME_BACK if retry else ()))
        return code

    async def add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=GROUP,
        )

        async def attempt() -> tuple[int, int]:
            code: int = (await self.cluster.ask(self.home, request, 3)).error_code
            return code, code

        assert await retried(attempt, *COME_BACK) == ErrorCode.NONE

    async def end(self, *, commit: bool = True) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )

        async def attempt() -> tuple[Any, int]:
            response = await self.cluster.ask(self.home, request, EPOCH_PER_TXN if self.adds_itself else 3)
            return response, response.error_code

        response = await retried(attempt, *COME_BACK)
        assert response.error_code == ErrorCode.NONE
        if self.adds_itself:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()


def group_home(cluster: LocalCluster) -> int:
    return cluster.leader(OFFSETS, partition_for(GROUP, 4))


async def find_coordinator(cluster: LocalCluster, key_type: int, key: str) -> None:
    """Have the internal topic made, and wait until every broker has opened what it holds of it."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])

    async def attempt() -> tuple[int, int]:
        (found,) = (await cluster.ask(cluster.nodes[0], request, 6)).coordinators
        return found.error_code, found.error_code

    assert await retried(attempt, *COME_BACK) == ErrorCode.NONE
    await cluster.knows((OFFSETS, TRANSACTIONS)[key_type])


async def make_topic(cluster: LocalCluster, partitions: int = 3) -> str:
    name = "events"
    (made,) = (await cluster.ask(1, create_topic(name, partitions), 7)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(name)
    return name


async def read_committed(cluster: LocalCluster, topic: str, partition: int) -> list[bytes]:
    """What readers of committed messages see, once every transaction there is decided."""

    async def attempt() -> tuple[Any, int]:
        leader = cluster.leader(topic, partition)
        request = fetch(topic, partitions=[partition], isolation_level=1)
        data = only_partition(await cluster.ask(leader, request, 12))
        end = cluster[leader].partitions.get(topic, partition).log.end_offset
        settled = data.last_stable_offset == data.high_watermark == end
        return data, data.error_code if settled else ErrorCode.OFFSET_NOT_AVAILABLE

    data = await retried(attempt, *MOVED, ErrorCode.OFFSET_NOT_AVAILABLE)
    assert data.error_code == ErrorCode.NONE
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
    buffer = memoryview(data.records)
    values: list[bytes] = []
    ignored: set[int] = set()
    for position, header in split(buffer):
        while aborted and aborted[0][0] <= header.base_offset:
            ignored.add(aborted.pop(0)[1])
        if header.is_control:
            ignored.discard(header.producer_id)
        elif header.producer_id not in ignored:
            batch = buffer[position : position + header.size]
            values += [value for _, value in values_of(batch) if value is not None]
    return values


async def spread(cluster: LocalCluster, topic: str, partitions: Iterable[int]) -> None:
    """Give each partition another leader, so that every broker takes part."""
    for partition in partitions:
        await cluster.lead(topic, partition, partition + 1)


async def states(cluster: LocalCluster, node: int) -> list[str]:
    listed = await cluster.ask(node, ListTransactionsRequest(), 0)
    return [each.transaction_state for each in listed.transaction_states]


async def take_leader(cluster: LocalCluster, topic: str, partition: int) -> None:
    """Leave a partition as if its only in-sync replica were on a broker that has gone."""
    await cluster.change(topic, partition, leader=-1, isr=(99,))


async def give_leader(cluster: LocalCluster, topic: str, partition: int, node: int) -> None:
    state = cluster.state(topic, partition)
    alive = tuple(replica for replica in state.replicas if replica in cluster.nodes)
    await cluster.change(topic, partition, leader=node, isr=alive, leader_epoch=state.leader_epoch + 1)
