"""Transactional producers, by their behaviour after an error.

- `TransactionalProducer` starts anew: it takes the transactional id again, and with it a new epoch.
- `ContinuingProducer` does what librdkafka does. It aborts and continues in the same epoch, and the messages
  of the next transaction reuse the sequence numbers of the aborted ones. Only when a broker says that it does
  not know the producer, or that a number is missing, it asks for the next epoch (KIP-360).
- `BumpingProducer` does what the Java client does: it asks for the next epoch whenever a batch has failed.
- `SlowProducer` starts anew, too, and works for a while before it ends a transaction.

With transaction version 2 (EndTxn 5) each end of a transaction brings the next epoch, and Produce adds the
partitions by itself. The dialect says which version a client speaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.sim.actors.client import TRANSACTION, Client, Failed, Refused, check
from forebay.sim.actors.producers.plain import Batch, Producer
from forebay.sim.models.facts import Transaction, TransactionOutcome
from forebay.sim.models.messages import Model
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from forebay.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from forebay.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_ATTEMPTS_MAX = 3
_END_ATTEMPTS_MAX = 20
_COMMIT_CHANCE = 0.75
_NEXT_EPOCH_FROM = 5
_EXPECTED_EPOCH_FROM = 3
_GIVE_UP_S = (0.001, 0.03)
"""Long enough for a batch to arrive, often not for its answer."""

_NUMBERS_ARE_WRONG = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})


class TransactionalProducer(Producer):
    """Transactions over several partitions, some of them aborted; after any error it begins again."""

    pause_s = 0.9
    exactly_once = (
        False  # what was in an aborted transaction is there and not seen: order is checked elsewhere
    )
    timeout_ms = 8_000

    def __init__(self, client: Client, model: Model, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(client, model, partitions)
        self.transactional_id = client.name
        self._transactions = 0
        self.second_version = client.dialect.end_txn >= _NEXT_EPOCH_FROM
        """True if it speaks transaction version 2."""

    async def act(self) -> None:
        while not self.stopping:
            await self.retry(self.init, self.forget_coordinator)
            try:
                while not self.stopping:
                    await self.transaction()
                    await self.rest(self.pause_s)
            except (Failed, Refused):
                self.forget_coordinator()

    def forget_coordinator(self) -> None:
        self.client.forget_coordinator(TRANSACTION, self.name)

    async def init(self) -> None:
        await self._take_id(
            InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self.timeout_ms)
        )

    async def _take_id(self, request: InitProducerIdRequest) -> None:
        version = self.client.dialect.init_producer_id
        response = await self.client.ask_coordinator(
            TRANSACTION, self.name, request, InitProducerIdResponse, version
        )
        check(response.error_code)
        self._begin_epoch(response.producer_id, response.producer_epoch)

    def _begin_epoch(self, producer_id: int, producer_epoch: int) -> None:
        self.model.producer_ids.give(producer_id, self.name, keeps=True)
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.sequences.clear()

    async def transaction(self) -> None:
        transaction = self.begin()
        try:
            await self.fill(transaction)
        except (Failed, Refused):
            self.model.end(transaction, TransactionOutcome.ABORTED)
            raise
        await self.end(transaction, commit=self.chance.random() < _COMMIT_CHANCE)

    def begin(self) -> Transaction:
        self._transactions += 1
        return self.model.begin(f"{self.name}/{self._transactions}")

    async def fill(self, transaction: Transaction) -> None:
        chosen = self.chance.sample(self.partitions, self.chance.randint(1, min(3, len(self.partitions))))
        await self.add_partitions(chosen)
        for at in chosen:
            await self.send(at, transaction)

    async def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        if self.second_version:
            return
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
        version = self.client.dialect.add_partitions
        response = await self.client.ask_coordinator(
            TRANSACTION, self.name, request, AddPartitionsToTxnResponse, version
        )
        for found in response.results_by_topic_v3_and_below:
            for result in found.results_by_partition:
                check(result.partition_error_code)

    async def deliver(self, at: TopicPartition, batch: bytes) -> int | None:
        """One or two retries, then the transaction is aborted."""
        for attempt in range(_ATTEMPTS_MAX):
            try:
                return await self.client.produce(at, batch, acks=self.acks, transactional_id=self.name)
            except Failed:
                if attempt == _ATTEMPTS_MAX - 1:
                    raise
                await self.rest(0.2)
            except Refused as refused:
                if refused.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    raise
                return -1
        return None

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        self.model.end(transaction, TransactionOutcome.COMMIT_ASKED if commit else TransactionOutcome.ABORTED)
        asked = 0
        while asked < _END_ATTEMPTS_MAX:
            asked += 1
            try:
                await self._end_once(commit=commit)
                break
            except Failed:
                self.forget_coordinator()
                await self.rest(0.2)
        else:
            raise Failed("the transaction could not be ended")
        if commit:
            self.model.end(transaction, TransactionOutcome.COMMITTED)
        if asked > 1 and not self.second_version:
            # A request without an answer may still come, and would end the next transaction of the same
            # epoch, which is why there is version 2 (KIP-890). A new epoch fences it off.
            raise Failed("the end of the transaction was asked for twice")

    async def _end_once(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        version = self.client.dialect.end_txn
        response = await self.client.ask_coordinator(TRANSACTION, self.name, request, EndTxnResponse, version)
        check(response.error_code)
        if self.second_version:
            self._begin_epoch(response.producer_id, response.producer_epoch)


class SlowProducer(TransactionalProducer):
    """Has its transactions open for most of the time: whatever happens meanwhile happens within one."""

    pause_s = 0.2
    _work_s = 1.5

    async def fill(self, transaction: Transaction) -> None:
        await super().fill(transaction)
        await self.rest(self._work_s)


class ContinuingProducer(TransactionalProducer):
    """Aborts a failed transaction and continues: same epoch, and the sequence numbers that it gave up."""

    batch_records_max = 2
    give_up_chance = 0.3
    """The chance of aborting a transaction while batches are in flight."""

    def __init__(self, client: Client, model: Model, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(client, model, partitions)
        self._acknowledged: dict[TopicPartition, int] = {}
        """The sequence number after the last acknowledged batch, by partition."""

    def acknowledged(self, batch: Batch, offset: int) -> None:
        super().acknowledged(batch, offset)
        self.note_sequence(batch)

    def note_sequence(self, batch: Batch) -> None:
        self._acknowledged[batch.at] = batch.next_sequence

    def _begin_epoch(self, producer_id: int, producer_epoch: int) -> None:
        super()._begin_epoch(producer_id, producer_epoch)
        self._acknowledged.clear()

    async def transaction(self) -> None:
        transaction = self.begin()
        problem: Exception | None = None
        try:
            async with asyncio.timeout(self._time_to_give_up()):
                await self.fill(transaction)
        except (Failed, Refused, TimeoutError) as error:
            problem = error
        if problem is None and self.chance.random() < _COMMIT_CHANCE:
            await self.end(transaction, commit=True)
            return
        await self._abort(transaction)
        self.sequences = dict(self._acknowledged)
        if self.wants_next_epoch(problem):
            await self._next_epoch()

    def _time_to_give_up(self) -> float | None:
        if self.chance.random() >= self.give_up_chance:
            return None
        return self.chance.uniform(*_GIVE_UP_S)

    async def send(self, at: TopicPartition, transaction: Transaction | None = None) -> None:
        """Send several batches at once, if a late one cannot be mistaken for one of the next transaction."""
        if not self.second_version:
            return await super().send(at, transaction)
        window = self.window(at, transaction)
        for _ in range(_ATTEMPTS_MAX):
            window = await self.attempt(at, window)
            if not window:
                return None
            await self.rest(0.2)
        raise Failed("not all batches of the transaction were acknowledged")

    def refused(self, refusal: Refused) -> None:
        raise refusal

    async def _abort(self, transaction: Transaction) -> None:
        try:
            await self.end(transaction, commit=False)
        except Refused as refused:
            if refused.code is not ErrorCode.INVALID_TXN_STATE:
                raise  # it was fenced, or its transaction has timed out: it starts anew

    def wants_next_epoch(self, problem: Exception | None) -> bool:
        return isinstance(problem, Refused) and problem.code in _NUMBERS_ARE_WRONG

    async def _next_epoch(self) -> None:
        if self.second_version:
            return  # it has it already
        if self.client.dialect.init_producer_id < _EXPECTED_EPOCH_FROM:
            raise Failed("it cannot say which epoch it has")
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )
        await self.retry(lambda: self._take_id(request), self.forget_coordinator)


class BumpingProducer(ContinuingProducer):
    def wants_next_epoch(self, problem: Exception | None) -> bool:
        return problem is not None


class HastyProducer(ContinuingProducer):
    """Aborts most transactions, and has batches of one size only."""

    batch_records_max = 1
    give_up_chance = 0.7
