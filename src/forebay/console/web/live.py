"""Server-sent events: one stream per tab, with whatever its page wants to see live.

`/api/CLUSTER/events?...` sends `look` after each look at the cluster. A page module may have a source of its
own (`LIVE`, a `LiveSource`); the query says which the page wants. Events wait in a queue of fixed length: if
the browser is slow, the oldest are dropped, and an event `skipped` says how many. A comment each few seconds
keeps proxies from closing the stream, and shows a reader that has gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from forebay.console.watch.cluster_access import ClusterAccess
from forebay.console.web.answering import Answering, problem
from forebay.errors import ForebayError

HEARTBEAT_SECONDS = 15.0
QUEUE_EVENTS_MAX = 64
STREAMS_MAX = 100


class Event(NamedTuple):
    kind: str
    data: bytes
    """JSON."""
    id: str = ""
    """For `Last-Event-ID`: where a source goes on after a lost connection."""
    weight: int = 1
    """The number of things that are lost with it."""

    def encoded(self) -> bytes:
        head = f"id: {self.id}\n" if self.id else ""
        return f"{head}event: {self.kind}\ndata: ".encode() + self.data + b"\n\n"


class EventQueue:
    """Between threads that put events and the stream that sends them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, capacity: int = QUEUE_EVENTS_MAX) -> None:
        self._loop = loop
        self._events: deque[Event] = deque()
        self._capacity = capacity
        self._wake = asyncio.Event()
        self.skipped = 0
        self.closed = False

    def put(self, event: Event) -> None:
        """From any thread."""
        if not self.closed:
            self._loop.call_soon_threadsafe(self._put, event)

    def put_json(self, kind: str, value: Any, *, id: str = "", weight: int = 1) -> None:
        self.put(Event(kind, orjson.dumps(value), id, weight))

    def _put(self, event: Event) -> None:
        if len(self._events) >= self._capacity:
            self.skipped += self._events.popleft().weight
        self._events.append(event)
        self._wake.set()

    async def take(self, timeout_s: float) -> list[Event]:
        """All that wait; none after the time."""
        if not self._events:
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), timeout_s)
            except TimeoutError:
                return []
        taken = list(self._events)
        self._events.clear()
        if self.skipped:
            taken.insert(0, Event("skipped", orjson.dumps({"count": self.skipped})))
            self.skipped = 0
        return taken


LiveSource = Callable[[ClusterAccess, Mapping[str, str], str, EventQueue], Callable[[], None]]
"""Starts to put events; returns the function that ends that. Called in a thread, with the query of the stream
and the id of the last event that the browser has seen."""


def looks(
    cluster: ClusterAccess, _query: Mapping[str, str], _last_id: str, queue: EventQueue
) -> Callable[[], None]:
    """The source of `look`: totals after each look at the cluster."""

    def tell() -> None:
        picture, trouble = cluster.watcher.last_seen()
        if trouble is not None:
            queue.put_json("look", {"problem": trouble})
            return
        if picture is None:
            return  # the first look is under way
        rates = [t.rate for t in picture.topics.values() if t.rate is not None and not t.internal]
        lags = [group.lag for group in picture.groups.values() if group.lag is not None]
        queue.put_json(
            "look",
            {
                "number": picture.number,
                "t": picture.time_s,
                "in": round(sum(rates), 1) if rates else None,
                "lag": sum(lags),
                "problem": None,
            },
        )

    end = cluster.watcher.listen(tell)
    tell()
    return end


class Live:
    """The endpoint of streams."""

    def __init__(self, answering: Answering, sources: Mapping[str, LiveSource]) -> None:
        self._answering = answering
        self._sources = {"looks": looks, **sources}
        self._open = 0

    async def endpoint(self, request: Request) -> Response:
        session = self._answering.session_of(request)
        if session is None:
            return self._answering.unauthorized()
        cluster = session.clusters.get(request.path_params["cluster"])
        if cluster is None:
            return problem(404, "there is no such cluster here")
        if self._open >= STREAMS_MAX:
            return problem(503, "too many pages are open: close some")
        wanted = [name for name in request.query_params.get("sources", "looks").split(",") if name]
        unknown = [name for name in wanted if name not in self._sources]
        if unknown:
            return problem(404, f"there is no live source {unknown[0]}")
        last_id = request.headers.get("last-event-id") or request.query_params.get("last_id", "")
        query = dict(request.query_params)
        queue = EventQueue(asyncio.get_running_loop())
        sources = [self._sources[name] for name in wanted]
        return StreamingResponse(
            self._stream(sources, cluster, query, last_id, queue),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no"},
        )

    async def _stream(
        self,
        sources: list[LiveSource],
        cluster: ClusterAccess,
        query: Mapping[str, str],
        last_id: str,
        queue: EventQueue,
    ) -> AsyncIterator[bytes]:
        self._open += 1
        ends: list[Callable[[], None]] = []
        try:
            yield b"retry: 1000\n\n"
            for source in sources:
                try:
                    ends.append(await asyncio.to_thread(source, cluster, query, last_id, queue))
                except ForebayError as error:
                    yield Event("trouble", orjson.dumps({"error": str(error)})).encoded()
            while True:
                events = await queue.take(HEARTBEAT_SECONDS)
                yield b"".join(event.encoded() for event in events) or b": here\n\n"
        finally:
            self._open -= 1
            queue.closed = True
            for end in ends:
                end()
