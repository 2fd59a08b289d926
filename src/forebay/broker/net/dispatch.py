"""From a frame to its handler and back.

An endpoint is one API in the versions that are served, with its handler. A handler takes the context of a
request and the request, and returns
  - the response, which is sent at once, or an EncodedResponse, if many clients get the same;
  - a coroutine that returns the response, for requests that have to wait for other parts;
  - a Reply made by `context.defer()`, which is resolved later;
  - None when the protocol has no response (produce with acks=0).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from forebay.broker.background import Background
from forebay.broker.net.connection import Connection
from forebay.broker.net.request_context import Meter, RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_with
from forebay.broker.net.scheduling.watched_steps import WatchedSteps
from forebay.broker.telemetry.request_times import ApiTimes, Measurement, RequestTimes
from forebay.broker.telemetry.stalls import StallWatch
from forebay.core.large_requests.table import cut_from_bytes, division_of, has_large_answers
from forebay.errors import TooManyElements, UnservedRequest
from forebay.wire.api_keys import ApiKey
from forebay.wire.codec.compiled import bounded_decoder, decoder
from forebay.wire.frames import EncodedResponse, RequestHeader, read_request_header, response_frame
from forebay.wire.messages import api, api_name

log = logging.getLogger(__name__)

COUNTED_FROM_BYTES = 4096
"""Elements take bytes, so that only longer requests can hold many. Of those the elements are counted."""
AT_ONCE_ELEMENTS_MAX = 2000
"""The most elements that are decoded at once. A request with more is decoded in slices."""


_UNUSED_TIMES = ApiTimes(is_sampled=True)


class Endpoint(NamedTuple):
    api_key: int
    min_version: int
    max_version: int
    handle: Callable[[RequestContext, Any], Any]
    remember: Callable[[RequestContext, Any, memoryview], None] | None = None
    """Called after `handle`, with the frame: makes a fast path for requests with the same header."""
    looked_at_from: int = 0
    """Requests that have this many bytes may have so many elements that they are handled in slices."""
    times: ApiTimes = _UNUSED_TIMES
    """Where its requests are counted and measured."""


class LargeRequests(Protocol):
    """Handles requests in slices."""

    def take_frame(
        self, endpoint: Endpoint, context: RequestContext, frame: memoryview, start: int, elements: int
    ) -> None:
        """Decode a request and handle it. Its body begins at `start` and has at least this many elements."""

    def take(self, endpoint: Endpoint, context: RequestContext, request: Any, frame_bytes: int) -> None:
        """Handle a request that is decoded."""

    def has_large_answer(self, context: RequestContext, request: Any) -> bool:
        """True if the answer of a request is so large that it is to be made here."""


class Dispatcher:
    """Hands each frame to the endpoint of its API."""

    def __init__(
        self,
        open_endpoint: Callable[[int], Endpoint | None],
        background: Background,
        large: LargeRequests,
        stalls: StallWatch,
        requests: RequestTimes,
        now: Callable[[], float],
    ) -> None:
        """`open_endpoint` is asked for the endpoint of an API with its first request; None if there is none.
        `stalls` hears of requests that are handled in several turns of the loop, and block it in one."""
        self._open_endpoint = open_endpoint
        self._endpoints: dict[int, Endpoint] = {}
        self._background = background
        self._large = large
        self._stalls = stalls
        self._requests = requests
        self._now = now
        self.meter: Meter | None = None
        """None while no client has a quota."""

    def handle(self, connection: Connection, frame: memoryview) -> None:
        header, position = read_request_header(frame)
        self.handle_body(connection, frame, header, position)

    def handle_body(
        self, connection: Connection, frame: memoryview, header: RequestHeader, position: int
    ) -> None:
        """Like `handle`, for a frame whose header was read; `position` is where its body begins."""
        endpoint = self._endpoints.get(header.api_key) or self.open(header.api_key)
        version = header.api_version
        if endpoint is None or not endpoint.min_version <= version <= endpoint.max_version:
            self._refuse(connection, header)
            return
        times = endpoint.times
        count = times.count = times.count + 1
        if count >= times.measured_from:
            self._handle_measured(times, connection, frame, header, position)
            return
        context = RequestContext(connection, header.api_key, version, header.correlation_id, header.client_id)
        if self.meter is not None:
            self._handle_metered(self.meter, endpoint, context, frame, header, position)
            return
        # Bytes behind the request are passed over, as Kafka does: librdkafka leaves some behind Metadata.
        if len(frame) < endpoint.looked_at_from:
            request, end = decoder(api(header.api_key).request, version)(frame, position)
        else:
            decoded = self._decode(endpoint, context, frame, position)
            if decoded is None:
                return
            request, end = decoded
        outcome = endpoint.handle(context, request)
        if endpoint.remember is not None and end == len(frame):
            endpoint.remember(context, request, frame)
        if outcome is None or isinstance(outcome, Reply):
            return
        if asyncio.iscoroutine(outcome):
            watched = self._watched(outcome, connection, header, len(frame))
            work = answer_with(context.defer(), watched)
            self._background.spawn(work, "answering a request", outcome)
            return
        _respond(connection, header.api_key, version, header.correlation_id, outcome)

    def open(self, api_key: int) -> Endpoint | None:
        """Have an API ready for requests."""
        endpoint = self._endpoints.get(api_key) or self._open_endpoint(api_key)
        if endpoint is not None:
            self._endpoints[api_key] = endpoint._replace(
                looked_at_from=_looked_at_from(api_key), times=self._requests.of(api_key)
            )
        return self._endpoints.get(api_key)

    def _handle_measured(
        self,
        times: ApiTimes,
        connection: Connection,
        frame: memoryview,
        header: RequestHeader,
        position: int,
    ) -> None:
        """Handle a request, and measure how long that takes, also if its answer comes later."""
        began_s = connection.last_active
        weight = times.begin(began_s)
        before = connection.replies[-1] if connection.replies else None
        times.count -= 1
        self.handle_body(connection, frame, header, position)
        is_follower = header.api_key == ApiKey.FETCH and not connection.consumes
        histogram = times.from_brokers if is_follower else times.times
        measurement = Measurement(histogram, weight, began_s, self._now)
        last = connection.replies[-1] if connection.replies else None
        if last is None or last is before or last.parts is not None:
            measurement.end()
        else:
            last.measurement = measurement

    def _watched(
        self, work: Coroutine[Any, Any, Any], connection: Connection, header: RequestHeader, size: int
    ) -> WatchedSteps:
        stalls = self._stalls
        return WatchedSteps(
            work,
            self._now,
            stalls.alarm_s,
            lambda seconds: stalls.caused_by(connection.describe(header, size), seconds),
        )

    def _decode(
        self, endpoint: Endpoint, context: RequestContext, frame: memoryview, position: int
    ) -> tuple[Any, int] | None:
        """The request and where it ends; None if it is large, and handled in slices."""
        api_key, size = context.api_key, len(frame)
        cls = api(api_key).request
        if size <= COUNTED_FROM_BYTES:
            decoded = decoder(cls, context.api_version)(frame, position)
        else:
            try:
                decoded = bounded_decoder(cls, context.api_version)(frame, position, AT_ONCE_ELEMENTS_MAX)
            except TooManyElements as error:
                self._large.take_frame(endpoint, context, frame, position, error.found)
                return None
        if cut_from_bytes(api_key) is not None:
            division = division_of(api_key, decoded[0])
            is_large = division is not None and division.is_large(decoded[0])
            if is_large or (has_large_answers(api_key) and self._large.has_large_answer(context, decoded[0])):
                self._large.take(endpoint, context, decoded[0], size)
                return None
        return decoded

    def _handle_metered(
        self,
        meter: Meter,
        endpoint: Endpoint,
        context: RequestContext,
        frame: memoryview,
        header: RequestHeader,
        position: int,
    ) -> None:
        """Like `handle_body`, while there are quotas: all work for a client that has one is counted."""
        if meter.owed_s(context) > 0:
            self._large.take_frame(endpoint, context, frame, position, 0)
            return
        began_s = meter.now()
        decoded = self._decode(endpoint, context, frame, position)
        if decoded is None:
            meter.count(context, began_s)
            return
        request, end = decoded
        outcome = meter.handle(endpoint.handle, context, request, len(frame), began_s)
        if endpoint.remember is not None and end == len(frame) and not meter.limits(context):
            endpoint.remember(context, request, frame)  # on the fast path nothing is counted
        if outcome is None or isinstance(outcome, Reply):
            return
        if asyncio.iscoroutine(outcome):
            watched = self._watched(outcome, context.connection, header, len(frame))
            work = _resolved(meter, context, context.defer(), watched)
            self._background.spawn(work, "answering a request", outcome)
            return
        began_s = meter.now()
        _respond(context.connection, context.api_key, context.api_version, context.correlation_id, outcome)
        meter.count(context, began_s)

    def _refuse(self, connection: Connection, header: RequestHeader) -> None:
        """ApiVersions is answered in its oldest form, so that any client can learn what is served here.

        No other API has a response that a client could read in a version the two do not share: the
        connection is closed, as Kafka does.
        """
        if header.api_key != ApiKey.API_VERSIONS:
            raise UnservedRequest(self._unserved(header))
        endpoint = self.open(ApiKey.API_VERSIONS)
        assert endpoint is not None, "ApiVersions is served"
        context = RequestContext(connection, ApiKey.API_VERSIONS, 0, header.correlation_id, header.client_id)
        handle, meter = endpoint.handle, self.meter
        if meter is None:
            response = handle(context, None)
        else:
            response = meter.handle(handle, context, None, 0, meter.now())
        _respond(connection, ApiKey.API_VERSIONS, 0, header.correlation_id, response)

    def _unserved(self, header: RequestHeader) -> str:
        """Which API in which version, and which versions of it there are."""
        known = self.open(header.api_key)
        wanted = f"{api_name(header.api_key)} in version {header.api_version}"
        if known is None:
            return f"{wanted}: there is no such API here"
        return f"{wanted}: served are {known.min_version} to {known.max_version}"


def _looked_at_from(api_key: int) -> int:
    size = cut_from_bytes(api_key)
    return COUNTED_FROM_BYTES if size is None else size


def _respond(connection: Connection, api_key: int, version: int, correlation_id: int, response: Any) -> None:
    if isinstance(response, EncodedResponse):
        connection.respond_with(response.frame(correlation_id))
    else:
        connection.respond(response_frame(api_key, version, correlation_id, response))


async def _resolved(meter: Meter, context: RequestContext, reply: Reply, work: Awaitable[Any]) -> None:
    """Like `answer_with`, for a client that has a quota: encoding counts too."""
    try:
        response = await work
        began_s = meter.now()
        reply.resolve(response)
        meter.count(context, began_s)
    except Exception:
        log.exception("a request could not be handled")
        reply.abort()
