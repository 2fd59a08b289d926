"""Writers of a compacted topic: a few keys, written again and again, and deleted now and then."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from zlib import crc32

from forebay.core.topic_partition import TopicPartition
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Client
from forebay.sim.actors.producers.plain import Batch, PipeliningProducer, Producer
from forebay.sim.actors.producers.transactional import ContinuingProducer
from forebay.sim.actors.reading import shown_records
from forebay.sim.models.facts import Transaction
from forebay.sim.models.keyed import Write
from forebay.sim.models.messages import Model
from forebay.wire.compression import Codec
from forebay.wire.records import Record

_KEYS = 4
_DELETION_CHANCE = 0.2
_VALUE_BYTES = (40, 400)


class KeyedWriter(Producer):
    """The common base of both kinds of writers: the model records keys, not messages."""

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
            key = self.next_key(at)
            write = Write(
                value=b"" if self.chance.random() < _DELETION_CHANCE else value, transaction=transaction
            )
            self.tell(at, key, write)
            made.append(Record(number, self.timestamp_ms(), key, write.value or None))
            writes.append(write)
        batch = self.number(at, made, values, transaction)
        self._writes[batch] = writes
        return batch

    def next_key(self, _at: TopicPartition) -> bytes:
        return b"%s/%d" % (self.name.encode(), self.chance.randrange(_KEYS))

    def tell(self, at: TopicPartition, key: bytes, write: Write) -> None:
        self.model.keyed.send(at, key, write)

    def codec_of(self, values: Sequence[bytes]) -> int:
        """Some compress what compaction and folding then have to unpack."""
        return Codec.GZIP if crc32(values[0]) % 2 else Codec.NONE

    def next_values(self, at: TopicPartition) -> list[bytes]:
        """Large ones, so that segments are full after a few."""
        return [value.ljust(self.chance.randrange(*_VALUE_BYTES), b".") for value in super().next_values(at)]

    def acknowledged(self, batch: Batch, offset: int) -> None:
        writes = self._writes.pop(batch)
        if offset >= 0:
            for delta, write in enumerate(writes):
                write.offset = offset + delta


class KeyedProducer(KeyedWriter, PipeliningProducer):
    pause_s = 0.5


class KeyedTransactions(KeyedWriter, ContinuingProducer):
    def acknowledged(self, batch: Batch, offset: int) -> None:
        KeyedWriter.acknowledged(self, batch, offset)
        self.note_sequence(batch)


class FoldedWriter(KeyedWriter):
    """Writes to a topic that gets fewer partitions: each key belongs to one of the original ones."""

    def next_key(self, at: TopicPartition) -> bytes:
        return b"%s/%d/%d" % (self.name.encode(), at[1], self.chance.randrange(_KEYS))

    def tell(self, at: TopicPartition, key: bytes, write: Write) -> None:
        self.model.folded_keys.send(at, key, write)


class FoldedKeyProducer(FoldedWriter, KeyedProducer):
    pass


class FoldedKeyTransactions(FoldedWriter, KeyedTransactions):
    pass


class KeyedAuditor(Actor):
    """Reads a compacted partition from its start at the end of the story."""

    def __init__(self, client: Client, model: Model, at: TopicPartition) -> None:
        super().__init__(client, model)
        self._at = at

    async def act(self) -> None:
        found = {key: (offset, value) for offset, key, value in await read_keys(self, self._at)}
        self.model.keyed.finish(self._at, found)


class FoldedKeysAuditor(Actor):
    """Reads the partitions that a compacted topic has kept, at the end of the story."""

    def __init__(self, client: Client, model: Model, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(client, model)
        self._partitions = partitions

    async def act(self) -> None:
        for at in self._partitions:
            found = [(key, value) for _, key, value in await read_keys(self, at)]
            self.model.folded_keys.finish(at, len(self._partitions), found)


async def read_keys(actor: Actor, at: TopicPartition) -> list[tuple[int, bytes, bytes]]:
    """All committed messages of a partition, from its start: offset, key and value."""
    found: list[tuple[int, bytes, bytes]] = []
    offset = 0
    while True:
        fetch = partial(actor.client.fetch, at, offset, committed=True, max_wait_ms=10)
        data = await actor.retry(fetch)
        shown, offset = shown_records(data, offset, committed=True)
        found += [(record.offset, bytes(record.key or b""), bytes(record.value or b"")) for record in shown]
        if offset >= data.high_watermark:
            return found
