"""The endpoint of Produce for brokers that send spans: it keeps the batches that may have traces.

A batch that is compressed may have them, and one in which the name of the header occurs. They are copied, as
the memory of a request is used again; a thread looks at them later. Such an endpoint has no fast path for
repeated requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forebay.broker.net.dispatch import Endpoint
from forebay.broker.net.request_context import RequestContext
from forebay.broker.produce.span_export import SpanExport
from forebay.broker.produce.spans import TRACEPARENT, TracedBatches
from forebay.errors import known_code
from forebay.wire.batch import read_header
from forebay.wire.messages.produce import ProduceRequest, ProduceResponse

_NAME = TRACEPARENT.encode()
_HEADER_BYTES = 61
_Kept = dict[tuple[str, bytes, int], bytes]
"""By the topic's name or id, and the partition."""


def traced(
    endpoint: Endpoint,
    export: SpanExport,
    *,
    now_ms: Callable[[], int],
    uptime_s: Callable[[], float],
    topic_names: Callable[[], Mapping[bytes, str]],
) -> Endpoint:
    def handle(context: RequestContext, request: ProduceRequest) -> Any:
        kept = _kept(request)
        if not kept or not request.acks:
            return endpoint.handle(context, request)
        start_ns, began_s = now_ms() * 1_000_000, uptime_s()

        def observe(response: ProduceResponse) -> Any:
            end_ns = start_ns + int((uptime_s() - began_s) * 1e9)
            for batches in _answered(
                kept, response, topic_names(), start_ns, end_ns, context.client_id or ""
            ):
                export.add(batches)
            return response if context.complete is None else context.complete(response)

        return endpoint.handle(context._replace(complete=observe), request)

    return endpoint._replace(handle=handle, remember=None)


def _kept(request: ProduceRequest) -> _Kept:
    kept: _Kept = {}
    for topic in request.topic_data:
        for partition in topic.partition_data:
            data = b"" if partition.records is None else bytes(partition.records)
            if _may_have_traces(data):
                kept[topic.name, topic.topic_id, partition.index] = data
    return kept


def _may_have_traces(data: bytes) -> bool:
    return len(data) >= _HEADER_BYTES and (bool(read_header(data).codec) or _NAME in data)


def _answered(
    kept: _Kept,
    response: ProduceResponse,
    names: Mapping[bytes, str],
    start_ns: int,
    end_ns: int,
    client_id: str,
) -> list[TracedBatches]:
    return [
        TracedBatches(
            topic=topic.name or names.get(topic.topic_id, topic.topic_id.hex()),
            partition=each.index,
            data=kept[topic.name, topic.topic_id, each.index],
            base_offset=each.base_offset,
            error=known_code(each.error_code).name if each.error_code else "",
            start_ns=start_ns,
            end_ns=end_ns,
            client_id=client_id,
        )
        for topic in response.responses
        for each in topic.partition_responses
        if (topic.name, topic.topic_id, each.index) in kept
    ]
