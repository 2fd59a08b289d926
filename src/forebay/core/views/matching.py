"""Finds the records of a batch that match a view, with as little reading as possible.

Written straight-line, with the varints of one and two bytes read in place (an odd one is negative; 0x80 is
the bit behind which there are more bytes): it runs for every record of a view's topic. A record is read only
as far as the condition needs it; if it is delivered, its offset and time are checked too.

A few kilobytes can unpack to a million records. So every few records it asks if the turn goes on, more often
the more a record may cost. If not, a long batch is left in the middle, and the next turn skips the examined
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from orjson import JSONEncodeError, loads

from forebay.core.views.conditions.limits import TooMuchWork, check_elements
from forebay.core.views.conditions.rows import InvalidDocument, Row, Scope
from forebay.core.views.projection import SELECTED_BYTES_MIN, SELECTED_TIMES
from forebay.core.views.turn import Place, Turn
from forebay.core.views.view import CompiledView
from forebay.errors import ProtocolError
from forebay.wire.batch import NO_TIMESTAMP, TIMESTAMP_MAX, BatchHeader
from forebay.wire.record_spans import RecordSpan, check_place, span_at, with_value
from forebay.wire.varint import read_varint

_Candidate = tuple[int, int, int]
"""The start of a record, the start of its fields (after its length), and its end."""

_IN_VAIN = 32
"""If this many records in a row have a needle, it is no longer searched for in the batch."""

_WHOLE_STEPS = 1 << 21
"""A batch that takes no more steps than this is examined in one turn, from its first record."""
_FOUND_BYTES_MAX = 8 << 20
"""A turn that found so much in one batch ends: it is copied twice until it is shown."""
_STEPS_PER_LOOK = 1 << 15
_STEPS_PER_RECORD = 256
_STEPS_PER_HOP = 16
"""How often to ask if the turn goes on: each record has a cost besides its bytes, and so has skipping it."""
_SEARCHED_BYTES = 1 << 20
"""A search holds the interpreter, so a large payload is searched in pieces."""


class Matching:
    """The records of a batch to deliver, while they are found."""

    def __init__(self, payload: bytes, header: BatchHeader) -> None:
        self.records: list[bytes] = []
        self.found_bytes = 0
        self.cut: Place | None = None
        """The first record that was left for another turn."""
        self.examined = header.record_count
        self.begins_within = False
        """True if records before the first requested one were left out."""
        self.largest_timestamp_delta = self._earliest = NO_TIMESTAMP - header.base_timestamp
        self.invalid = 0
        self._latest = TIMESTAMP_MAX - header.base_timestamp
        self._payload = payload
        self._header = header
        self._before = -1
        self._room = SELECTED_BYTES_MIN + SELECTED_TIMES * len(payload)

    def forget_payload(self) -> None:
        """No more will be delivered."""
        self._payload = b""

    def selected(self, record: bytes) -> bytes:
        """A record with the value of a selection. Raises ProtocolError if they become too large."""
        self._room -= len(record)
        if self._room < 0:
            raise ProtocolError("the selection makes too much of a batch")
        return record

    def deliver(self, body_at: int, record: bytes) -> None:
        """`record`: the shown form of the record with fields at this position. Its offset and time are
        checked."""
        payload = self._payload
        raw, at = payload[body_at + 1], body_at + 2
        if raw < 0x80:
            timestamp_delta = (raw >> 1) ^ -(raw & 1)
        else:
            timestamp_delta, at = read_varint(payload, body_at + 1, 64)
        raw, more = payload[at], payload[at + 1]
        if raw < 0x80:
            offset_delta = (raw >> 1) ^ -(raw & 1)
        elif more < 0x80:
            raw = raw & 0x7F | more << 7
            offset_delta = (raw >> 1) ^ -(raw & 1)
        else:
            offset_delta, _ = read_varint(payload, at)
        if not (
            self._before < offset_delta <= self._header.last_offset_delta
            and self._earliest <= timestamp_delta <= self._latest
        ):
            check_place(self._header, self._before, offset_delta, timestamp_delta)
        self._before = offset_delta
        if timestamp_delta > self.largest_timestamp_delta:
            self.largest_timestamp_delta = timestamp_delta
        self.records.append(record)
        self.found_bytes += len(record)


def matching_records(
    view: CompiledView,
    payload: bytes,
    header: BatchHeader,
    scope: Scope,
    first_offset: int,
    turn: Turn,
    place: Place | None = None,
) -> Matching:
    """The records to deliver from an offset on, or of the whole batch if it is quickly examined.

    `place`: where an earlier turn has ended, perhaps at this offset. Raises ProtocolError for malformed
    records.
    """
    found = Matching(payload, header)
    try:
        candidates = _candidates(view, payload, header, first_offset, turn, place, found)
        if view.takes_document:
            _test_documents(view, payload, candidates, found)
        else:
            row = Row(scope, payload, header, view.elements_max)
            _test_rows(view, payload, candidates, row, found)
    except IndexError:
        raise ProtocolError("record runs past the end of its batch") from None
    return found


def _test_rows(
    view: CompiledView, payload: bytes, candidates: Iterable[_Candidate], row: Row, found: Matching
) -> None:
    project, bytes_max = view.project, view.bytes_max
    for start, body_at, end in candidates:
        span = span_at(payload, start)
        row.move_to(span)
        try:
            if end - start > bytes_max and _bytes_read(view, span) > bytes_max:
                raise TooMuchWork
            if view.test(row) if span.has_value else view.tombstone_test(row):
                if view.uses_value:
                    row.document()
                record = payload[start:end]
                if project is not None and span.has_value:
                    record = found.selected(with_value(payload, span, project(row, end - start)))
                found.deliver(body_at, record)
        except (InvalidDocument, JSONEncodeError, TooMuchWork):
            found.invalid += 1


def _bytes_read(view: CompiledView, span: RecordSpan) -> int:
    """The bytes that are read of a record: without the value, if the query does not use it."""
    value_bytes = 0 if view.uses_value else span.headers_at - span.value_at
    return span.end - span.start - value_bytes


def _test_documents(
    view: CompiledView, payload: bytes, candidates: Iterable[_Candidate], found: Matching
) -> None:
    """Test conditions on the value alone: everything before it in a record is skipped."""
    test, project, bytes_max, elements_max = view.test, view.project, view.bytes_max, view.elements_max
    for start, body_at, end in candidates:
        at = body_at + 1  # past the record's attributes
        while payload[at] >= 0x80:  # the timestamp delta
            at += 1
        at += 1
        while payload[at] >= 0x80:  # the offset delta
            at += 1
        at += 1
        raw = payload[at]
        if raw >= 0x80:
            length, at = read_varint(payload, at)
            at += max(length, 0)
        elif raw & 1:  # negative: there is no key
            at += 1
        else:
            at += 1 + (raw >> 1)
        raw = payload[at]
        if raw < 0x80:
            at += 1
        elif payload[at + 1] < 0x80:
            raw = raw & 0x7F | payload[at + 1] << 7
            at += 2
        else:
            length, at = read_varint(payload, at)
            raw = length << 1 if length >= 0 else 1
        value_end = at if raw & 1 else at + (raw >> 1)
        if value_end >= end:
            raise ProtocolError("record's fields do not fit in its length")
        try:
            if raw & 1:
                document = None
                delivers = view.tombstone_test(None)
            else:
                if end - start > bytes_max:
                    raise TooMuchWork
                if value_end - at > elements_max:
                    check_elements(payload[at:value_end], elements_max)
                document = loads(payload[at:value_end])
                delivers = test(document)
            if delivers:
                record = payload[start:end]
                if project is not None and not raw & 1:
                    value = project(document, end - start)
                    record = found.selected(with_value(payload, span_at(payload, start), value))
                found.deliver(body_at, record)
        except (InvalidDocument, JSONEncodeError, TooMuchWork):
            found.invalid += 1


def _candidates(
    view: CompiledView,
    payload: bytes,
    header: BatchHeader,
    first_offset: int,
    turn: Turn,
    place: Place | None,
    found: Matching,
) -> Iterator[_Candidate]:
    """The records that have one of the needles; all of them if there are none to search for.

    Needles that each of the first records has are no longer searched for: that would only cost time.
    """
    size, count, weight, needles = len(payload), header.record_count, view.weight, view.needles
    first = position = looked_at = 0
    is_long = size * weight + count * _STEPS_PER_RECORD > _WHOLE_STEPS
    if is_long and first_offset > header.base_offset:
        if place is not None and (place.crc, place.offset) == (header.crc, first_offset):
            first, position = place.number, place.position
        else:
            first, position = _skip(payload, count, first_offset - header.base_offset, turn)
        found.begins_within = first > 0
    if is_long:
        turn.begin()
    next_hit = None if needles is None else hit_finder(payload, needles)
    hit = -1 if next_hit is None else next_hit(position)
    left = _STEPS_PER_LOOK
    found.examined = count - first
    for number in range(first, count):
        if hit == size:
            return
        if left <= 0:
            left = _STEPS_PER_LOOK
            if (not turn.goes_on() or found.found_bytes > _FOUND_BYTES_MAX) and is_long:
                offset = _offset_after(payload, position, header, first_offset)
                found.cut = Place(header.crc, offset, number, position)
                found.examined = number - first
                return
        start = position
        raw, body_at = payload[start], start + 1
        if raw >= 0x80:
            if payload[body_at] < 0x80:
                raw = raw & 0x7F | payload[body_at] << 7
                body_at += 1
            else:
                length, body_at = read_varint(payload, start)
                raw = length << 1 if length >= 0 else 1
        position = body_at + (raw >> 1)
        if raw & 1 or position > size:
            raise ProtocolError("record does not fit in its batch")
        if position <= hit:
            left -= _STEPS_PER_HOP
            continue
        yield start, body_at, position
        left -= (position - start) * weight + _STEPS_PER_RECORD
        if next_hit is not None:
            looked_at += 1
            if looked_at == _IN_VAIN and looked_at == number + 1 - first:
                hit, next_hit = -1, None
            else:
                hit = next_hit(position)
    if position != size and hit != size:
        raise ProtocolError(f"{size - position} bytes left over after the {count} records of a batch")


def _skip(payload: bytes, count: int, first_delta: int, turn: Turn) -> tuple[int, int]:
    """The number of records before an offset delta, and the start of the next one."""
    position = 0
    for number in range(count):
        length, body_at = read_varint(payload, position)
        at = body_at + 1  # past the record's attributes
        while payload[at] >= 0x80:  # the timestamp delta
            at += 1
        offset_delta, _ = read_varint(payload, at + 1)
        if offset_delta >= first_delta:
            return number, position
        position = body_at + length
        if length < 0 or position > len(payload):
            raise ProtocolError("record does not fit in its batch")
        if not number & 0x3FF:
            turn.goes_on()  # it may pause; but a turn that ended here would make no progress
    return count, position


def _offset_after(payload: bytes, position: int, header: BatchHeader, first_offset: int) -> int:
    """The start of the next turn, which must be after the start of this one."""
    span = span_at(payload, position)
    before = max(first_offset - header.base_offset, 0)
    check_place(header, before, span.offset_delta, span.timestamp_delta)
    return header.base_offset + span.offset_delta


def hit_finder(payload: bytes, needles: Sequence[bytes]) -> Callable[[int], int]:
    """A function that returns the position of the next needle at or after a position: the payload's size if
    there is none. Positions must rise; then all calls together search the payload once for each needle."""
    size = len(payload)
    places = [-1] * len(needles)

    def next_hit(position: int) -> int:
        nearest = size
        for number, place in enumerate(places):
            if place < position:
                places[number] = place = _find(payload, needles[number], position)
            if place < nearest:
                nearest = place
        return nearest

    return next_hit


def _find(payload: bytes, needle: bytes, position: int) -> int:
    """The position of a needle at or after a position; the payload's size if it is not found."""
    size = len(payload)
    while position < size:
        end = position + _SEARCHED_BYTES
        place = payload.find(needle, position, end + len(needle) - 1)
        if place >= 0:
            return place
        position = end
    return size
