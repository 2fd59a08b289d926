"""Readers of the workload: consumers of every isolation level, keepers of group offsets, and transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from forebay.broker.ports import Address
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import GROUP, TRANSACTION, Client, Failed, Refused, check
from forebay.sim.actors.producers.transactional import TransactionalProducer
from forebay.sim.actors.reading import messages
from forebay.sim.models.facts import Transaction, TransactionOutcome, name_of
from forebay.sim.models.messages import Model
from forebay.sim.world.places import BRIEF
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from forebay.wire.messages.fetch import PartitionData
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from forebay.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_FETCHED_BY_GROUP_FROM = 8
_RETENTION_MS = 2**63 - 1
"""Old clients say how long an offset is kept. The largest value is legal."""
_TRANSFORM_MESSAGES_MAX = 5


class Consumer(Actor):
    """Reads partitions from their start, and continues at its position."""

    max_wait_ms = 0
    pause_s = 1.0

    def __init__(
        self, client: Client, model: Model, partitions: Sequence[TopicPartition], *, committed: bool
    ) -> None:
        super().__init__(client, model)
        self.partitions = list(partitions)
        self.committed = committed
        self.positions: dict[TopicPartition, int] = {}

    @property
    def is_finished(self) -> bool:
        return self.stopping

    async def act(self) -> None:
        while not self.is_finished:
            for leader, partitions in (await self._by_leader()).items():
                await self._read(leader, partitions)
            await self.rest(self.pause_s)

    async def _by_leader(self) -> dict[Address, list[TopicPartition]]:
        found: dict[Address, list[TopicPartition]] = {}
        for at in self.partitions:
            try:
                leader, _ = await self.client.leader(at)
                found.setdefault(leader, []).append(at)
            except Failed:
                continue
        return found

    async def _read(self, leader: Address, partitions: Sequence[TopicPartition]) -> None:
        offsets = {at: self.positions.get(at, 0) for at in partitions}
        try:
            found = await self.client.fetch_from(
                leader, offsets, committed=self.committed, max_wait_ms=self.max_wait_ms
            )
        except Failed:
            return
        for at, data in found.items():
            try:
                check(data.error_code)
                self.show(leader, at, data)
            except Failed:
                continue
            except Refused as refused:
                await self._recover(at, refused)

    def show(self, _leader: Address, at: TopicPartition, data: PartitionData) -> None:
        """Report a leader's answer to the model."""
        shown, self.positions[at] = messages(data, self.positions.get(at, 0), committed=self.committed)
        for place, value in shown:
            self.model.read(self.name, at, place, value, committed=self.committed)

    async def _recover(self, at: TopicPartition, refused: Refused) -> None:
        """Continue at the start of the partition, if what is missing may have been deleted or lost."""
        offset = self.positions.get(at, 0)
        if at in self.model.folds.removed.positions:
            self.partitions.remove(at)  # it is read by another, and goes
            return
        start = 0
        if refused.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await self.retry(partial(self.client.earliest, at))
        # A new leader may not have deleted yet what the previous one had deleted.
        if start <= offset and at in self.model.lasting and at != BRIEF:
            self.world.fail(f"{self.name} at {name_of(at, offset)}, to which it has read: {refused}")
        self.positions[at] = start


class OffsetKeeper(Actor):
    """A group of one that commits growing offsets and checks that they are kept."""

    def __init__(self, client: Client, model: Model, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(client, model)
        self.partitions = list(partitions)
        self._offset = 0

    async def act(self) -> None:
        while not self.stopping:
            at = self.chance.choice(self.partitions)
            self._offset += 1
            offset = self._offset
            self.model.groups.asked(self.name, at, offset)
            await self.retry(lambda at=at, offset=offset: self._commit(at, offset), self._forget)  # type: ignore[misc]
            await self.rest(1.2)
            at = self.chance.choice(self.partitions)
            await self.retry(lambda at=at: fetch_offset(self, self.name, at), self._forget)  # type: ignore[misc]
            await self.rest(1.2)

    def _forget(self) -> None:
        self.client.forget_coordinator(GROUP, self.name)

    async def _commit(self, at: TopicPartition, offset: int) -> None:
        partition = OffsetCommitRequestPartition(
            partition_index=at[1], committed_offset=offset, committed_metadata=None
        )
        request = OffsetCommitRequest(
            group_id=self.name,
            retention_time_ms=_RETENTION_MS,
            topics=[OffsetCommitRequestTopic(name=at[0], partitions=[partition])],
        )
        response = await self.client.ask_coordinator(
            GROUP, self.name, request, OffsetCommitResponse, self.client.dialect.offset_commit
        )
        check(response.topics[0].partitions[0].error_code)
        self.model.groups.committed(self.name, at, offset)


async def fetch_offset(actor: Actor, group: str, at: TopicPartition) -> int:
    """Fetch a group's committed offset, -1 for none, and compare it with earlier commits."""
    floor = actor.model.groups.floor(group, at)
    version = actor.client.dialect.offset_fetch
    request = _offset_request(group, at)
    response = await actor.client.ask_coordinator(GROUP, group, request, OffsetFetchResponse, version)
    found = response.groups[0] if version >= _FETCHED_BY_GROUP_FROM else response
    check(found.error_code)
    partition = found.topics[0].partitions[0]
    check(partition.error_code)
    actor.model.groups.fetched(group, at, partition.committed_offset, floor)
    return partition.committed_offset


def _offset_request(group: str, at: TopicPartition) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(name=at[0], partition_indexes=[at[1]])
    return OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=at[0], partition_indexes=[at[1]])],
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])],
        require_stable=True,
    )


def transformed(value: bytes, transaction: Transaction) -> bytes:
    """Every attempt writes another value, so that the one that is read can be recognised."""
    return value + b"#" + transaction.name.encode()


class Transformer(TransactionalProducer):
    """Consume, transform, produce: each message of the source is seen exactly once in the target."""

    pause_s = 0.5

    def __init__(self, client: Client, model: Model, source: TopicPartition, target: TopicPartition) -> None:
        super().__init__(client, model, [target])
        self.source = source
        self.target = target
        self.group = f"{client.name}-group"
        self.caught_up = False
        self._position = -1

    async def init(self) -> None:
        await super().init()
        self._position = max(await self._committed(), 0)

    async def _committed(self) -> int:
        try:
            return await fetch_offset(self, self.group, self.source)
        except Failed:
            self.client.forget_coordinator(GROUP, self.group)
            raise

    async def transaction(self) -> None:
        found = await self.client.fetch(self.source, self._position, committed=True, max_wait_ms=100)
        shown, position = messages(found, self._position, committed=True)
        self.caught_up = position >= found.last_stable_offset
        if position == self._position:
            return
        shown = shown[:_TRANSFORM_MESSAGES_MAX]
        if len(shown) == _TRANSFORM_MESSAGES_MAX:
            position = shown[-1][0] + 1
        transaction = self.begin()
        try:
            await self.add_partitions([self.target])
            if shown:
                copies = [transformed(value, transaction) for _, value in shown]
                await self.send_values(self.target, copies, transaction)
            await self._send_offset(transaction, position)
        except (Failed, Refused):
            self.model.end(transaction, TransactionOutcome.ABORTED)
            self.client.forget_coordinator(GROUP, self.group)
            raise
        await self.end(transaction, commit=self.chance.random() < 0.85)
        self._position = position if transaction.outcome is TransactionOutcome.COMMITTED else self._position

    async def _send_offset(self, transaction: Transaction, position: int) -> None:
        if not self.second_version:
            await self._add_offsets()
        self.model.groups.asked(self.group, self.source, position)
        partition = TxnOffsetCommitRequestPartition(
            partition_index=self.source[1], committed_offset=position, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self.source[0], partitions=[partition])],
        )
        response = await self.client.ask_coordinator(
            GROUP, self.group, request, TxnOffsetCommitResponse, self.client.dialect.txn_offset_commit
        )
        check(response.topics[0].partitions[0].error_code)
        transaction.offsets[self.group, self.source] = position

    async def _add_offsets(self) -> None:
        added = await self.client.ask_coordinator(
            TRANSACTION,
            self.name,
            AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=self.group,
            ),
            AddOffsetsToTxnResponse,
            self.client.dialect.add_offsets,
        )
        check(added.error_code)
