"""Producers of the workload: plain ones of every acks setting, idempotent ones, and transactional ones."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.errors import ErrorCode
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import TRANSACTION, Client, Failed, Refused, TopicPartition, check
from forebay.sim.models.messages import Model, Outcome, Sent, Transaction, name_of
from forebay.sim.world.virtual_time import World
from forebay.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL, build_batch
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from forebay.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from forebay.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from forebay.wire.records import Record

ACKS_ALL = -1

_ADD_PARTITIONS_VERSION = 3
_END_TXN_VERSION = 3
_BATCH_RECORDS_MAX = 4
_END_ATTEMPTS_MAX = 20


class Producer(Actor):
    """Sends numbered messages to random partitions. This one has no id: a retry may double a message."""

    acks = ACKS_ALL
    pause_s = 0.7
    retries = True
    exactly_once = False

    def __init__(
        self, world: World, client: Client, model: Model, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(world, client, model)
        self.partitions = list(partitions)
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.sequences: dict[TopicPartition, int] = {}
        self._numbers: dict[TopicPartition, int] = {}

    async def act(self) -> None:
        while not self.stopping:
            await self.send(self.chance.choice(self.partitions))
            await self.rest(self.pause_s)

    async def send(self, at: TopicPartition, transaction: Transaction | None = None) -> None:
        values = [self._next_value(at) for _ in range(self.chance.randint(1, _BATCH_RECORDS_MAX))]
        await self.send_values(at, values, transaction)

    async def send_values(
        self, at: TopicPartition, values: Sequence[bytes], transaction: Transaction | None = None
    ) -> None:
        for value in values:
            number = self._numbers[at] = self._numbers.get(at, 0) + 1
            self.model.send(
                value,
                Sent(
                    at=at,
                    producer=self.name,
                    number=number,
                    exactly_once=self.exactly_once,
                    transaction=transaction,
                ),
            )
        batch = bytes(self._batch(at, values, 0 if transaction is None else TRANSACTIONAL))
        offset = await self.deliver(at, batch)
        if offset is not None and self.acks == ACKS_ALL:
            for delta, value in enumerate(values):
                self.model.acknowledge(value, offset + delta if offset >= 0 else -1)

    def _next_value(self, at: TopicPartition) -> bytes:
        number = self._numbers.get(at, 0) + 1
        return f"{self.name}/{name_of(at)}/{number}/{self.chance.getrandbits(32):08x}".encode()

    def _batch(self, at: TopicPartition, values: Sequence[bytes], attributes: int) -> bytearray:
        sequence = NO_SEQUENCE
        if self.producer_id != NO_PRODUCER_ID:
            sequence = self.sequences.get(at, 0)
            self.sequences[at] = sequence + len(values)
        return build_batch(
            [Record(number, self.now_ms(), b"%d" % at[1], value) for number, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            attributes=attributes,
        )

    async def deliver(self, at: TopicPartition, batch: bytes) -> int | None:
        """The offset, or None if it is not known whether the message arrived."""
        return await self.retry(lambda: self.client.produce(at, batch, acks=self.acks))


class LeaderAcksProducer(Producer):
    """acks=1: what is acknowledged may be lost with its leader, so an acknowledge promises nothing here."""

    acks = 1
    pause_s = 1.0


class NoAcksProducer(Producer):
    acks = 0
    pause_s = 1.0

    async def deliver(self, at: TopicPartition, batch: bytes) -> int | None:
        try:
            await self.client.produce_and_forget(at, batch)
        except Failed:
            return None
        return None


class IdempotentProducer(Producer):
    """Once, and in order, over any number of retries."""

    exactly_once = True

    async def act(self) -> None:
        await self.retry(self._init)
        await super().act()

    async def _init(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        response = await self.client.ask_any(request, InitProducerIdResponse)
        check(response.error_code)
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

    async def deliver(self, at: TopicPartition, batch: bytes) -> int | None:
        try:
            return await super().deliver(at, batch)
        except Refused as refused:
            if refused.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self.world.fail(f"{self.name}, which makes no mistakes, was refused: {refused}")
            return -1


class TransactionalProducer(Producer):
    """Transactions over several partitions, some of them given up; after any trouble it begins again."""

    pause_s = 0.9
    exactly_once = (
        False  # what was in an aborted transaction is there and not seen: order is checked elsewhere
    )
    timeout_ms = 8_000

    def __init__(
        self, world: World, client: Client, model: Model, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(world, client, model, partitions)
        self._transactions = 0

    async def act(self) -> None:
        while not self.stopping:
            await self.retry(self.init, self._forget_coordinator)
            try:
                while not self.stopping:
                    await self.transaction()
                    await self.rest(self.pause_s)
            except (Failed, Refused):
                self._forget_coordinator()

    def _forget_coordinator(self) -> None:
        self.client.forget_coordinator(TRANSACTION, self.name)

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self.timeout_ms)
        response = await self.client.ask_coordinator(TRANSACTION, self.name, request, InitProducerIdResponse)
        check(response.error_code)
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self.sequences.clear()

    async def transaction(self) -> None:
        transaction = self.begin()
        try:
            await self.fill(transaction)
        except (Failed, Refused):
            self.model.end(transaction, Outcome.ABORTED)
            raise
        await self.end(transaction, commit=self.chance.random() < 0.75)

    def begin(self) -> Transaction:
        self._transactions += 1
        return self.model.begin(f"{self.name}/{self._transactions}")

    async def fill(self, transaction: Transaction) -> None:
        chosen = self.chance.sample(self.partitions, self.chance.randint(1, min(3, len(self.partitions))))
        await self.add_partitions(chosen)
        for at in chosen:
            await self.send(at, transaction)

    async def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
            ],
        )
        response = await self.client.ask_coordinator(
            TRANSACTION, self.name, request, AddPartitionsToTxnResponse, _ADD_PARTITIONS_VERSION
        )
        for found in response.results_by_topic_v3_and_below:
            for result in found.results_by_partition:
                check(result.partition_error_code)

    async def deliver(self, at: TopicPartition, batch: bytes) -> int | None:
        """One retry or two, then the transaction is given up."""
        for attempt in range(3):
            try:
                return await self.client.produce(at, batch, acks=self.acks, transactional_id=self.name)
            except Failed:
                if attempt == 2:
                    raise
                await self.rest(0.2)
            except Refused as refused:
                if refused.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    raise
                return -1
        return None

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        self.model.end(transaction, Outcome.COMMIT_ASKED if commit else Outcome.ABORTED)
        for _ in range(_END_ATTEMPTS_MAX):
            try:
                await self._end_once(commit=commit)
                break
            except Failed:
                self._forget_coordinator()
                await self.rest(0.2)
        else:
            raise Failed("the transaction could not be ended")
        if commit:
            self.model.end(transaction, Outcome.COMMITTED)

    async def _end_once(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        response = await self.client.ask_coordinator(
            TRANSACTION, self.name, request, EndTxnResponse, _END_TXN_VERSION
        )
        check(response.error_code)
