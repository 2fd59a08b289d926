"""Batches whose records have to be read before they are appended.

Most topics store a batch unread. Three kinds do not. A compacted topic needs the key of every record, and its
compaction trusts what a record says of its offset and its time. A topic with its own compression type repacks
batches of other types. A topic with delays looks for delayed records, and takes them out
(`delayed_on_append.py`). Such batches are examined: every record is checked, and the batch is packed as the
topic stores it.

That can take long: a few kilobytes can stand for a million records. So `examine_at_once`, for the event loop,
takes small batches only. For the others it gives `UNEXAMINED`: they go through `examine` in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from forebay.core.partition.batch_rules import AppendPolicy, out_of_range, too_large
from forebay.core.partition.delayed_on_append import MARK, Delayed, cancels_by_id, take_delayed
from forebay.errors import ErrorCode, InvalidRecords, KafkaError, ProtocolError
from forebay.wire.batch import CODEC_MASK, HEADER_SIZE, NO_TIMESTAMP, BatchHeader, assemble, read_header
from forebay.wire.compression import Codec, OutputTooLarge, compress
from forebay.wire.record_spans import TimestampOutOfRange, check_headers, payload_of, record_spans

AT_ONCE_RECORDS_MAX = 200
AT_ONCE_BYTES_MAX = 64 * 1024
"""More records than this, or more bytes packed or unpacked, take too long for the event loop."""

NAMED_RECORDS_MAX = 1000
"""At most this many records of a refused batch are named one by one."""

_RECORDS_PER_STRETCH = 64


class Unexamined(Enum):
    """The result for a batch whose records must be read in a thread first: nothing is decided yet."""

    UNEXAMINED = "it goes through `examine`, and is tried again with the result"


UNEXAMINED: Final = Unexamined.UNEXAMINED


class Examined(NamedTuple):
    """The batch to store in place of another."""

    policy: AppendPolicy
    """The policy by which it was examined: another policy may need another batch."""
    batch: memoryview
    delayed: Delayed | None = None


def examine_at_once(
    batch: memoryview, header: BatchHeader, policy: AppendPolicy, now_ms: int
) -> Examined | Unexamined:
    """The batch to store instead, unless it is large. Raises KafkaError to refuse it."""
    if not needs_reading(batch, header, policy):
        return Examined(policy, batch)
    if header.record_count > AT_ONCE_RECORDS_MAX or header.size > AT_ONCE_BYTES_MAX:
        return UNEXAMINED
    try:
        payload = _unpack(batch, header, min(AT_ONCE_BYTES_MAX, policy.max_output_bytes))
    except OutputTooLarge:
        return UNEXAMINED
    return _examine(batch, header, payload, policy, now_ms, _nothing)


def examine(batch: memoryview, policy: AppendPolicy, now_ms: int, pause: Callable[[], None]) -> Examined:
    """Like `examine_at_once`, for a batch of any size, in a thread. `pause` is called every few records."""
    header = read_header(batch)
    if not needs_reading(batch, header, policy):
        return Examined(policy, batch)
    try:
        payload = _unpack(batch, header, policy.max_output_bytes)
    except OutputTooLarge as error:
        raise _invalid(error) from None
    return _examine(batch, header, payload, policy, now_ms, pause)


def with_records_named(
    error: KafkaError, batch: memoryview | None, policy: AppendPolicy, now_ms: int
) -> KafkaError:
    """The refusal of a batch for its timestamps, by its header, with the offending records named.

    They are named only if that can be done at once: a client does not need it.
    """
    if error.code != ErrorCode.INVALID_TIMESTAMP or isinstance(error, InvalidRecords) or batch is None:
        return error
    header = read_header(batch)
    if header.record_count > AT_ONCE_RECORDS_MAX or header.size > AT_ONCE_BYTES_MAX:
        return error
    bad = BadRecords()
    earliest, latest = policy.timestamps(now_ms)
    try:
        for span in record_spans(payload_of(batch, header, AT_ONCE_BYTES_MAX), header):
            timestamp = header.base_timestamp + span.timestamp_delta
            if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
                bad.note_time(span.offset_delta, out_of_range(timestamp, earliest, latest))
    except ProtocolError:
        return error
    return bad.error(header.record_count) or error


def needs_reading(batch: memoryview, header: BatchHeader, policy: AppendPolicy) -> bool:
    if policy.compacted or policy.repacks(header.codec):
        return True
    return policy.delays is not None and (header.codec != Codec.NONE or MARK in bytes(batch))


def _unpack(batch: memoryview, header: BatchHeader, max_output_bytes: int) -> bytes:
    try:
        return payload_of(batch, header, max_output_bytes)
    except OutputTooLarge:
        raise
    except ProtocolError as error:
        raise _invalid(error) from None


def _examine(
    batch: memoryview,
    header: BatchHeader,
    payload: bytes,
    policy: AppendPolicy,
    now_ms: int,
    pause: Callable[[], None],
) -> Examined:
    if policy.compacted:
        _check_records(payload, header, policy, now_ms, pause)
    if policy.delays is not None and MARK in payload:
        examined = _without_delayed(header, payload, policy, now_ms, pause)
        if examined is not None:
            return examined
    if not policy.repacks(header.codec):
        return Examined(policy, batch)
    assert policy.codec is not None
    attributes = header.attributes & ~CODEC_MASK | policy.codec
    made = assemble(
        header._replace(attributes=attributes), compress(policy.codec, payload, policy.compression_level)
    )
    if len(made) > policy.max_message_bytes:
        raise too_large(len(made), policy)
    return Examined(policy, memoryview(made))


def _without_delayed(
    header: BatchHeader, payload: bytes, policy: AppendPolicy, now_ms: int, pause: Callable[[], None]
) -> Examined | None:
    """The batch without its delayed records; None if there are none."""
    assert policy.delays is not None
    bad = BadRecords()
    codec = header.codec if policy.codec is None else policy.codec
    try:
        taken = take_delayed(header, payload, policy.delays, bad, codec=codec, now_ms=now_ms, pause=pause)
    except ProtocolError as error:
        raise _invalid(error) from None
    refusal = bad.error(header.record_count)
    if refusal is not None:
        raise refusal
    if taken is None:
        return None
    made, delayed = taken
    size = len(made)
    if policy.repacks(header.codec):  # delayed records count, too: consumers fetch the note
        size = HEADER_SIZE + len(payload) if codec == Codec.NONE else max(size, len(delayed.note))
    if size > policy.max_message_bytes:
        raise too_large(size, policy)
    return Examined(policy, memoryview(made), delayed)


def _check_records(
    payload: bytes, header: BatchHeader, policy: AppendPolicy, now_ms: int, pause: Callable[[], None]
) -> None:
    """Refuse the batch unless every record matches the header, and has a key and a valid timestamp."""
    bad = BadRecords()
    base_timestamp = header.base_timestamp
    earliest, latest = policy.timestamps(now_ms)
    try:
        for span in record_spans(payload, header):
            _, _, end, timestamp_delta, number, key, _, headers_at, _ = span
            if payload[headers_at] or headers_at + 1 != end:
                check_headers(payload, span)
            timestamp = base_timestamp + timestamp_delta
            if key is None and not (policy.delays is not None and cancels_by_id(payload, span)):
                bad.note(number, "Compacted topic cannot accept message without key")
            elif timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
                bad.note_time(number, out_of_range(timestamp, earliest, latest))
            if not number % _RECORDS_PER_STRETCH:
                pause()
    except TimestampOutOfRange as error:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, str(error)) from None
    except ProtocolError as error:
        raise _invalid(error) from None
    refusal = bad.error(header.record_count)
    if refusal is not None:
        raise refusal


class BadRecords:
    """The records for which a batch is refused; the first of them by name, the others counted."""

    def __init__(self) -> None:
        self._reasons: dict[int, str] = {}
        self._count = 0
        self._code = ErrorCode.INVALID_RECORD

    def note(self, number: int, reason: str) -> None:
        self._count += 1
        if len(self._reasons) < NAMED_RECORDS_MAX:
            self._reasons[number] = reason

    def note_time(self, number: int, reason: str) -> None:
        self._code = ErrorCode.INVALID_TIMESTAMP  # as in Kafka: one wrong timestamp decides
        self.note(number, reason)

    def error(self, record_count: int) -> InvalidRecords | None:
        """The refusal of a batch with this many records; None if nothing is wrong with them."""
        if not self._count:
            return None
        first, reason = next(iter(self._reasons.items()))
        return InvalidRecords(
            self._code,
            f"{self._count} of {record_count} records were refused, and the others with them; "
            f"record {first}: {reason}",
            self._reasons,
        )


def _invalid(error: ProtocolError) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, str(error))


def _nothing() -> None:
    """The hook for pauses, unused on the event loop: only a thread yields."""
