"""Takes delayed records out of their batch, and writes them into a delay note before it.

The rest of the batch keeps its offsets, its sequence numbers and its transaction, so all guarantees for a
batch hold for the records that were taken out. A batch may be left without any record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from forebay.core.delays.delivered_batch import SCHEDULE_ID, SCHEDULED_AT
from forebay.core.delays.headers import (
    CANCEL,
    DELIVER_AFTER,
    DELIVER_AT,
    PREFIX,
    SCHEDULE_KEY,
    Delay,
    DelayError,
    parse,
)
from forebay.errors import ProtocolError
from forebay.wire.batch import CODEC_MASK, NOTED, BatchHeader
from forebay.wire.record_spans import RecordSpan, keep_records, record_spans, without_records
from forebay.wire.records import Header, parse_headers, write_header
from forebay.wire.state.delay_notes import CancelKey, Change, NoMore, Waiting, build_note
from forebay.wire.varint import read_varint, write_varint

_TAKEN_OFF = frozenset((DELIVER_AT, DELIVER_AFTER, SCHEDULE_KEY, CANCEL, SCHEDULED_AT, SCHEDULE_ID))
"""Removed from a delivered message: if these headers were passed on, it would be delayed again."""
_ADDED_HEADERS = 2
_CANCEL_NAME = CANCEL.encode()
MARK = PREFIX.encode()
"""Records without these bytes have no delay headers."""


class DelayPolicy(NamedTuple):
    """The delays that a topic allows, and the partition."""

    delay_ms_max: int
    pending_max: int
    partition: int


class Delayed(NamedTuple):
    """The records that were taken out of a batch."""

    note: bytearray
    """The note, which has no place in the log yet."""
    numbers: tuple[int, ...]
    """The indexes of the waiting records in the batch."""
    keys: tuple[bytes, ...]
    """Schedule keys whose earlier messages no longer wait."""
    ids: tuple[int, ...]
    """The ids of messages that it cancels."""
    pending_max: int
    """The number of messages that may wait in the partition."""
    scheduled: tuple[bytes, ...]
    """The schedule keys of the waiting messages that have one."""
    replaces: frozenset[bytes] | None = None
    """The keys among these under which a message waits according to the index; None if not looked up."""


class Refusals(Protocol):
    def note(self, number: int, reason: str) -> None:
        """Note that this record of the batch is refused."""


def take_delayed(
    header: BatchHeader,
    payload: bytes,
    policy: DelayPolicy,
    refusals: Refusals,
    *,
    codec: int,
    now_ms: int,
    pause: Callable[[], None],
) -> tuple[bytearray, Delayed] | None:
    """The batch with this codec without its delayed records, and these; None if no record has a delay header.

    Raises ProtocolError for malformed records. The caller checks the refusals.
    """
    kept: list[RecordSpan] = []
    changes: list[Change] = []
    waiting: list[int] = []
    for span in record_spans(payload, header):
        pause()
        asked = None
        if payload.find(MARK, span.headers_at, span.end) >= 0:
            try:
                asked = _asked(payload, span, policy, now_ms)
            except DelayError as error:
                refusals.note(span.offset_delta, error.message)
                continue
        if asked is None:
            kept.append(span)
            continue
        change, stays = _change(payload, span, *asked, now_ms=now_ms, codec=header.codec)
        if change is not None:
            changes.append(change)
        if stays:
            kept.append(span)
        elif isinstance(change, Waiting):
            waiting.append(span.offset_delta)
    if not changes:
        return None
    left = header._replace(attributes=header.attributes & ~CODEC_MASK | codec | NOTED)
    batch = keep_records(left, payload, kept, delete_horizon_ms=None) if kept else without_records(left)
    note = build_note(changes, bound=True, timestamp=now_ms, relative=True, codec=codec)
    keys, ids = _ended(changes)
    scheduled = [each.schedule_key for each in changes if isinstance(each, Waiting)]
    named = tuple(key for key in scheduled if key is not None)
    return batch, Delayed(note, tuple(waiting), keys, ids, policy.pending_max, named)


def _ended(changes: list[Change]) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """The schedule keys and ids of messages that no longer wait."""
    keys = [
        change.schedule_key
        for change in changes
        if not isinstance(change, NoMore) and change.schedule_key is not None
    ]
    ids = [id_ for change in changes if isinstance(change, NoMore) for id_ in change.ids]
    return tuple(keys), tuple(ids)


def cancels_by_id(payload: bytes, span: RecordSpan) -> bool:
    """True for a record that cancels a message: it is stored nowhere. Raises ProtocolError."""
    if payload.find(_CANCEL_NAME, span.headers_at, span.end) < 0:
        return False
    return any(name == CANCEL for name, _ in _headers(payload, span))


def _asked(
    payload: bytes, span: RecordSpan, policy: DelayPolicy, now_ms: int
) -> tuple[Delay, list[Header]] | None:
    """The delay that a record requests, and its other headers."""
    headers = _headers(payload, span)
    delay = parse(headers, now_ms, policy.delay_ms_max)
    if delay is None:
        return None
    if delay.cancels is not None:
        partition = int(delay.cancels.split(b"-")[0])
        if partition != policy.partition:
            raise DelayError(
                f"header {CANCEL}: {delay.cancels.decode()} waits in partition {partition}, this one is "
                f"{policy.partition}; send it there"
            )
    return delay, [each for each in headers if each[0] not in _TAKEN_OFF]


def _headers(payload: bytes, span: RecordSpan) -> Sequence[Header]:
    try:
        headers, end = parse_headers(payload, span.headers_at, span.end)
    except IndexError:
        raise ProtocolError("record runs past the end of its batch") from None
    if end != span.end:
        raise ProtocolError("record's length does not match its fields")
    return headers


def _change(
    payload: bytes, span: RecordSpan, delay: Delay, headers: list[Header], *, now_ms: int, codec: int
) -> tuple[Change | None, bool]:
    """The change that a record makes, and True if it stays in its batch."""
    if delay.cancels is not None:
        return NoMore((int(delay.cancels.split(b"-")[1]),)), False
    _, body_at = read_varint(payload, span.offset_at)
    if delay.due_ms is not None and delay.due_ms > now_ms:
        body = bytearray(payload[body_at : span.headers_at])
        write_varint(body, len(headers) + _ADDED_HEADERS)
        for key, value in headers:
            write_header(body, key, value)
        write_header(body, SCHEDULED_AT, str(now_ms).encode())
        key_ = delay.schedule_key
        return Waiting(span.offset_delta, delay.due_ms, now_ms, codec, key_, bytes(body)), False
    if delay.schedule_key is None:
        return None, True
    # Under a schedule key, a record without a time replaces the waiting message. Without a value it only
    # cancels that.
    only_cancels = delay.due_ms is None and _has_no_value(payload, body_at)
    return CancelKey(delay.schedule_key), not only_cancels


def _has_no_value(payload: bytes, body_at: int) -> bool:
    key_length, position = read_varint(payload, body_at)
    value_length, _ = read_varint(payload, position + max(key_length, 0))
    return value_length < 0
