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
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from forebay.broker.background import Background
from forebay.broker.net.connection import Connection
from forebay.broker.net.deferred_replies import Reply
from forebay.broker.net.watched_steps import WatchedSteps
from forebay.broker.telemetry.stalls import StallWatch
from forebay.core.step import RequestInfo
from forebay.errors import UnservedRequest
from forebay.wire.codec import decoder
from forebay.wire.frames import EncodedResponse, RequestHeader, read_request_header, response_frame
from forebay.wire.messages import api, api_name

log = logging.getLogger(__name__)

API_VERSIONS_KEY = 18


class Endpoint(NamedTuple):
    api_key: int
    min_version: int
    max_version: int
    handle: Callable[[RequestContext, Any], Any]
    remember: Callable[[RequestContext, Any, memoryview], None] | None = None
    """Called after `handle`, with the frame: makes a fast path for requests with the same header."""


class RequestContext(NamedTuple):
    """What a handler may want to know about the request besides its body."""

    connection: Connection
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    complete: Callable[[Any], Any] | None = None
    """Makes the response whole, if the handler is given only a part of the request."""

    @property
    def info(self) -> RequestInfo:
        """The part of it that coordinators use, which know nothing of connections."""
        connection = self.connection
        return RequestInfo(
            self.api_version, self.client_id or "", connection.peer[0], principal=connection.principal
        )

    def defer(self, *, pipelined: bool = False) -> Reply:
        return self.connection.defer(
            self.api_key,
            self.api_version,
            self.correlation_id,
            pipelined=pipelined,
            complete=self.complete,
        )


class Meter(Protocol):
    """Counts the requests of clients that have a quota."""

    def limits(self, context: RequestContext) -> bool:
        """Whether anything limits the client."""

    def handle(
        self,
        handle: Callable[[RequestContext, Any], Any],
        context: RequestContext,
        request: Any,
        frame_bytes: int,
    ) -> Any:
        """Have `handle` handle the request, and count it; what that returned."""


class Dispatcher:
    """Hands each frame to the endpoint of its API."""

    def __init__(
        self,
        endpoints: Mapping[int, Endpoint],
        background: Background,
        stalls: StallWatch,
        now: Callable[[], float],
    ) -> None:
        """`stalls` is told of requests that are handled in several turns of the loop, and block it in one."""
        self._endpoints = endpoints
        self._background = background
        self._stalls = stalls
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
        endpoint = self._endpoints.get(header.api_key)
        version = header.api_version
        if endpoint is None or not endpoint.min_version <= version <= endpoint.max_version:
            self._refuse(connection, header)
            return
        # Bytes behind the request are passed over, as Kafka does: librdkafka leaves some behind Metadata.
        request, end = decoder(api(header.api_key).request, version)(frame, position)
        context = RequestContext(connection, header.api_key, version, header.correlation_id, header.client_id)
        meter, remembers = self.meter, endpoint.remember is not None and end == len(frame)
        if meter is None:
            outcome = endpoint.handle(context, request)
        else:
            outcome = meter.handle(endpoint.handle, context, request, len(frame))
            remembers = remembers and not meter.limits(context)  # on the fast path nothing is counted
        if remembers:
            assert endpoint.remember is not None
            endpoint.remember(context, request, frame)
        if outcome is None or isinstance(outcome, Reply):
            return
        if asyncio.iscoroutine(outcome):
            watched = self._watched(outcome, connection, header, len(frame))
            work = answer_with(context.defer(), watched)
            self._background.spawn(work, "answering a request", outcome)
            return
        _respond(connection, header.api_key, version, header.correlation_id, outcome)

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

    def _refuse(self, connection: Connection, header: RequestHeader) -> None:
        """ApiVersions is answered in its oldest form, so that any client can learn what is served here.

        No other API has a response that a client could read in a version the two do not share: the
        connection is closed, as Kafka does.
        """
        if header.api_key != API_VERSIONS_KEY:
            raise UnservedRequest(self._unserved(header))
        endpoint = self._endpoints[API_VERSIONS_KEY]
        context = RequestContext(connection, API_VERSIONS_KEY, 0, header.correlation_id, header.client_id)
        handle, meter = endpoint.handle, self.meter
        response = handle(context, None) if meter is None else meter.handle(handle, context, None, 0)
        _respond(connection, API_VERSIONS_KEY, 0, header.correlation_id, response)

    def _unserved(self, header: RequestHeader) -> str:
        """Which API in which version, and which versions of it there are."""
        known = self._endpoints.get(header.api_key)
        wanted = f"{api_name(header.api_key)} in version {header.api_version}"
        if known is None:
            return f"{wanted}: there is no such API here"
        return f"{wanted}: served are {known.min_version} to {known.max_version}"


def _respond(connection: Connection, api_key: int, version: int, correlation_id: int, response: Any) -> None:
    if isinstance(response, EncodedResponse):
        connection.respond_with(response.frame(correlation_id))
    else:
        connection.respond(response_frame(api_key, version, correlation_id, response))


def answer_later(background: Background, reply: Reply, work: Coroutine[Any, Any, Any], doing: str) -> None:
    """Resolve a reply with what a coroutine returns, beside the event loop's other work."""
    background.spawn(answer_with(reply, work), doing, work)


async def answer_with(reply: Reply, work: Awaitable[Any]) -> None:
    """Resolve a reply with what the work returns."""
    try:
        reply.resolve(await work)
    except Exception:
        log.exception("a request could not be handled")
        reply.abort()
