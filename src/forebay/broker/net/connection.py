"""One client connection: frames in, each handed to its handler; responses out (`responses/`).

A read event takes what has arrived (`receiving.py`), handles the whole frames in it for as long as it is the
connection's turn (`scheduling/turns.py`), and sends all their responses with one call. While the connection
is busy, nothing more is read from it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from forebay.broker.net.buffers import Buffer
from forebay.broker.net.overtaking import Overtaking
from forebay.broker.net.receiving import REQUEST_BYTES_MIN, SIZE, SIZE_BYTES, SMALL_BYTES, ReceivingHost
from forebay.broker.net.request_memory import QueuedRequest, RequestMemory
from forebay.broker.net.scheduling.turns import Line
from forebay.broker.ports import Stream
from forebay.config import Listener
from forebay.core.security.networks import network_of
from forebay.errors import ProtocolError, UnservedRequest
from forebay.wire.frames import RequestHeader
from forebay.wire.messages import api_name

if TYPE_CHECKING:
    from forebay.core.partition.producers.refused_batches import RefusedBatches

log = logging.getLogger(__name__)

_CLIENT_ID_CHARS_LOGGED = 100
_UNTIMED_BYTES = 16 * 1024
"""Requests on the fast path are alike and quick: the clock is looked at when this much of them is handled."""
_TLS_HANDSHAKE = 0x1603
"""How the first record of TLS begins; where a request has its length, that is more than 369 MB."""
_SPEAKS_TLS = (
    "a client speaks TLS, and this listener does not: set security.protocol=PLAINTEXT at the client "
    "(SASL_PLAINTEXT for SASL_SSL), or connect it to a listener with TLS"
)

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that has not shown who it is."""


Handle: TypeAlias = Callable[["Connection", memoryview], None]
"""Called with each complete request."""


class ConnectionHost(ReceivingHost, Protocol):
    """The part that all connections of a broker share: `Server`."""

    memory: RequestMemory
    strangers_memory: RequestMemory
    """For connections that have not logged in."""
    finish_requests: Callable[[], None]
    """Called after the requests of one read event: writes what they appended."""
    wake_waiters: Callable[[], None]
    """Called after the responses of one read event are sent: serves the fetches that waited for the data."""

    def took_long(self, connection: Connection, request: memoryview, seconds: float) -> None:
        """A request was handled in more than one slice of time."""

    def malformed(self) -> None: ...
    def unserved(self) -> None: ...
    def forget(self, connection: Connection) -> None:
        """The connection is closed."""


class Memo(Protocol):
    """The memory of a connection's last request: a fast path for requests with the same header."""

    def repeat(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, stop: int
    ) -> bool:
        """Handle the request in buffer[start:stop] if it is like the last one; else change nothing."""


class Connection(Overtaking):
    __slots__ = (
        "_debt_at",
        "_debt_s",
        "_handle",
        "_host",
        "_line",
        "_queued",
        "_slice_s",
        "awaits_login",
        "consumes",
        "hid_partitions_s",
        "last_prefix",
        "listener",
        "memo",
        "names_folded",
        "principal",
        "produces",
        "refused_batches",
        "replicates",
        "software",
    )

    def __init__(self, stream: Stream, server: ConnectionHost, listener: Listener, handle: Handle) -> None:
        """`listener` is what the client came by."""
        strange = listener.protocol.is_sasl
        super().__init__(stream, server, server.strangers_memory if strange else server.memory)
        self._host = server
        self.listener = listener
        self._handle = handle
        self.awaits_login = strange  # until a client has logged in
        self._line: Line | None = server.turns.strangers if strange else None  # where it waits for its turn
        self._queued = False  # whether it waits for its turn, or for the next turn of the loop
        self._slice_s = server.turns.slice_s  # how long its turn is
        self._debt_s = self._debt_at = 0.0
        self.principal = ANONYMOUS  # who the client has shown to be
        self.software = ""  # what the client calls itself, if it has said so
        self.produces = False  # whether the client has sent messages, or got a number to do so
        self.consumes = False  # whether it has fetched messages
        self.replicates = False  # whether it is a broker's, which replicates by it
        self.names_folded = False  # whether some were for partitions that are folded
        self.hid_partitions_s = -math.inf  # when it was last not shown partitions that are gone
        self.memo: Memo | None = None
        self.last_prefix: bytes | None = None  # how the last Produce request began
        self.refused_batches: RefusedBatches | None = None  # if some of its last batches were refused
        stream.on_readable(self._on_readable)

    @property
    def peer(self) -> tuple[str, int]:
        return self._stream.peer

    @property
    def local(self) -> tuple[str, int]:
        """The address the client came by."""
        return self._stream.local

    @property
    def handler(self) -> Handle:
        return self._handle

    def handle_with(self, handle: Handle, *, frame_bytes_max: int | None = None) -> None:
        """From the next request on, another handler and another limit take the place of those before."""
        self._handle = handle
        self.frame_bytes_max = frame_bytes_max or self._host.request_bytes_max
        self.memo = None

    @property
    def sender(self) -> str:
        """Whose requests these are: a user's, or an address's where nobody has to log in."""
        return network_of(self.peer[0]) if self.principal == ANONYMOUS else self.principal

    def logged_in(self, principal: str) -> None:
        self.principal = principal
        if not self.awaits_login:
            return  # again
        self.awaits_login, self._line = False, None
        held = self.held_bytes
        self._memory.release(self)
        self._memory = self._host.memory
        if held:
            self._memory.hold(self, held)
        if self._awaits_memory:
            self.memory_granted()

    def queue(self, size: int, frame: bytearray | memoryview | None = None) -> QueuedRequest:
        """A request of this size is handled later: its memory counts until then."""
        return QueuedRequest(self._memory, self, size, frame)

    # -- turns ---------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if not self._listening:
            return  # it waits for its turn, or for memory
        if self._busy():
            # Only now is it worth a system call: most clients send nothing while they wait.
            if self._stream.at_end():
                self.close()
            else:
                self._overtake()
            return
        turns = self._turns
        if self._line is not None or (turns.crowded and not self.replicates):
            self._stand_in(turns.indebted if self._line is None else self._line)
            return
        self._read()

    def _stand_in(self, line: Line) -> None:
        self._queued = True
        self._listen(False)
        line.add(self)

    def take_turn(self, slice_s: float) -> None:
        """Handle what was left of the last turn, or what has come, for this time."""
        self._queued = False
        if self.closed:
            return
        if not self._busy():
            self._slice_s = slice_s
            if self._rest and self._has_frame():
                self._handle_kept()
            else:
                self._read()
            self._slice_s = self._turns.slice_s
            if self._line is not None:
                self._account(self._now())
        if not (self._listening or self._queued or self._awaits_memory or self.closed):
            self._listen(True)

    @property
    def is_held_back(self) -> bool:
        """True while nothing is read, because of earlier requests or because others have their turn."""
        return self._queued or self._busy()

    @property
    def is_stalled(self) -> bool:
        """True while nothing is read because the client does not take its answers, or has sent more than a
        little behind a long poll."""
        return self.held_bytes > SMALL_BYTES and (self._blocked or self._end_of_poll() is not None)

    def _receive_large(self, buffer: Buffer) -> None:
        if not isinstance(buffer, bytearray):
            self.memo = None  # which searches in bytes
        super()._receive_large(buffer)

    def _handle_kept(self) -> None:
        self.last_active = self._now()
        shared, rest = self._buffers.shared, self._rest
        shared[: len(rest)] = rest
        self._consume(shared, len(rest))

    def _overran(self, request: memoryview, request_s: float, now: float) -> None:
        """The turn is over, and this request was the last one of it."""
        self._host.took_long(self, request, request_s)
        if self._line is None:
            self._account(now)
            if self._line is not None:
                self._turns.note_costly(self._debt_s)

    def _account(self, now: float) -> None:
        """See whether the next turn has to be waited for."""
        if self.awaits_login or self.replicates:
            return
        turns = self._turns
        spent_s = turns.spent_s(now - self.last_active)
        self._debt_s = turns.debt_s(self._debt_s, now - self._debt_at, spent_s)
        self._debt_at = now
        self._line = turns.indebted if self._debt_s else None

    # -- requests ------------------------------------------------------------------------------------

    def _consume(self, buffer: bytearray, end: int) -> None:
        self._corked = True
        try:
            try:
                position = self._handle_frames(buffer, end)
            finally:
                # After an error too: what was queued before it lies in a buffer that the next read fills.
                self._host.finish_requests()
        except UnservedRequest as error:
            log.warning("closing a connection that asked for what is not served", extra=self._why(error))
            self._host.unserved()
            self.close()
        except ProtocolError as error:
            self.close_malformed(error)
        except Exception:
            log.exception("a request could not be handled", extra=self.about())
            self.close()
        else:
            self._corked = False
            if position < end and not self.closed:
                rest = memoryview(buffer)[position:end]
                self._keep(rest, begins=position > 0 or not self.held_bytes)
                self._end_poll_before(rest)
            else:
                self._rest = b""
                if self.held_bytes:
                    self._memory.release(self)
            self.drain()
        self._host.wake_waiters()

    def _handle_frames(self, buffer: bytearray, end: int) -> int:
        """Handle the whole frames in buffer[:end], until the turn ends; return where the rest begins."""
        view, began, unpack_size = memoryview(buffer), self.last_active, SIZE.unpack_from
        position, look_at = 0, _UNTIMED_BYTES
        while end - position >= SIZE_BYTES:
            (size,) = unpack_size(buffer, position)
            if not REQUEST_BYTES_MIN <= size <= self.frame_bytes_max:
                raise self._bad_size(size)
            start = position + SIZE_BYTES
            stop = start + size
            if stop > end:
                break
            memo, position = self.memo, stop
            if memo is None or not memo.repeat(self, buffer, view, start, stop):
                self._handle(self, view[start:stop])  # which a login changes
                look_at = 0
            if stop > look_at:
                now = self._now()
                if now - self.last_active >= self._slice_s:
                    self._overran(view[start:stop], now - began, now)
                    break
                began, look_at = now, stop + _UNTIMED_BYTES
            if stop == end or self.closed or self._busy():
                break
        return position

    def _bad_size(self, size: int) -> ProtocolError:
        if size >> 16 == _TLS_HANDSHAKE:
            return ProtocolError(_SPEAKS_TLS)
        setting = "socket.request.max.bytes"
        if self.frame_bytes_max < self._host.request_bytes_max:
            setting = "before a login sasl.server.max.receive.size"
        return ProtocolError(
            f"a request of {size} bytes was announced; {setting} allows {self.frame_bytes_max}"
        )

    # -- reading on ----------------------------------------------------------------------------------

    def _drained(self) -> None:
        if (self._rest or not self._listening) and not self.closed and not self._busy():
            self._resume()

    def _resume(self) -> None:
        if self._queued or self._awaits_memory:
            return
        if self.held_bytes:
            self.held_since = self._now()  # until now it was not read
        if self._rest and self._has_frame():
            if self._line is None:
                self._queued = True
                self._listen(False)
                self._host.loop.call_soon(self.take_turn, self._turns.slice_s)
            else:
                self._stand_in(self._line)
        elif not self._listening:
            self._listen(True)

    def close_when_sent(self) -> None:
        """Close as soon as the responses that are ready have left. What the client sends meanwhile is not
        read."""
        self.drain()
        if self.closed:
            return
        if self._blocked:
            self._listen(False)
            self._stream.on_writable(self._send_and_close)
        else:
            self.close()

    def _send_and_close(self) -> None:
        self._blocked = False
        self._stream.on_writable(None)
        self.close_when_sent()

    # -- end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        self._stream.close()
        self._output.clear()
        replies, self.replies = self.replies, None
        for reply in replies or ():
            if reply.on_abandoned is not None:
                reply.on_abandoned()
        self._forget_input()
        self.memo = None
        self._host.forget(self)

    def close_malformed(self, error: ProtocolError) -> None:
        log.warning("closing a connection that sent a malformed request", extra=self._why(error))
        self._host.malformed()
        self.close()

    # -- for the log ---------------------------------------------------------------------------------

    def about(self) -> dict[str, object]:
        host, port = self.peer
        about: dict[str, object] = {"client": f"{host}:{port}", "principal": self.principal}
        if self.software:
            about["software"] = self.software
        return about

    def _why(self, error: Exception) -> dict[str, object]:
        return self.about() | {"reason": str(error)}

    def describe(self, header: RequestHeader, size: int) -> dict[str, object]:
        """A request that came by this connection: what it asks, and whose it is."""
        return {
            "request": f"{api_name(header.api_key)} v{header.api_version}",
            "client_id": (header.client_id or "")[:_CLIENT_ID_CHARS_LOGGED],
            "bytes": size,
            **self.about(),
        }
