"""DescribeActivity: counters, times of requests and recent events of this broker, for the console."""

from __future__ import annotations

from collections.abc import Iterator

from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.server import Server
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.telemetry.recent_events import RecentEvents
from forebay.broker.telemetry.request_times import BOUNDS_MS, Histogram, RequestTimes
from forebay.wire.api_keys import ApiKey
from forebay.wire.messages import api_name
from forebay.wire.messages.describe_activity import (
    BrokerEvent,
    DescribeActivityRequest,
    DescribeActivityResponse,
    RequestTimesOf,
)


def handle(
    metrics: Metrics,
    events: RecentEvents,
    server: Server,
    _: RequestContext,
    request: DescribeActivityRequest,
) -> DescribeActivityResponse:
    return DescribeActivityResponse(
        messages_in=metrics.messages_in,
        bytes_in=metrics.bytes_in,
        bytes_out=metrics.bytes_out,
        connections=server.connection_count,
        bounds_ms=list(BOUNDS_MS),
        times=list(_times(metrics.requests)),
        events=[BrokerEvent(**each._asdict()) for each in events.after(request.events_after)],
    )


def _times(requests: RequestTimes) -> Iterator[RequestTimesOf]:
    for api_key, found in sorted(requests.by_api.items()):
        if api_key == ApiKey.FETCH:
            yield _described("FetchConsumer", found.times)
            yield _described("FetchFollower", found.from_brokers)
        else:
            yield _described(api_name(api_key), found.times)


def _described(name: str, times: Histogram) -> RequestTimesOf:
    return RequestTimesOf(name=name, count=sum(times.counts), counts=times.counts, sum_ms=times.sum_ms)
