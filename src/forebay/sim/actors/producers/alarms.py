"""Producers of delayed messages, which they replace and cancel before these are due."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forebay.core.delays.headers import DELIVER_AT, SCHEDULE_KEY
from forebay.core.topic_partition import TopicPartition
from forebay.sim.actors.client import Client
from forebay.sim.actors.producers.plain import Batch, IdempotentProducer, Producer
from forebay.sim.actors.producers.transactional import ContinuingProducer
from forebay.sim.models.alarms import Alarm, Sending
from forebay.sim.models.facts import Transaction
from forebay.sim.models.messages import Model
from forebay.sim.world.places import ALARMS
from forebay.wire.records import Header, Record

_AHEAD_MS = (-300, 4_000)
_KEYS = 3
_KEY_CHANCE = 0.5
_CANCEL_CHANCE = 0.15
_LINGERS_S = (0.0, 3.0)


class _SetsAlarms(Producer):
    latest_ms: Callable[[], int]
    """The latest time that any broker's clock has shown."""

    def __init__(self, client: Client, model: Model, latest_ms: Callable[[], int]) -> None:
        super().__init__(client, model, [ALARMS])
        self.latest_ms = latest_ms
        self._ends: dict[bytes, tuple[Sending, list[Alarm]]] = {}
        """The messages that each batch ends."""

    def make(
        self, at: TopicPartition, values: Sequence[bytes], transaction: Transaction | None = None
    ) -> Batch:
        ends: list[Alarm] = []
        made: list[Record] = []
        sending = self.sending(transaction)
        for value in values:
            self.count(at)
            made.append(self._record(len(made), value, sending, ends))
        batch = self.number(at, made, [record.value or b"" for record in made], transaction)
        self._ends[batch.data] = sending, ends if transaction is None else []
        return batch

    def sending(self, transaction: Transaction | None) -> Sending:
        """The batch or transaction that a batch belongs to."""
        return Sending(transaction)

    def _record(self, number: int, value: bytes, sending: Sending, ends: list[Alarm]) -> Record:
        now_ms, key = self.now_ms(), None
        headers: list[Header] = []
        if self.chance.random() < _KEY_CHANCE:
            key = self._key(self.chance.randrange(_KEYS))
            headers.append((SCHEDULE_KEY, key))
        if key is not None:
            self.ends_under(key, sending)
        if key is not None and self.chance.random() < _CANCEL_CHANCE:
            ends += self.model.alarms.end(key, sending)
            return Record(number, now_ms, value, None, headers)
        due_ms = now_ms + self.chance.randint(*_AHEAD_MS)
        headers.append((DELIVER_AT, str(due_ms).encode()))
        ends += self.model.alarms.schedule(value, due_ms, key, sending.transaction, sending)
        return Record(number, now_ms, value, value, headers)

    def _key(self, number: int) -> bytes:
        owner = "all" if self.model.alarms.shares_keys else self.name
        return b"%s/%d" % (owner.encode(), number)

    def ends_under(self, key: bytes, sending: Sending) -> None:
        """Note that the messages that wait under this key are going to be ended."""

    def acknowledged(self, batch: Batch, offset: int) -> None:
        for number, value in enumerate(batch.values):
            if value:
                self.model.alarms.acknowledge(value, self.latest_ms(), offset + number)
        sending, ends = self._ends.pop(batch.data)
        sending.acknowledged = True
        self.model.alarms.ended(ends, self.latest_ms())


class AlarmSetter(_SetsAlarms, IdempotentProducer):
    pause_s = 0.4


class AlarmTransactions(_SetsAlarms, ContinuingProducer):
    """The same in transactions, which end messages that were sent before they are committed."""

    def __init__(self, client: Client, model: Model, latest_ms: Callable[[], int]) -> None:
        super().__init__(client, model, latest_ms)
        self._sending = Sending()
        self._keys: set[bytes] = set()
        """The keys of the open transaction."""
        self._ended: list[Alarm] = []
        """Messages ended by the last committed transaction. Its markers are written when the next one
        begins."""

    def begin(self) -> Transaction:
        transaction = super().begin()
        self._sending, self._keys = Sending(transaction), set()
        return transaction

    def sending(self, transaction: Transaction | None) -> Sending:
        assert transaction is self._sending.transaction
        return self._sending

    def ends_under(self, key: bytes, sending: Sending) -> None:  # noqa: ARG002 - there is one at a time
        self._keys.add(key)

    def acknowledged(self, batch: Batch, offset: int) -> None:
        super().acknowledged(batch, offset)
        self.model.alarms.ended(self._ended, self.latest_ms())
        self._ended = []

    async def fill(self, transaction: Transaction) -> None:
        await super().fill(transaction)
        if self.model.alarms.shares_keys:  # others send under the same keys meanwhile
            await self.rest(self.chance.uniform(*_LINGERS_S))

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        ends = self.model.alarms.waiting_under(self._keys) if commit else []
        await super().end(transaction, commit=commit)
        self._ended = ends
