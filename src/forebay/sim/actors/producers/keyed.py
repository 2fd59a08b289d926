"""Writers of a compacted topic: a few keys, written again and again, and deleted now and then."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from forebay.core.topic_partition import TopicPartition
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Client
from forebay.sim.actors.producers.plain import Batch, PipeliningProducer, Producer
from forebay.sim.actors.producers.transactional import ContinuingProducer
from forebay.sim.actors.reading import shown_records
from forebay.sim.models.facts import Transaction
from forebay.sim.models.keyed import Write
from forebay.sim.models.messages import Model
from forebay.wire.records import Record

_KEYS = 4
_DELETION_CHANCE = 0.2
_VALUE_BYTES = (40, 400)


class KeyedWriter(Producer):
    """What both kinds of writers have in common: the model records keys, not messages."""

    def __init__(self, client: Client, model: Model, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(client, model, partitions)
        self._writes: dict[Batch, list[Write]] = {}

    def make(
        self, at: TopicPartition, values: Sequence[bytes], transaction: Transaction | None = None
    ) -> Batch:
        made: list[Record] = []
        writes: list[Write] = []
        for number, value in enumerate(values):
            self.count(at)
            key = b"%s/%d" % (self.name.encode(), self.chance.randrange(_KEYS))
            write = Write(
                value=b"" if self.chance.random() < _DELETION_CHANCE else value, transaction=transaction
            )
            self.model.keyed.send(at, key, write)
            made.append(Record(number, self.timestamp_ms(), key, write.value or None))
            writes.append(write)
        batch = self.number(at, made, values, transaction)
        self._writes[batch] = writes
        return batch

    def next_values(self, at: TopicPartition) -> list[bytes]:
        """Large ones, so that segments are full after a few."""
        return [value.ljust(self.chance.randrange(*_VALUE_BYTES), b".") for value in super().next_values(at)]

    def settled(self, batch: Batch, offset: int) -> None:
        writes = self._writes.pop(batch)
        if offset >= 0:
            for delta, write in enumerate(writes):
                write.offset = offset + delta


class KeyedProducer(KeyedWriter, PipeliningProducer):
    pause_s = 0.5


class KeyedTransactions(KeyedWriter, ContinuingProducer):
    def settled(self, batch: Batch, offset: int) -> None:
        KeyedWriter.settled(self, batch, offset)
        self.note_sequence(batch)


class KeyedAuditor(Actor):
    """Reads a compacted partition from its start at the end of the story."""

    def __init__(self, client: Client, model: Model, at: TopicPartition) -> None:
        super().__init__(client, model)
        self._at = at

    async def act(self) -> None:
        found: dict[bytes, tuple[int, bytes]] = {}
        offset = 0
        while True:
            fetch = partial(self.client.fetch, self._at, offset, committed=True, max_wait_ms=10)
            data = await self.retry(fetch)
            shown, offset = shown_records(data, offset, committed=True)
            for record in shown:
                found[bytes(record.key or b"")] = (record.offset, bytes(record.value or b""))
            if offset >= data.high_watermark:
                break
        self.model.keyed.finish(self._at, found)
