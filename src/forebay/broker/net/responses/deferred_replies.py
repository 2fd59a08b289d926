"""Responses that come later: each holds the place of its request in the order of its connection."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from forebay.broker.background import Background
from forebay.broker.telemetry.request_times import Measurement
from forebay.wire.frames import response_frame
from forebay.wire.parts import Part

log = logging.getLogger(__name__)


class RepliesInOrder(Protocol):
    """The part of a connection that a reply needs."""

    closed: bool

    def hold(self, parts: list[Part]) -> None:
        """Count a response that is ready before its turn."""

    def drain(self) -> None:
        """Send every response whose turn it is."""

    def drain_soon(self) -> None:
        """Like `drain`, once for all responses that become ready in this turn of the loop."""

    def close(self) -> None: ...


class Reply:
    """The place of one response in its connection's order, filled when the response is known."""

    __slots__ = ("_connection", "_key", "measurement", "on_abandoned", "on_overtaken", "parts", "pipelined")

    def __init__(self, connection: RepliesInOrder, key: tuple[int, int, int], *, pipelined: bool) -> None:
        self._connection = connection
        self._key = key
        self.pipelined = pipelined
        self.parts: list[Part] | None = None
        self.on_abandoned: Callable[[], None] | None = None
        """Called when the client goes before the response is known."""
        self.measurement: Measurement | None = None
        """Ends when the response is known."""
        self.on_overtaken: Callable[[], None] | None = None
        """Called when a request of another kind has come behind this one, which could be answered early."""

    @property
    def abandoned(self) -> bool:
        """The client has disconnected, so this response will not be read."""
        return self._connection.closed

    def resolve(self, response: Any) -> None:
        """Fill in the response and send what has become ready. Resolving twice is a bug."""
        self.fill(response_frame(*self._key, response))
        self._connection.drain()

    def resolve_soon(self, response: Any) -> None:
        """Like `resolve`, but the response leaves together with all that become ready in this turn of the
        loop."""
        self.fill_soon(response_frame(*self._key, response))

    def fill_soon(self, parts: list[Part]) -> None:
        self.fill(parts)
        self._connection.drain_soon()

    def fill(self, parts: list[Part]) -> None:
        assert self.parts is None, "a reply is resolved once"
        self.parts = parts
        self._connection.hold(parts)
        if self.measurement is not None:
            self.measurement.end()

    def give_up(self) -> None:
        """The request is handled, and the protocol has no response to it: those behind it may go on."""
        self.fill_soon([])

    def abort(self) -> None:
        """No response can be given: the protocol's only way to say so is to close the connection."""
        self._connection.close()


class CompletedReply(Reply):
    """A reply whose response is made whole before it is sent: its handler saw a part of the request."""

    __slots__ = ("_complete",)

    def __init__(
        self,
        connection: RepliesInOrder,
        key: tuple[int, int, int],
        complete: Callable[[Any], Any],
        *,
        pipelined: bool,
    ) -> None:
        super().__init__(connection, key, pipelined=pipelined)
        self._complete = complete

    def resolve(self, response: Any) -> None:
        super().resolve(self._complete(response))

    def resolve_soon(self, response: Any) -> None:
        super().resolve_soon(self._complete(response))

    def give_up(self) -> None:
        """There is no response that could say what was refused: the end of the connection says so."""
        self._connection.close()


def answer_later(background: Background, reply: Reply, work: Coroutine[Any, Any, Any], doing: str) -> Reply:
    """Resolve a reply with what a coroutine returns, beside the event loop's other work."""
    background.spawn(answer_with(reply, work), doing, work)
    return reply


async def answer_with(reply: Reply, work: Awaitable[Any]) -> None:
    """Resolve a reply with what the work returns."""
    try:
        reply.resolve(await work)
    except Exception:
        log.exception("a request could not be handled")
        reply.abort()
