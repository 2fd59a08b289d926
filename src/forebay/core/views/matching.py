"""The records of a batch that a view lets through, found with as little reading as possible.

Written straight-line, with the varints of one and two bytes read in place (an odd one is negative; 0x80 is
the bit behind which there are more bytes): it runs for every record of a view's topic. A record is read only
as far as the condition needs it; of one that is delivered, offset and time are checked too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from orjson import JSONEncodeError, loads

from forebay.core.views.rows import InvalidDocument, Row, Scope
from forebay.core.views.view import CompiledView
from forebay.errors import ProtocolError
from forebay.wire.batch import NO_TIMESTAMP, TIMESTAMP_MAX, BatchHeader
from forebay.wire.record_spans import check_place, span_at, with_value
from forebay.wire.varint import read_varint

_Candidate = tuple[int, int, int]
"""Where a record begins, its fields behind its length, and its end."""

_SELECTED_BYTES_MIN = 16 << 20
_SELECTED_TIMES = 4
"""What a selection may make of one batch: so many bytes, and so many times what the batch holds. It may name
the whole value again and again. A batch of which it makes more is passed over, and counted."""
_IN_VAIN = 32
"""So many records that all have a needle are enough to stop searching for it in a batch."""


class Matching:
    """What is delivered of a batch, while it is found."""

    def __init__(self, payload: bytes, header: BatchHeader) -> None:
        self.records: list[bytes] = []
        self.largest_timestamp_delta = self._earliest = NO_TIMESTAMP - header.base_timestamp
        self.invalid = 0
        self._latest = TIMESTAMP_MAX - header.base_timestamp
        self._payload = payload
        self._header = header
        self._before = -1
        self._room = _SELECTED_BYTES_MIN + _SELECTED_TIMES * len(payload)

    def selected(self, record: bytes) -> bytes:
        """A record with the value of a selection. Raises ProtocolError if they become too large."""
        self._room -= len(record)
        if self._room < 0:
            raise ProtocolError("the selection makes too much of a batch")
        return record

    def deliver(self, body_at: int, record: bytes) -> None:
        """`record`: what is shown of the one whose fields begin there. Its offset and time are checked."""
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


def matching_records(view: CompiledView, payload: bytes, header: BatchHeader, scope: Scope) -> Matching:
    """Raises ProtocolError where the bytes are no records."""
    found = Matching(payload, header)
    candidates = _candidates(payload, header.record_count, view.needles)
    try:
        if view.takes_document:
            _test_documents(view, payload, candidates, found)
        else:
            _test_rows(view, payload, candidates, Row(scope, payload, header), found)
    except IndexError:
        raise ProtocolError("record runs past the end of its batch") from None
    return found


def _test_rows(
    view: CompiledView, payload: bytes, candidates: Iterable[_Candidate], row: Row, found: Matching
) -> None:
    project = view.project
    for start, body_at, end in candidates:
        span = span_at(payload, start)
        row.move_to(span)
        try:
            if view.test(row) if span.has_value else view.tombstone_test(row):
                if view.uses_value:
                    row.document()
                record = payload[start:end]
                if project is not None and span.has_value:
                    record = found.selected(with_value(payload, span, project(row)))
                found.deliver(body_at, record)
        except (InvalidDocument, JSONEncodeError):
            found.invalid += 1


def _test_documents(
    view: CompiledView, payload: bytes, candidates: Iterable[_Candidate], found: Matching
) -> None:
    """For conditions on the value alone: what lies before it in a record is hopped over."""
    test, project = view.test, view.project
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
                document = loads(payload[at:value_end])
                delivers = test(document)
            if delivers:
                record = payload[start:end]
                if project is not None and not raw & 1:
                    record = found.selected(with_value(payload, span_at(payload, start), project(document)))
                found.deliver(body_at, record)
        except (InvalidDocument, JSONEncodeError):
            found.invalid += 1


def _candidates(payload: bytes, count: int, needles: Sequence[bytes] | None) -> Iterator[_Candidate]:
    """The records that have one of the needles; all of them if there are none to search for.

    Needles that each of the first records has are no longer searched for: it would only cost time.
    """
    size = len(payload)
    next_hit = None if needles is None else hit_finder(payload, needles)
    hit = -1 if next_hit is None else next_hit(0)
    position = looked_at = 0
    for number in range(count):
        if hit == size:
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
            continue
        yield start, body_at, position
        if next_hit is not None:
            looked_at += 1
            if looked_at == _IN_VAIN and looked_at == number + 1:
                hit, next_hit = -1, None
            else:
                hit = next_hit(position)
    if position != size and hit != size:
        raise ProtocolError(f"{size - position} bytes left over after the {count} records of a batch")


def hit_finder(payload: bytes, needles: Sequence[bytes]) -> Callable[[int], int]:
    """A function that says where the next of the needles is at or after a position: the payload's size if
    there is none. Positions must rise; then all calls together search the payload once for each needle."""
    size = len(payload)
    places = [-1] * len(needles)

    def next_hit(position: int) -> int:
        nearest = size
        for number, place in enumerate(places):
            if place < position:
                place = payload.find(needles[number], position)
                if place < 0:
                    place = size
                places[number] = place
            if place < nearest:
                nearest = place
        return nearest

    return next_hit
