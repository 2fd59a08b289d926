"""The records of a batch that a view lets through, found with as little reading as possible.

Written straight-line: it runs for every record of a view's topic. A record that is not delivered is read only
as far as the condition needs it; one that is delivered is checked as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from orjson import JSONEncodeError, loads

from forebay.core.views.rows import InvalidDocument, Row
from forebay.core.views.view import CompiledView
from forebay.errors import ProtocolError
from forebay.wire.batch import BatchHeader
from forebay.wire.record_spans import RecordSpan, check_place, span_at, with_value
from forebay.wire.varint import read_varint

_NO_HIT_NEEDED = -1


class Matching(NamedTuple):
    spans: list[RecordSpan]
    records: list[bytes]
    """What each of them is in the view."""
    invalid: int


def matching_records(view: CompiledView, payload: bytes, header: BatchHeader, row: Row) -> Matching:
    """Raises ProtocolError where the bytes are no records."""
    try:
        return _matching(view, payload, header, row)
    except IndexError:
        raise ProtocolError("record runs past the end of its batch") from None


def _matching(view: CompiledView, payload: bytes, header: BatchHeader, row: Row) -> Matching:
    spans: list[RecordSpan] = []
    records: list[bytes] = []
    invalid = 0
    size = len(payload)
    hit, next_hit = _NO_HIT_NEEDED, None
    if view.needles is not None:
        next_hit = hit_finder(payload, view.needles)
        hit = next_hit(0)
        if hit == size:
            return Matching(spans, records, invalid)
    takes_document, test, tombstone_test = view.takes_document, view.test, view.tombstone_test
    position, before = 0, -1
    for _ in range(header.record_count):
        start = position
        length, body_at = payload[start], start + 1
        if length >= 0x80:
            length, body_at = read_varint(payload, start)
        else:
            length = (length >> 1) ^ -(length & 1)
        position = body_at + length
        if length < 0 or position > size:
            raise ProtocolError(f"record of {length} bytes does not fit in its batch")
        if position <= hit:
            continue
        try:
            if takes_document:
                value = _value_of(payload, body_at, position)
                if value is None:
                    subject = None
                    matches = tombstone_test(None)
                else:
                    subject = loads(value)
                    matches = test(subject)
            else:
                span = span_at(payload, start)
                row.move_to(span)
                subject = row
                matches = test(row) if span.has_value else tombstone_test(row)
                if matches and view.uses_value:
                    row.document()
            if matches:
                span = span_at(payload, start)
                check_place(span, before, header)
                before = span.offset_delta
                records.append(_shown(view, payload, span, subject))
                spans.append(span)
        except (InvalidDocument, JSONEncodeError):
            invalid += 1
        if next_hit is not None:
            hit = next_hit(position)
            if hit == size:
                return Matching(spans, records, invalid)
    if position != size:
        raise ProtocolError(f"{size - position} bytes left over after the records of a batch")
    return Matching(spans, records, invalid)


def _shown(view: CompiledView, payload: bytes, span: RecordSpan, subject: object) -> bytes:
    if view.project is None or not span.has_value:
        return payload[span.start : span.end]
    return with_value(payload, span, view.project(subject))


def _value_of(payload: bytes, body_at: int, end: int) -> bytes | None:
    """The value of a record. What lies before it is hopped over: nothing but the value is asked for."""
    at = body_at + 1  # past the record's attributes
    while payload[at] >= 0x80:  # the timestamp delta
        at += 1
    at += 1
    while payload[at] >= 0x80:  # the offset delta
        at += 1
    length, at = read_varint(payload, at + 1)
    if length > 0:
        at += length
    length, at = read_varint(payload, at)
    if length < 0:
        return None
    if at + length >= end:
        raise ProtocolError("record's fields do not fit in its length")
    return payload[at : at + length]


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
