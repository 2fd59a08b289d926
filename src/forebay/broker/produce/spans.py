"""Spans for messages, by the W3C header `traceparent` that their producers sent, as OTLP has them in JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from forebay.errors import ProtocolError
from forebay.wire.batch import checked_batches, records

TRACEPARENT = "traceparent"
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1
_KIND_SERVER = 2
_STATUS_ERROR = 2
_SCOPE = "forebay"


class Parent(NamedTuple):
    trace_id: str
    span_id: str


class TracedBatches(NamedTuple):
    """A copy of the batch that was produced to one partition."""

    topic: str
    partition: int
    data: bytes
    base_offset: int
    error: str
    """The name of an error code; empty if it was appended."""
    start_ns: int
    end_ns: int
    client_id: str


class Span(NamedTuple):
    id: str
    parent: Parent
    offset: int
    of: TracedBatches


def parse_traceparent(value: bytes | None) -> Parent | None:
    """The span that a message belongs to; None if it has none, or its producer does not record it."""
    try:
        found = _FORM.fullmatch((value or b"").decode("ascii"))
    except UnicodeDecodeError:
        return None
    if found is None or not int(found[3], 16) & _SAMPLED:
        return None
    return Parent(found[1], found[2])


def spans_of(batches: TracedBatches, new_id: Callable[[], str], unpacked_bytes_max: int) -> Iterator[Span]:
    """A span for each message with a trace. What cannot be unpacked has none."""
    number = 0
    try:
        for batch, _ in checked_batches(memoryview(batches.data)):
            for record in records(batch, unpacked_bytes_max):
                header = next((value for name, value in record.headers if name == TRACEPARENT), None)
                parent = None if header is None else parse_traceparent(header)
                if parent is not None:
                    yield Span(new_id(), parent, batches.base_offset + number, batches)
                number += 1
    except ProtocolError:
        return


def otlp(spans: Sequence[Span], node_id: int, version: str) -> dict[str, Any]:
    """The body of a request to a collector."""
    resource = [_text("service.name", _SCOPE), _text("service.version", version)]
    resource.append(_text("service.instance.id", str(node_id)))
    scope = {"scope": {"name": _SCOPE, "version": version}, "spans": [_span(each) for each in spans]}
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [scope]}]}


def _span(span: Span) -> dict[str, Any]:
    of = span.of
    attributes = [
        _text("messaging.system", "kafka"),
        _text("messaging.operation.name", "append"),
        _text("messaging.destination.name", of.topic),
        _text("messaging.destination.partition.id", str(of.partition)),
        _text("messaging.client.id", of.client_id),
    ]
    if not of.error:
        attributes.append({"key": "messaging.kafka.offset", "value": {"intValue": str(span.offset)}})
    return {
        "traceId": span.parent.trace_id,
        "spanId": span.id,
        "parentSpanId": span.parent.span_id,
        "name": f"append {of.topic}",
        "kind": _KIND_SERVER,
        "startTimeUnixNano": str(of.start_ns),
        "endTimeUnixNano": str(of.end_ns),
        "attributes": attributes,
        "status": {"code": _STATUS_ERROR, "message": of.error} if of.error else {},
    }


def _text(name: str, value: str) -> dict[str, Any]:
    return {"key": name, "value": {"stringValue": value}}
