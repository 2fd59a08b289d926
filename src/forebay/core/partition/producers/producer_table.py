"""A partition's state of its idempotent producers: which batch must come next, and which are stored already.

A producer numbers its records per partition. The partition takes a batch only when it continues the
numbering, answers a repeated batch with its original offset, and refuses everything else. It remembers the
last five batches of each producer, the most that a client may have in flight.

`producer_admission.py` decides what may be appended; this is the state that it looks at.
`accept` records what has been appended. Replaying the log through `accept` rebuilds the table, so recovery
and normal operation share one code path. A producer that is not known (its state has expired, or its messages
are gone) may start at any number, as in Kafka.

A transactional batch begins a transaction of its producer on the partition, a marker (a control batch that
only transaction coordinators write) ends it.

The snapshot is Kafka's file format, which has each producer's last batch. Forebay writes an entry for each
remembered batch, oldest first. Kafka keeps only the last when it reads the file; Forebay keeps all, so a
client that sends its five batches again after a restart gets five answers and no error.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from struct import Struct
from typing import NamedTuple

from forebay.core.partition.open_transactions import CompletedTxn, OpenTransactions
from forebay.core.partition.producers.repeat_checksums import NO_CRC, has_other_bytes
from forebay.errors import ProtocolError
from forebay.lazy import dataclass
from forebay.wire.batch import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCE_MASK,
    TRANSACTIONAL,
    BatchHeader,
    EndTxnMarker,
    crc32c,
)

BATCHES_RETAINED = 5
PRODUCERS_MAX = 100_000
NO_OFFSET = -1

_VERSION = 1
_PREAMBLE = Struct(">hIi")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")


class AppendedBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True, kw_only=True)
class ProducerState:
    producer_id: int
    producer_epoch: int
    next_sequence: int = 0
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    txn_first_offset: int = NO_OFFSET
    """The first offset of the open transaction."""
    batches: list[AppendedBatch] = field(default_factory=list)
    """The last few, oldest first."""
    crcs: list[int] = field(default_factory=list, compare=False)
    """The checksums of the same batches as the client sent them, as far as known (`repeat_checksums.py`)."""
    was_heard: bool = field(default=True, compare=False)
    """True if anything was appended or sent again since the last `expire`."""
    silent_since_ms: int = field(default=0, compare=False)
    """If False: when `expire` first found nothing new."""

    @property
    def in_transaction(self) -> bool:
        return self.txn_first_offset != NO_OFFSET

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record in this epoch; -1 if there is none."""
        return self.batches[-1].last_sequence if self.batches else self.next_sequence - 1

    @property
    def end_offset(self) -> int:
        """The offset after the last remembered batch."""
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def remembered(self, header: BatchHeader) -> AppendedBatch | None:
        """The batch of this epoch that has the same numbers, if it is one of the last few."""
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.base_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def has_other_bytes(self, batch: AppendedBatch, header: BatchHeader) -> bool:
        """True if a new batch surely differs from the one remembered under its numbers."""
        return has_other_bytes(self.crcs[self.batches.index(batch)], header)

    def begin_epoch(self, epoch: int) -> None:
        self.producer_epoch = epoch
        self.next_sequence = 0
        self.batches.clear()
        self.crcs.clear()

    def remember(self, batch: AppendedBatch, crc: int = NO_CRC) -> None:
        self.batches.append(batch)
        self.crcs.append(crc)
        if len(self.batches) > BATCHES_RETAINED:
            del self.batches[0]
            del self.crcs[0]
        self.next_sequence = (batch.last_sequence + 1) & SEQUENCE_MASK

    def copy(self) -> ProducerState:
        return replace(self, batches=self.batches.copy(), crcs=self.crcs.copy())

    def truncate(self, offset: int) -> None:
        """Forget the batches from this offset on. Numbering is gapless, so it goes back with them."""
        while self.batches and self.batches[-1].last_offset >= offset:
            self.next_sequence = self.batches.pop().base_sequence
            self.crcs.pop()
        if self.txn_first_offset >= offset:
            self.txn_first_offset = NO_OFFSET


class ProducerTable:
    __slots__ = (
        "_before",
        "_producers",
        "_producers_max",
        "find",
        "forgets",
        "transactional",
        "transactions",
    )

    def __init__(self, *, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers: OrderedDict[int, ProducerState] = OrderedDict()
        """Least recently used first: those are evicted when there are too many."""
        self.find: Callable[[int], ProducerState | None] = self._producers.get
        """Return the state of a producer, by its id. An attribute, for the sake of the hot path."""
        self._producers_max = producers_max
        self.forgets = False
        """True if producers were evicted that were not silent for long, because there were too many."""
        self._before: list[tuple[int, int, ProducerState | None]] = []
        """Offset, producer id and the producer's state before the batch there, for batches that may have to
        be undone and do not say enough for it: the first of a producer or an epoch, and markers."""
        self.transactions = OpenTransactions()
        self.transactional = False
        """True if there has been any transaction: if not, there are no open ones to look for."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._producers.values())

    def in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """True if the producer has begun a transaction here, in this epoch."""
        state = self._producers.get(producer_id)
        return state is not None and state.in_transaction and state.producer_epoch == producer_epoch

    def accept_marker(self, header: BatchHeader, marker: EndTxnMarker) -> CompletedTxn | None:
        """Record a marker that has been appended; returns the transaction that it ended, if one was open."""
        self.transactional = True
        state = self._state_of(header, is_marker=True)
        state.last_timestamp = header.max_timestamp
        state.coordinator_epoch = marker.coordinator_epoch
        if not state.in_transaction:
            return None
        state.txn_first_offset = NO_OFFSET
        last_offset = header.base_offset
        first_offset, stable_offset = self.transactions.end(header.producer_id, last_offset)
        return CompletedTxn(header.producer_id, first_offset, last_offset, marker.commit, stable_offset)

    def accept(self, header: BatchHeader) -> None:
        """Record a data batch that has been appended at header.base_offset."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        state = self._state_of(header)
        timestamp = state.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL and not state.in_transaction:
            self.transactional = True
            state.txn_first_offset = header.base_offset
            self.transactions.begin(header.producer_id, header.base_offset)
        sequence, delta = header.base_sequence, header.last_offset_delta
        if sequence != NO_SEQUENCE:
            last_sequence = (sequence + delta) & SEQUENCE_MASK
            last_offset = header.base_offset + delta
            batch = AppendedBatch(sequence, last_sequence, last_offset, delta, timestamp)
            state.remember(batch, header.crc)

    def _state_of(self, header: BatchHeader, *, is_marker: bool = False) -> ProducerState:
        """The state to change for a batch that has been appended, in the epoch of the batch."""
        producers, producer_id = self._producers, header.producer_id
        state = producers.get(producer_id)
        if state is None:
            self._before.append((header.base_offset, producer_id, _awaiting(header, is_marker=is_marker)))
            state = ProducerState(producer_id=producer_id, producer_epoch=header.producer_epoch)
            self._add(state)
            return state
        producers.move_to_end(producer_id)
        state.was_heard = True
        is_new_epoch = state.producer_epoch != header.producer_epoch
        if is_new_epoch or is_marker:
            self._before.append((header.base_offset, producer_id, state.copy()))
            if is_new_epoch:
                state.begin_epoch(header.producer_epoch)
        return state

    def _add(self, state: ProducerState) -> None:
        if len(self._producers) >= self._producers_max:
            self._make_room()
        self._producers[state.producer_id] = state

    def _make_room(self) -> None:
        """Evict the least recently used producers. Those in transactions stay, even if there are too many."""
        while len(self.transactions) < len(self._producers):
            producer_id, state = next(iter(self._producers.items()))
            if not state.in_transaction:
                del self._producers[producer_id]
                self.forgets = True
                return
            self._producers.move_to_end(producer_id)

    def heard(self, producer_id: int) -> None:
        """Note that a producer has sent a batch again: while it does, its state must not be forgotten."""
        state = self._producers.get(producer_id)
        if state is not None:
            self._producers.move_to_end(producer_id)
            state.was_heard = True

    def assume(self, state: ProducerState) -> None:
        """Take over the state of a producer from another partition, if its numbers are unknown here.

        The caller appends the producer's next batch at once, or takes it back.
        """
        if state.producer_id in self._producers:
            self._producers[state.producer_id] = state
        else:
            self._add(state)

    def take_back(self, producer_id: int, state: ProducerState | None) -> None:
        """Undo `assume`: restore the previous state."""
        if state is None:
            self._producers.pop(producer_id, None)
        else:
            self._producers[producer_id] = state

    def expire(self, now_ms: int, expiration_ms: int, high_watermark: int) -> int:
        """Forget producers that were silent for this long and have no open transaction; returns how many.

        `now_ms` may come from any monotonic clock. The timestamps of batches say nothing here: they are the
        client's, and may be years old. A producer's silence counts from the first check that finds nothing
        new, so an append need not read a clock, and state that was loaded is not forgotten at once. A
        producer whose last batch is not committed is not silent: it will send that batch again.
        """
        expired: list[int] = []
        for state in self:
            if state.was_heard or state.end_offset > high_watermark:
                state.was_heard = False
                state.silent_since_ms = now_ms
            elif not state.in_transaction and now_ms - state.silent_since_ms >= expiration_ms:
                expired.append(state.producer_id)
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def forget_idle(self) -> None:
        """Forget all producers that have no open transaction."""
        for producer_id in [state.producer_id for state in self if not state.in_transaction]:
            del self._producers[producer_id]

    def written(self) -> None:
        """Note that everything accepted so far is in the log, and will not be undone by `truncate`."""
        self._before.clear()

    def truncate(self, offset: int) -> None:
        """Undo what was accepted from this offset on, as when a write failed.

        For a producer that was not known before, the table keeps which batch it waits for. Later ones may be
        on their way, and any of them would be taken for the first.
        """
        for changed_at, producer_id, before in reversed(self._before):
            if changed_at < offset:
                break
            if before is None:
                self._producers.pop(producer_id, None)
            else:
                self._producers[producer_id] = before
        self._before.clear()
        self.transactions.undo(offset)
        for state in self:
            state.truncate(offset)
        self._load_transactions()

    def _load_transactions(self) -> None:
        self.transactions.load(
            (state.producer_id, state.txn_first_offset) for state in self if state.in_transaction
        )
        self.transactional = self.transactional or bool(self.transactions)

    def to_bytes(self) -> bytes:
        rows = [row for state in self for row in _rows(state)]
        body = bytearray(_PREAMBLE.pack(_VERSION, 0, len(rows)))
        for row in rows:
            body += _ENTRY.pack(*row)
        _PREAMBLE.pack_into(body, 0, _VERSION, crc32c(memoryview(body)[_CRC_END:]), len(rows))
        return bytes(body)

    @classmethod
    def from_bytes(cls, data: bytes, *, producers_max: int = PRODUCERS_MAX) -> ProducerTable:
        """The table of a snapshot; raises ProtocolError if it is damaged."""
        _check_snapshot(data)
        table = cls(producers_max=producers_max)
        for row in _ENTRY.iter_unpack(data[_PREAMBLE.size :]):
            table._load(*row)
        table._load_transactions()
        table.forgets = len(table) >= producers_max
        return table

    def _load(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp: int,
        coordinator_epoch: int,
        txn_first_offset: int,
    ) -> None:
        state = self._producers.get(producer_id)
        if state is None or state.producer_epoch != epoch:
            # No eviction here: which producers have an open transaction is known only at the end of the
            # snapshot.
            self._producers.pop(producer_id, None)
            state = self._producers[producer_id] = ProducerState(
                producer_id=producer_id, producer_epoch=epoch
            )
        state.last_timestamp = timestamp
        state.coordinator_epoch = coordinator_epoch
        state.txn_first_offset = txn_first_offset
        state.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        if last_offset >= 0:
            base_sequence = (last_sequence - offset_delta) & SEQUENCE_MASK
            state.remember(AppendedBatch(base_sequence, last_sequence, last_offset, offset_delta, timestamp))


def _awaiting(first: BatchHeader, *, is_marker: bool) -> ProducerState | None:
    """The state of a producer whose first batch could not be written; None if it has no numbers."""
    if is_marker or first.base_sequence == NO_SEQUENCE:
        return None
    return ProducerState(
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        next_sequence=first.base_sequence,
    )


def _check_snapshot(data: bytes) -> None:
    if len(data) < _PREAMBLE.size:
        raise ProtocolError("producer snapshot is cut short")
    version, crc, count = _PREAMBLE.unpack_from(data)
    if version != _VERSION:
        raise ProtocolError(f"producer snapshot has version {version}, only {_VERSION} is known")
    if crc != crc32c(memoryview(data)[_CRC_END:]) or len(data) != _PREAMBLE.size + count * _ENTRY.size:
        raise ProtocolError("producer snapshot is damaged")


def _rows(state: ProducerState) -> Iterator[tuple[int, ...]]:
    """A producer's entries in a snapshot, the newest last."""
    head = (state.producer_id, state.producer_epoch)
    tail = (state.coordinator_epoch, state.txn_first_offset)
    for batch in state.batches[:-1]:
        yield *head, batch.last_sequence, batch.last_offset, batch.offset_delta, batch.timestamp, *tail
    if state.batches:
        last = state.batches[-1]
        yield *head, last.last_sequence, last.last_offset, last.offset_delta, state.last_timestamp, *tail
    else:
        # Without an offset Kafka ignores the sequence; Forebay still learns which one comes next.
        last_sequence = (state.next_sequence - 1) if state.next_sequence else NO_SEQUENCE
        yield *head, last_sequence, NO_OFFSET, 0, state.last_timestamp, *tail
