"""The context of a request, which its handler gets with the body, and the port by which quotas count it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

from forebay.broker.net.connection import Connection
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.core.step import RequestInfo

T = TypeVar("T")
P = ParamSpec("P")


class Note(Protocol):
    """Collects one thing that the pieces of a request have to say, for one line of a log."""

    def add(self, found: Sequence[Any]) -> None: ...
    def end(self) -> None:
        """There are no more pieces: log it."""


class RequestContext(NamedTuple):
    """The facts about a request besides its body, for its handler."""

    connection: Connection
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    complete: Callable[[Any], Any] | None = None
    """Makes the response whole, if the handler is given only a part of the request."""
    place: Callable[[Callable[[Any], Any] | None], Reply] | None = None
    """Makes what `defer` gives, if the response is one part of another."""
    part: Any = None
    """The part of a large answer that is to be made now (`core/large_requests/answer_parts.py`); None: all of
    it."""
    notes: dict[str, Note] | None = None
    """The lines to log of the request at its end, if it is handled in pieces."""
    about: list[str] | None = None
    """Names for the audit log, if it has a line about the request; see `concerns`."""
    meter: Meter | None = None
    """Counts what is done for the request after its handler has returned, if the client has a quota."""

    @property
    def info(self) -> RequestInfo:
        """The part of it that coordinators use, which know nothing of connections."""
        connection = self.connection
        return RequestInfo(
            self.api_version, self.client_id or "", connection.peer[0], principal=connection.principal
        )

    def concerns(self, name: str) -> None:
        """Have the audit log name this, where the fields of the request do not tell what it is about."""
        if self.about is not None:
            self.about.append(name)

    def counted(self, callback: Callable[P, T]) -> Callable[P, T]:
        """The callback, to be called later. If the client has a quota, the time of the call counts."""
        meter = self.meter
        if meter is None:
            return callback

        def measured(*args: P.args, **kwargs: P.kwargs) -> T:
            began_s = meter.now()
            try:
                return callback(*args, **kwargs)
            finally:
                meter.count(self, began_s)

        return measured

    def counted_work(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return work if self.meter is None else self.meter.counted(self, work)

    def defer(self, *, pipelined: bool = False) -> Reply:
        if self.place is not None:
            return self.place(self.complete)
        return self.connection.defer(
            self.api_key,
            self.api_version,
            self.correlation_id,
            pipelined=pipelined,
            complete=self.complete,
        )


class Meter(Protocol):
    """Counts the requests of clients that have a quota."""

    def now(self) -> float: ...

    def limits(self, context: RequestContext) -> bool:
        """True if any quota limits the client."""

    def owed_s(self, context: RequestContext) -> float:
        """How long until the client may have another request handled; 0 if now."""

    def handle(
        self,
        handle: Callable[[RequestContext, Any], Any],
        context: RequestContext,
        request: Any,
        frame_bytes: int,
        began_s: float,
    ) -> Any:
        """Have `handle` handle the request, and count it from when work on it began; what that returned."""

    def count(self, context: RequestContext, began_s: float) -> None:
        """Count the time since then."""

    def counted(self, context: RequestContext, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The work as a coroutine that counts its time for the client."""
