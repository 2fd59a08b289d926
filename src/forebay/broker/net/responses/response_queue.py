"""The output half of a connection: responses in the order of their requests, and when nothing more is read.

A request whose response is not ready yet (`Reply`) holds its place in the order.

Back-pressure is one rule: while a connection is *busy*, nothing more is read from it. It is busy while
its output does not drain, while a response is awaited that is not marked as pipelined (a long poll, an
administrative request), or while too many responses, or too large ones, wait for their turn. TCP passes
the pressure on to the client, and the memory it can cost stays bounded by what it may have in flight.
The same rule holds while it is *muted*, because its client is over a quota; responses are sent meanwhile.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from forebay.broker.net.responses.deferred_replies import CompletedReply, Reply
from forebay.broker.net.responses.sending import memory, send_parts
from forebay.broker.ports import Stream
from forebay.wire.parts import Part

_OUTPUT_BYTES_MAX = 1024 * 1024


class ResponsesHost(Protocol):
    """The parts of the server that the output of a connection needs."""

    loop: asyncio.AbstractEventLoop
    inflight_max: int

    def drain_soon(self, connection: Any) -> None:
        """Call its `drain` in the next turn of the loop."""


class Responses(ABC):
    __slots__ = (
        "_blocked",
        "_corked",
        "_held_bytes",
        "_muted",
        "_output",
        "_output_bytes",
        "_server",
        "_stream",
        "closed",
        "last_active",
        "replies",
        "was_muted",
    )

    def __init__(self, stream: Stream, server: ResponsesHost) -> None:
        self._stream = stream
        self._server = server
        self.replies: deque[Reply] | None = None  # made when the first response has to wait
        self._output: list[Part] = []
        self._output_bytes = 0  # of responses whose turn has come
        self._held_bytes = 0  # of responses that wait for their turn
        self._blocked = False
        self._corked = False  # while requests are handled, so that their responses leave together
        self._muted: asyncio.TimerHandle | None = None  # ends the time in which nothing is read
        self.was_muted = False  # whether it ever was
        self.closed = False
        self.last_active = server.loop.time()

    @abstractmethod
    def _drained(self) -> None:
        """Output has drained: take up reading again, if that was held back."""

    @abstractmethod
    def close(self) -> None: ...

    def respond(self, parts: list[Part]) -> None:
        """Queue a finished response behind those that are still awaited."""
        if self.replies:
            reply = Reply(self, (0, 0, 0), pipelined=True)
            reply.fill(parts)
            self.replies.append(reply)
        else:
            self._output += parts
            self._output_bytes += memory(parts)

    def respond_with(self, response: bytearray) -> None:
        """Like `respond`, for a response in one piece."""
        if self.replies:
            self.respond([response])
        else:
            self._output.append(response)
            self._output_bytes += len(response)

    def hold(self, parts: list[Part]) -> None:
        """Count a response that is ready before its turn."""
        self._held_bytes += memory(parts)

    def defer(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        *,
        pipelined: bool = False,
        complete: Callable[[Any], Any] | None = None,
    ) -> Reply:
        """Hold the place of a response that comes later; `complete` makes it whole."""
        key = (api_key, version, correlation_id)
        if complete is None:
            reply = Reply(self, key, pipelined=pipelined)
        else:
            reply = CompletedReply(self, key, complete, pipelined=pipelined)
        if self.replies is None:
            self.replies = deque()
        self.replies.append(reply)
        return reply

    def drain_soon(self) -> None:
        if not self._corked:
            self._server.drain_soon(self)

    def drain(self) -> None:
        """Send every response whose turn it is, then read on if that was held back."""
        if self.closed or self._corked:
            return
        replies = self.replies
        if replies:
            while replies and (parts := replies[0].parts) is not None:
                self._output += parts
                self._held_bytes -= memory(parts)
                replies.popleft()
        if self._output and not self._blocked:
            self._send()
        self._drained()

    def _send(self) -> None:
        """Send until everything is out or the socket takes no more."""
        stream, output = self._stream, self._output
        try:
            while output:
                send_parts(stream, output)
            self._output_bytes = 0
        except BlockingIOError:
            if not self._blocked:
                self._blocked = True
                stream.on_writable(self._on_writable)
        except OSError:
            # The client has gone, or the segment behind a range was deleted while a slow client read it.
            self.close()

    def _on_writable(self) -> None:
        self.last_active = self._server.loop.time()
        self._blocked = False
        self._stream.on_writable(None)
        self.drain()

    # -- back-pressure -------------------------------------------------------------------------------

    def _busy(self) -> bool:
        if self._blocked or self._muted is not None:
            return True
        replies = self.replies
        if not replies:
            return self._output_bytes > _OUTPUT_BYTES_MAX
        return (
            len(replies) >= self._server.inflight_max
            or self._held_bytes > _OUTPUT_BYTES_MAX
            or not replies[-1].pipelined
        )

    def mute(self, seconds: float) -> None:
        """Read nothing more for this time. Responses are sent meanwhile, and nothing is lost."""
        if self.closed:
            return
        self.was_muted = True
        until = self._server.loop.time() + seconds
        if self._muted is not None:
            if self._muted.when() >= until:
                return
            self._muted.cancel()
        self._muted = self._server.loop.call_at(until, self.unmute)
        self.last_active = max(self.last_active, until)  # it is not idle: it waits

    def unmute(self) -> None:
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
            self.drain()
