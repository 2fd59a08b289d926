"""Delay notes: changes of a partition's delayed messages, in its log.

A note is a control batch of one record, written by the leader, with a control type that is not Kafka's:
clients skip it. It lists changes, in this order: messages that wait from now on, with everything needed to
deliver them, and messages that no longer wait.

Most notes are *bound* to the batch after them: they were appended together, and count together. The batch
that a note is bound to has the attribute NOTED, and no other batch has. So a bound note counts if and only if
the next batch begins where the note ends, is of the same leader epoch and is NOTED: a crash may have kept the
note alone, or another leader may have continued after it. A note for a batch of a transaction counts when the
transaction is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeAlias

from forebay.errors import ProtocolError
from forebay.wire.batch import CONTROL, NOTED, BatchHeader, build_batch, records
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from forebay.wire.varint import Bytes

_CONTROL_TYPE = 0x4644
"""Not one of Kafka's, which are small numbers."""
_KEY = Struct(">hh").pack(0, _CONTROL_TYPE)
_VERSION = 0
_HEAD = Struct(">hb")
_CHANGE = Struct(">bbqqqii")
_ID_BYTES = 8
_OUTPUT_BYTES_MAX = 2**31 - 1
"""The broker has created it, from a batch that it had unpacked within its limits."""

_WAITS_BEHIND, _WAITS, _CANCELS_KEY, _WAITS_NO_MORE = range(4)
"""Kinds of changes. The first one's id is relative: 0 is the first offset after the note."""


class Waiting(NamedTuple):
    """A delayed message."""

    id: int
    """The offset that its producer was given."""
    due_ms: int
    scheduled_ms: int
    codec: int
    """The codec of its original batch."""
    schedule_key: bytes | None
    body: bytes
    """The record from its key on, without its last header, which is added on delivery."""


class CancelKey(NamedTuple):
    """Nothing waits under this schedule key any more."""

    schedule_key: bytes


class NoMore(NamedTuple):
    """These no longer wait: they were delivered, or cancelled."""

    ids: tuple[int, ...]


Change: TypeAlias = Waiting | CancelKey | NoMore


class NewerNote(ProtocolError):
    """A note of a later version of the broker: it has a meaning, and must not be skipped."""


class Note(NamedTuple):
    bound: bool
    """True if it counts only with the batch after it."""
    changes: list[Change]


def is_note(header: BatchHeader) -> bool:
    """True if a batch is a note. Other control batches are markers (with a producer) and gaps in materialized
    views (core/views/copying.py, with a sequence)."""
    return header.is_control and header.producer_id < 0 and header.base_sequence < 0


def binds(note: BatchHeader, after: BatchHeader) -> bool:
    """True if this batch, the next one in the log, was written with the note."""
    return (
        bool(after.attributes & NOTED)
        and not after.is_control
        and after.base_offset == note.next_offset
        and after.partition_leader_epoch == note.partition_leader_epoch
    )


def build_note(
    changes: Iterable[Change], *, bound: bool, timestamp: int, relative: bool = False, codec: int = Codec.NONE
) -> bytearray:
    """A note that has no place in the log yet. `relative`: the ids of messages count from its end."""
    value = bytearray(_HEAD.pack(_VERSION, bound))
    for change in changes:
        _write(value, change, relative)
    record = Record(offset=0, timestamp=timestamp, key=_KEY, value=bytes(value))
    return build_batch([record], codec=codec, attributes=CONTROL)


def note_value(batch: Bytes) -> bytes | None:
    """The value of the note in a batch; None for a control record of some other type."""
    record = next(iter(records(batch, _OUTPUT_BYTES_MAX)), None)
    if record is None or record.key != _KEY:
        return None
    return record.value


def parse_note(value: bytes, next_offset: int) -> Note:
    """A note from its value. `next_offset`: the first offset after it."""
    try:
        version, bound = _HEAD.unpack_from(value)
        if version != _VERSION:
            raise NewerNote(f"delay note has version {version}, only {_VERSION} is known")
        return Note(bool(bound), list(_changes(value, next_offset)))
    except StructError:
        raise ProtocolError("delay note is cut short") from None


def _write(out: bytearray, change: Change, relative: bool) -> None:
    if isinstance(change, Waiting):
        key, body = change.schedule_key, change.body
        kind = _WAITS_BEHIND if relative else _WAITS
        key_length = -1 if key is None else len(key)
        out += _CHANGE.pack(
            kind, change.codec, change.id, change.due_ms, change.scheduled_ms, key_length, len(body)
        )
        out += key or b""
        out += body
    elif isinstance(change, CancelKey):
        out += _CHANGE.pack(_CANCELS_KEY, 0, 0, 0, 0, len(change.schedule_key), 0)
        out += change.schedule_key
    else:
        ids = change.ids
        out += _CHANGE.pack(_WAITS_NO_MORE, 0, 0, 0, 0, -1, len(ids) * _ID_BYTES)
        out += Struct(f">{len(ids)}q").pack(*ids)


def _changes(value: bytes, next_offset: int) -> Iterator[Change]:
    position, size = _HEAD.size, len(value)
    while position < size:
        kind, codec, id_, due_ms, scheduled_ms, key_length, body_length = _CHANGE.unpack_from(value, position)
        key_at = position + _CHANGE.size
        body_at = key_at + max(key_length, 0)
        position = body_at + body_length
        if body_length < 0 or position > size:
            raise ProtocolError("delay note is cut short")
        key = None if key_length < 0 else value[key_at:body_at]
        if kind in (_WAITS_BEHIND, _WAITS):
            id_ = next_offset + id_ if kind == _WAITS_BEHIND else id_
            yield Waiting(id_, due_ms, scheduled_ms, codec, key, value[body_at:position])
        elif kind == _CANCELS_KEY:
            yield CancelKey(key or b"")
        elif kind == _WAITS_NO_MORE:
            yield NoMore(Struct(f">{body_length // _ID_BYTES}q").unpack_from(value, body_at))
        else:
            raise ProtocolError(f"delay note has a change of kind {kind}")
