"""Producers of the workload without transactions: plain ones of every acks setting, and idempotent ones.

Like real ones they keep several batches of a partition under way, send those again whose answers got lost, in
the same order and under the same sequence numbers, without knowing if the first copy arrives, too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TypeAlias

from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode
from forebay.lazy import dataclass
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Client, Failed, Refused, check
from forebay.sim.models.facts import Sent, Transaction, name_of
from forebay.sim.models.messages import Model
from forebay.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL, build_batch
from forebay.wire.compression import Codec
from forebay.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from forebay.wire.records import Record

ACKS_ALL = -1

_IN_FLIGHT_MAX = 5
_PAUSES_S = (0.0, 0.0, 0.002, 0.02)
"""Between the batches of a window."""
_DAY_MS = 86_400_000
_NEW_LIFE_CHANCE = 0.3
_REPEAT_CHANCE = 0.6
_OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
_NOT_APPENDED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)


Outcome: TypeAlias = int | Failed | Refused
"""The end of a batch: its offset, or the reason why it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    at: TopicPartition
    values: tuple[bytes, ...]
    data: bytes
    next_sequence: int
    """The sequence number of the next batch."""


class Producer(Actor):
    """Sends numbered messages to random partitions, without producer id: a retry may duplicate one."""

    acks = ACKS_ALL
    pause_s = 0.7
    exactly_once = False
    batch_records_max = 4

    def __init__(self, client: Client, model: Model, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(client, model)
        client.creates_topics = bool(client.dialect.software)
        self.partitions = list(partitions)
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.transactional_id: str | None = None
        self.value_bytes = 0
        """The minimum size of its values."""
        self.sequences: dict[TopicPartition, int] = {}
        self._numbers: dict[TopicPartition, int] = {}

    async def act(self) -> None:
        while not self.stopping:
            await self.send(self.chance.choice(self.partitions))
            await self.rest(self.pause_s)

    async def send(self, at: TopicPartition, transaction: Transaction | None = None) -> None:
        await self.send_values(at, self.next_values(at), transaction)

    async def send_values(
        self, at: TopicPartition, values: Sequence[bytes], transaction: Transaction | None = None
    ) -> None:
        batch = self.make(at, values, transaction)
        offset = await self.deliver(at, batch.data)
        if offset is not None:
            self.acknowledged(batch, offset)

    def make(
        self, at: TopicPartition, values: Sequence[bytes], transaction: Transaction | None = None
    ) -> Batch:
        """A batch that is going to be sent. The model learns of it here."""
        for value in values:
            self.model.send(
                value,
                Sent(
                    at=at,
                    producer=self.name,
                    number=self.count(at),
                    exactly_once=self.exactly_once,
                    sent_at=self.world.now,
                    transaction=transaction,
                ),
            )
        time_ms, key = self.timestamp_ms(), b"%d" % at[1]
        made = [Record(number, time_ms, key, value) for number, value in enumerate(values)]
        return self.number(at, made, values, transaction)

    def count(self, at: TopicPartition) -> int:
        number = self._numbers[at] = self._numbers.get(at, 0) + 1
        return number

    def number(
        self,
        at: TopicPartition,
        made: Sequence[Record],
        values: Sequence[bytes],
        transaction: Transaction | None,
    ) -> Batch:
        """Make the records a batch, with the next sequence number."""
        sequence = NO_SEQUENCE
        if self.producer_id != NO_PRODUCER_ID:
            sequence = self.sequences.get(at, 0)
            self.sequences[at] = sequence + len(made)
        data = build_batch(
            made,
            codec=self.codec_of(values),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            attributes=0 if transaction is None else TRANSACTIONAL,
        )
        return Batch(at=at, values=tuple(values), data=bytes(data), next_sequence=self.sequences.get(at, 0))

    def codec_of(self, values: Sequence[bytes]) -> int:  # noqa: ARG002 - others compress
        return Codec.NONE

    def acknowledged(self, batch: Batch, offset: int) -> None:
        """Note that a batch was acknowledged, at this offset or, with -1, at an unknown one."""
        if self.acks == ACKS_ALL:
            for delta, value in enumerate(batch.values):
                self.model.acknowledge(value, offset + delta if offset >= 0 else -1)

    def next_values(self, at: TopicPartition) -> list[bytes]:
        first = self._numbers.get(at, 0) + 1
        count = self.chance.randint(1, self.batch_records_max)
        return [self._value(at, number) for number in range(first, first + count)]

    def _value(self, at: TopicPartition, number: int) -> bytes:
        value = f"{self.name}/{name_of(at)}/{number}/{self.chance.getrandbits(32):08x}".encode()
        return value.ljust(self.value_bytes, b".")

    def timestamp_ms(self) -> int:
        return self.now_ms()

    async def deliver(self, at: TopicPartition, batch: bytes) -> int | None:
        """The offset; None if it is not known that the message arrived."""
        return await self.retry(lambda: self.client.produce(at, batch, acks=self.acks))

    # -- several batches under way -------------------------------------------------------------------------

    def window(self, at: TopicPartition, transaction: Transaction | None = None) -> list[Batch]:
        count = self.chance.randint(1, _IN_FLIGHT_MAX)
        return [self.make(at, self.next_values(at), transaction) for _ in range(count)]

    async def attempt(self, at: TopicPartition, window: Sequence[Batch]) -> list[Batch]:
        """Send the batches in sequence; returns those that have to be sent again."""
        first = window[0]
        try:
            await self.client.reach_leader(at)
        except Failed:
            return list(window)
        outcomes = await asyncio.gather(*self._ask_in_turn(at, window))
        left = []
        for batch, outcome in zip(window, outcomes, strict=True):
            if isinstance(outcome, int):
                self.acknowledged(batch, outcome)
                continue
            left.append(batch)
            # A batch behind one that has not arrived is out of order, and is sent again with it.
            if isinstance(outcome, Refused) and (outcome.code is not _OUT_OF_ORDER or batch is first):
                self.refused(outcome)
        self._check_order(outcomes)
        return left

    def _check_order(self, outcomes: Sequence[Outcome]) -> None:
        """librdkafka would begin a new epoch, and store messages twice that are under way elsewhere."""
        for before, outcome in pairwise(outcomes):
            if (
                isinstance(outcome, Refused)
                and outcome.code is _OUT_OF_ORDER
                and isinstance(before, Failed)
                and before.code in _NOT_APPENDED
            ):
                self.world.fail(f"{self.name}: out of order behind a batch that was refused with {before}")

    def _ask_in_turn(self, at: TopicPartition, window: Sequence[Batch]) -> list[Awaitable[Outcome]]:
        """Send one batch after the other, mostly without a pause, until one of them is refused."""
        pause_s = self.chance.choice(_PAUSES_S)
        heard: list[Outcome] = []

        async def ask(turn: int, batch: Batch) -> Outcome:
            if pause_s:
                await asyncio.sleep(turn * pause_s)
            if any(not isinstance(outcome, int) for outcome in heard):
                return Failed("not sent")
            outcome = await self._ask(at, batch)
            heard.append(outcome)
            return outcome

        return [ask(turn, batch) for turn, batch in enumerate(window)]

    async def _ask(self, at: TopicPartition, batch: Batch) -> Outcome:
        try:
            return await self.client.produce(
                at, batch.data, acks=self.acks, transactional_id=self.transactional_id
            )
        except Failed as failed:
            return failed
        except Refused as refused:
            return -1 if refused.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER else refused

    def refused(self, refusal: Refused) -> None:
        """Note that a batch was refused for good."""
        self.world.fail(f"{self.name}, which makes no mistakes, was refused: {refusal}")


class NoAcksProducer(Producer):
    acks = 0
    pause_s = 1.0

    async def deliver(self, at: TopicPartition, batch: bytes) -> int | None:
        with suppress(Failed):
            await self.client.produce_and_forget(at, batch)
        return None


class IdempotentProducer(Producer):
    """Exactly once, and in order, over any number of retries."""

    exactly_once = True

    async def act(self) -> None:
        await self.retry(self._init)
        await super().act()

    async def _init(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        version = self.client.dialect.init_producer_id
        response = await self.client.ask_any(request, InitProducerIdResponse, version)
        check(response.error_code)
        self.model.producer_ids.give(response.producer_id, self.name)
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

    async def deliver(self, at: TopicPartition, batch: bytes) -> int | None:
        try:
            return await super().deliver(at, batch)
        except Refused as refused:
            if refused.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self.refused(refused)
            return -1


class ShortLivedProducer(IdempotentProducer):
    """Becomes another producer after a few batches, like short-lived jobs."""

    pause_s = 0.3

    async def send(self, at: TopicPartition, transaction: Transaction | None = None) -> None:
        if self.chance.random() < _NEW_LIFE_CHANCE:
            self.sequences.clear()
            await self.retry(self._init)
        await super().send(at, transaction)


class PipeliningProducer(IdempotentProducer):
    """Several batches of a partition under way, of messages that are days old, as when a topic is replayed.

    Unacknowledged batches are sent again in order. The first copies may still arrive.
    """

    pause_s = 1.2

    async def send(self, at: TopicPartition, transaction: Transaction | None = None) -> None:
        window = self.window(at, transaction)
        while window:
            window = await self.attempt(at, window)
            if window:
                await self.rest(0.2)

    def timestamp_ms(self) -> int:
        return self.now_ms() - 3 * _DAY_MS


class LatePipeliningProducer(PipeliningProducer):
    """Later sends windows again that were acknowledged, as if all answers had been lost.

    A partition recognises as many batches as a producer may have in flight, wherever its messages go by then.
    """

    pause_s = 0.2
    repeats_within_s = math.inf
    """How long after it was sent. A closed partition that is gone recognises nothing."""

    def __init__(self, client: Client, model: Model, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(client, model, partitions)
        self._sent: dict[TopicPartition, tuple[float, list[Batch]]] = {}

    def window(self, at: TopicPartition, transaction: Transaction | None = None) -> list[Batch]:
        window = super().window(at, transaction)
        self._sent[at] = self.world.now, window
        return window

    async def send(self, at: TopicPartition, transaction: Transaction | None = None) -> None:
        if self.chance.random() < _REPEAT_CHANCE:
            sent_s, window = self._sent.get(at, (0.0, []))
            for batch in window:
                await self._repeat(batch, sent_s + self.repeats_within_s)
        else:
            await super().send(at, transaction)

    async def _repeat(self, batch: Batch, end_s: float) -> None:
        while self.world.now < end_s:
            outcome = await self._ask(batch.at, batch)
            if isinstance(outcome, int):
                return
            if isinstance(outcome, Refused) and self.world.now < end_s:
                self.refused(outcome)
            await self.rest(0.2)


class RepeatingProducer(IdempotentProducer):
    """Sends most batches twice, identical to the last byte, like a client whose answers get lost.

    Like every client it retries refused batches, too: with the same broker, if that still seems to lead. It
    uses acks=1 where unclean elections happen: an acknowledged batch may be lost, and its sequence number
    with it.
    """

    acks = 1
    pause_s = 0.4
    exactly_once = False

    async def deliver(self, at: TopicPartition, batch: bytes) -> int | None:
        try:
            await self.retry(lambda: self.client.produce(at, batch, acks=self.acks))
            while self.chance.random() < _REPEAT_CHANCE:
                await self.retry(lambda: self.client.produce(at, batch, acks=self.acks))
        except Refused:
            self.sequences.clear()
            await self.retry(self._init)
        return None
