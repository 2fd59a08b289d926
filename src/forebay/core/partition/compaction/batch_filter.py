"""Decides which records of a batch remain when its log is compacted.

A message stays if it is the latest of its key, or lies beyond the range of this cleaning. A message without a
value deletes its key. It is itself deleted once readers have had delete.retention.ms to see it: the first
cleaning that meets it writes the time into the batch (the delete horizon), a later one removes it. It stays
while a replica may lack it: that replica would keep the deleted message, and show it when it leads.

Messages of aborted transactions are removed at once. The marker that ended a transaction stays as long as
anything of the transaction does, and then for delete.retention.ms more, as a message without a value does.

A batch that loses all its messages disappears, with two exceptions. The last batches of a producer stay as
bare headers, which tell its epoch and sequence numbers to a broker that has nothing but the log: a new
replica, or one that lost its snapshots in a power failure. Without them it would refuse a repeated batch as
out of order. The end of a segment keeps its place, so that each segment ends where the next begins and a
missing segment can be distinguished from a compacted one: the last batch that has messages is widened up to
there. A placeholder without messages is used only if that is impossible, because some clients do not read
past one (kafka-go starts again with the first message).

A batch that marks a gap in a materialized view (`core/views/copying.py`) is removed, unless it is the last of
its segment. A gap without a batch reads the same, and only the end of the view's log says how far its source
was read.

A batch with malformed records (`storage/log/unreadable_batches.py`) stays as it is, and replaces no other
message: consumers cannot read it either. A batch that is too large for the broker to unpack is different,
because consumers can read it: it replaces messages, and later messages replace its own. So it ends the
cleaning (OutputTooLarge).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from operator import attrgetter
from typing import Protocol

from forebay.core.partition.compaction.offset_map import OffsetMap
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.errors import ProtocolError
from forebay.lazy import dataclass
from forebay.wire.batch import NOTED, TIMESTAMP_MAX, BatchHeader, read_header, read_marker
from forebay.wire.compression import OutputTooLarge
from forebay.wire.record_spans import (
    RecordSpan,
    keep_records,
    payload_of,
    placeholder,
    readable_spans,
    record_spans,
    without_records,
)
from forebay.wire.state.delay_notes import binds, is_note
from forebay.wire.varint import Bytes

PassOver = Callable[[int, str], None]
"""Called with a batch that cannot be read: its base offset, and the reason."""


class Aborted(Protocol):
    """An aborted transaction: its producer, its first offset, and the offset of its marker."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBatches:
    """The batches that must stay so that the producers' state can be rebuilt from the log."""

    offsets: frozenset[int] = frozenset()
    """The last offset of the last batch of each producer."""
    repeatable: frozenset[int] = frozenset()
    """The last offsets of earlier batches that may be sent again. In a transaction, none that is decided."""
    epochs: frozenset[tuple[int, int]] = frozenset()
    """(producer id, epoch) of producers whose epoch is known from a marker only."""


def last_batches(producers: ProducerTable) -> LastBatches:
    offsets = [state.batches[-1].last_offset for state in producers if state.batches]
    repeatable = [batch.last_offset for state in producers for batch in state.batches[:-1]]
    epochs = [(state.producer_id, state.producer_epoch) for state in producers if not state.batches]
    return LastBatches(offsets=frozenset(offsets), repeatable=frozenset(repeatable), epochs=frozenset(epochs))


class TransactionTrack:
    """Follows the transactions of a log from batch to batch."""

    def __init__(self, aborted: Iterable[Aborted], from_offset: int) -> None:
        pending = [transaction for transaction in aborted if transaction.last_offset >= from_offset]
        pending.sort(key=attrgetter("first_offset"), reverse=True)
        self._pending = pending
        self._aborted: dict[int, Aborted] = {}
        """For each producer, the aborted transaction that it is in or was in last."""
        self._seen: set[int] = set()
        """Producers with a batch since their last marker."""
        self.last_markers: dict[int, int] = {}
        """The offset of the last marker of each producer."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Note a batch of messages; True if it belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        self._seen.add(header.producer_id)
        aborted = self._aborted.get(header.producer_id)
        return aborted is not None and header.base_offset < aborted.last_offset

    def end(self, header: BatchHeader) -> bool:
        """Note a marker; True if nothing of its transaction has been seen."""
        self._begin_up_to(header.last_offset)
        self.last_markers[header.producer_id] = header.base_offset
        seen = header.producer_id in self._seen
        self._seen.discard(header.producer_id)
        return not seen

    def is_abort(self, header: BatchHeader) -> bool:
        """True if this marker ended an aborted transaction."""
        aborted = self._aborted.get(header.producer_id)
        return aborted is not None and aborted.last_offset == header.base_offset

    def _begin_up_to(self, offset: int) -> None:
        while self._pending and self._pending[-1].first_offset <= offset:
            aborted = self._pending.pop()
            self._aborted[aborted.producer_id] = aborted


def note_keys(
    batch: Bytes,
    header: BatchHeader,
    offsets: OffsetMap,
    transactions: TransactionTrack,
    pass_over: PassOver,
    max_output_bytes: int,
) -> bool:
    """Enter the keys of a batch of the dirty part; False when the map is full. Raises OutputTooLarge."""
    if header.is_control:
        transactions.end(header)
    elif not transactions.is_aborted(header):
        try:
            spans = readable_spans(payload_of(batch, header, max_output_bytes), header)
        except OutputTooLarge:
            raise
        except ProtocolError as error:
            pass_over(header.base_offset, str(error))
        else:
            if not _enter(spans, header.base_offset, offsets):
                return False
    offsets.end_offset = max(offsets.end_offset, header.next_offset)
    return True


def raise_keys(
    batch: Bytes,
    header: BatchHeader,
    offsets: OffsetMap,
    transactions: TransactionTrack,
    max_output_bytes: int,
) -> None:
    """Like `note_keys`, for batches after the map is full: only raises the offsets of keys that it has."""
    if header.is_control:
        transactions.end(header)
    elif not transactions.is_aborted(header):
        try:
            spans = readable_spans(payload_of(batch, header, max_output_bytes), header)
        except OutputTooLarge:
            raise
        except ProtocolError:
            return  # the cleaning reports it when it gets there
        for span in spans:
            offset = header.base_offset + span.offset_delta
            if span.key is not None and offset >= offsets.end_offset:
                offsets.raise_known(span.key, offset)


def _enter(spans: Iterable[RecordSpan], base_offset: int, offsets: OffsetMap) -> bool:
    first_offset = offsets.end_offset
    for span in spans:
        offset = base_offset + span.offset_delta
        if span.key is not None and offset >= first_offset and not offsets.add(span.key, offset):
            return False
    return True


@dataclass(slots=True, kw_only=True)
class BatchFilter:
    """Decides about the batches of a log in order, from the first one on."""

    offsets: OffsetMap
    transactions: TransactionTrack
    last_batches: LastBatches
    last_markers: Mapping[int, int]
    """The offset of the last marker of each producer in the dirty part: no earlier one need stay."""
    log_start_offset: int
    now_ms: int
    delete_retention_ms: int
    forgets_deletions: bool
    """True if deletions and markers are removed in their time. False while a replica may lack them."""
    pass_over: PassOver
    max_output_bytes: int
    notes_below: int = 0
    """No waiting message needs a delay note below this offset."""
    kept_note: BatchHeader | None = None
    """The last delay note, if it stays: the batch that it is bound to stays with it."""
    keeps_notes: bool = False
    """True if a delay note stays: then those after it stay too, even if their time has come earlier."""
    aborted_kept: list[int] = field(default_factory=list)
    """Offsets of the markers of aborted transactions that still had messages. A reader that got a range of
    the log before its compaction needs them; the next cleaning leaves them out."""

    def clean(self, batch: Bytes, header: BatchHeader, *, keeps_place: bool) -> Bytes | None:
        """The batch itself, its replacement, or None. Raises OutputTooLarge."""
        try:
            return self._clean(batch, header, keeps_place=keeps_place)
        except OutputTooLarge:
            raise
        except ProtocolError as error:
            self.pass_over(header.base_offset, str(error))
            return batch

    def may_widen(self, batch: Bytes, header: BatchHeader) -> bool:
        """True for a batch that may be widened to the end of its segment: its producer does not need it.

        It must be well-formed, too: otherwise a record beyond the end of its batch would lie within it.
        """
        if header.is_control or header.is_transactional or header.attributes & NOTED:
            return False
        if not header.record_count or (header.producer_id >= 0 and self._is_last_batch(header)):
            return False
        try:
            readable_spans(payload_of(batch, header, self.max_output_bytes), header)
        except ProtocolError:
            return False
        return True

    def _clean(self, batch: Bytes, header: BatchHeader, *, keeps_place: bool) -> Bytes | None:
        note, self.kept_note = self.kept_note, None
        if _stands_for_gap(header):
            return batch if keeps_place else None
        if header.is_control:
            left = self._clean_note(batch, header) if is_note(header) else self._clean_control(batch, header)
            return placeholder(header) if left is None and keeps_place else left
        left = self._clean_messages(batch, header, keeps_place=keeps_place)
        is_left = left is not None and read_header(left).attributes & NOTED
        if note is not None and not is_left and binds(note, header):
            return without_records(header) if header.record_count else batch
        return left

    def _clean_messages(self, batch: Bytes, header: BatchHeader, *, keeps_place: bool) -> Bytes | None:
        if self.transactions.is_aborted(header):
            return self._emptied(batch, header, keeps_place)
        if header.base_offset >= self.offsets.end_offset:
            return batch
        payload = payload_of(batch, header, self.max_output_bytes)
        kept, has_tombstone = self._kept(payload, header)
        if not kept:
            return self._emptied(batch, header, keeps_place)
        horizon_ms = self._horizon_ms if has_tombstone else None
        is_set = header.delete_horizon_ms is not None
        if len(kept) == header.record_count and (horizon_ms is None or is_set):
            return batch
        return keep_records(header, payload, kept, delete_horizon_ms=horizon_ms)

    def _kept(self, payload: bytes, header: BatchHeader) -> tuple[list[RecordSpan], bool]:
        """The records that stay, and True if a tombstone is among them."""
        kept: list[RecordSpan] = []
        has_tombstone = False
        end_offset, latest = self.offsets.end_offset, self.offsets.latest
        for span in record_spans(payload, header):
            offset = header.base_offset + span.offset_delta
            if offset < end_offset:
                key = span.key
                if key is None or offset < self.log_start_offset or offset < latest(key):
                    continue
                if not span.has_value:
                    if self._is_past(header):
                        continue
                    has_tombstone = True
            kept.append(span)
        return kept, has_tombstone

    def _clean_control(self, batch: Bytes, header: BatchHeader) -> Bytes | None:
        is_left_over = self.transactions.end(header)
        if not is_left_over and self.transactions.is_abort(header):
            self.aborted_kept.append(header.base_offset)
        if header.record_count and (read_marker(batch) is None or not is_left_over):
            return batch
        if self._is_last_marker(header):
            return batch
        if not header.record_count or self._is_past(header):
            return None
        if header.delete_horizon_ms is not None:
            return batch
        return self._with_horizon(batch, header)

    def _clean_note(self, batch: Bytes, header: BatchHeader) -> Bytes | None:
        """Remove delay notes that nothing needs, like deletions: from the front, once all replicas have them.

        If one were kept before another that is removed, messages would seem to wait that do not. Their time
        begins when all replicas have them, and may have begun earlier in the leader's log than in this one.
        """
        if not header.record_count:
            return batch
        if header.base_offset < self.notes_below and self._is_past(header) and not self.keeps_notes:
            return None
        self.kept_note, self.keeps_notes = header, True
        if header.base_offset >= self.notes_below or not self.forgets_deletions:
            return batch
        return batch if header.delete_horizon_ms is not None else self._with_horizon(batch, header)

    def _with_horizon(self, batch: Bytes, header: BatchHeader) -> Bytes:
        payload = payload_of(batch, header, self.max_output_bytes)
        spans = list(record_spans(payload, header))
        return keep_records(header, payload, spans, delete_horizon_ms=self._horizon_ms)

    @property
    def _horizon_ms(self) -> int:
        """When a tombstone that is seen for the first time may be deleted; possibly never."""
        return min(self.now_ms + self.delete_retention_ms, TIMESTAMP_MAX)

    def _is_last_marker(self, header: BatchHeader) -> bool:
        if (header.producer_id, header.producer_epoch) not in self.last_batches.epochs:
            return False
        return header.base_offset >= self.last_markers.get(header.producer_id, 0)

    def _is_last_batch(self, header: BatchHeader) -> bool:
        last = self.last_batches
        if header.is_transactional:
            return header.last_offset in last.offsets
        return header.last_offset in last.offsets or header.last_offset in last.repeatable

    def _is_past(self, header: BatchHeader) -> bool:
        horizon_ms = header.delete_horizon_ms
        return self.forgets_deletions and horizon_ms is not None and horizon_ms <= self.now_ms

    def _emptied(self, batch: Bytes, header: BatchHeader, keeps_place: bool) -> Bytes | None:
        if header.producer_id >= 0 and self._is_last_batch(header):
            return without_records(header) if header.record_count else batch
        if not keeps_place:
            return None
        return placeholder(header) if header.record_count or header.producer_id >= 0 else batch


def _stands_for_gap(header: BatchHeader) -> bool:
    """True for a batch that marks a gap. Markers have a producer, and delay notes have no sequence."""
    return header.is_control and header.producer_id < 0 and header.base_sequence >= 0
