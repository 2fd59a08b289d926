"""One client connection: frames in, each handed to its handler; responses out (`responses.py`).

A read event takes what has arrived, handles every whole frame in it, and sends all their responses with
one call. While the connection is busy, nothing more is read from it.

A long poll does not hold up what comes behind it: it is answered with what there is, which the protocol
allows at any time. Only the header of the request behind it is looked at. Behind another fetch it waits on,
since a client that always has two of them under way would be answered as fast as it can ask.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from struct import Struct
from typing import Protocol, TypeAlias

from forebay.broker.net.buffers import BufferPool
from forebay.broker.net.responses import Responses, ResponsesHost
from forebay.broker.ports import Stream
from forebay.config import Listener
from forebay.errors import ProtocolError, UnservedRequest

log = logging.getLogger(__name__)

_SIZE = Struct(">i")
_SIZE_BYTES = 4
_API_KEY = Struct(">4xh")
_LONG_POLLS = (1, 78)
"""The keys of Fetch and ShareFetch."""
_REQUEST_BYTES_MIN = 8
_TLS_HANDSHAKE = 0x1603
"""How the first record of TLS begins; where a request has its length, that is more than 369 MB."""
_SPEAKS_TLS = (
    "a client speaks TLS, and this listener does not: set security.protocol=PLAINTEXT at the client "
    "(SASL_PLAINTEXT for SASL_SSL), or connect it to a listener with TLS"
)

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that has not shown who it is."""


Handle: TypeAlias = Callable[["Connection", memoryview], None]
"""What is called with each request that came whole."""


class ConnectionHost(ResponsesHost, Protocol):
    """What all connections of a broker share: `Server`."""

    buffers: BufferPool
    request_bytes_max: int
    finish_requests: Callable[[], None]
    """Called after the requests of one read event: writes what they appended."""
    wake_waiters: Callable[[], None]
    """Called after the responses of one read event are sent: serves the fetches that waited for the data."""

    def malformed(self) -> None: ...
    def unserved(self) -> None: ...
    def forget(self, connection: Connection) -> None:
        """The connection is closed."""


class Memo(Protocol):
    """What a connection remembers of its last request: a fast path for requests with the same header."""

    def repeat(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, stop: int
    ) -> bool:
        """Handle the request in buffer[start:stop] if it is like the last one; else change nothing."""


class Connection(Responses):
    __slots__ = (
        "_filled",
        "_handle",
        "_host",
        "_input",
        "_listening",
        "_rest",
        "_resuming",
        "awaits_login",
        "consumes",
        "frame_bytes_max",
        "hid_partitions_s",
        "last_prefix",
        "listener",
        "memo",
        "names_folded",
        "principal",
        "produces",
        "software",
    )

    def __init__(
        self,
        stream: Stream,
        server: ConnectionHost,
        listener: Listener,
        handle: Handle,
    ) -> None:
        """`listener` is what the client came by."""
        super().__init__(stream, server)
        self._host = server
        self.listener = listener
        self._handle = handle
        self.frame_bytes_max = server.request_bytes_max  # less until a client has logged in
        self.awaits_login = listener.protocol.is_sasl  # until a client has logged in
        self.principal = ANONYMOUS  # who the client has shown to be
        self.software = ""  # what the client calls itself, if it has said so
        self.produces = False  # whether the client has sent messages, or got a number to do so
        self.consumes = False  # whether it has fetched messages
        self.names_folded = False  # whether some were for partitions that are folded
        self.hid_partitions_s = -math.inf  # when it was last not shown partitions that are gone
        self._rest = b""  # received but not handled: part of a frame, or frames that are held back
        self._input: bytearray | None = None  # borrowed while a large frame arrives
        self._filled = 0
        self._listening = True
        self._resuming = False
        self.memo: Memo | None = None
        self.last_prefix: bytes | None = None
        """How the last Produce request began; see produce/same_header_requests.py."""
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

    # -- input ---------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self._resuming:
            return  # what was held back comes first
        if self._busy():
            # Only now is it worth a system call: most clients send nothing while they wait.
            if self._stream.at_end():
                self.close()
            else:
                self._overtake()
            return
        self.last_active = self._host.loop.time()
        try:
            if self._input is None:
                self._receive()
            else:
                self._receive_large(self._input)
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def _receive(self) -> None:
        """Take what has arrived into the shared buffer, behind what was left of the last time."""
        buffers, rest = self._host.buffers, self._rest
        view = buffers.shared_view
        if rest:
            buffers.shared[: len(rest)] = rest
            view = view[len(rest) :]
        received = self._stream.recv_into(view)
        if received:
            self._consume(buffers.shared, len(rest) + received)
        else:
            self.close()

    def _receive_large(self, buffer: bytearray) -> None:
        """Go on with a frame that is larger than the shared buffer, in one of its own and not beyond it."""
        total = _SIZE_BYTES + _SIZE.unpack_from(buffer)[0]
        received = self._stream.recv_into(memoryview(buffer)[self._filled : total])
        if not received:
            self.close()
            return
        self._filled += received
        if self._filled == total:
            self._consume(buffer, total)
            self._input = None
            self._host.buffers.give(buffer)
        elif self._filled == len(buffer):
            self._borrow(memoryview(buffer), total)
            self._host.buffers.give(buffer)

    def _borrow(self, present: memoryview, total: int) -> None:
        """Move the beginning of a large frame to a buffer that has room for more of it."""
        self._input = self._host.buffers.take(total, len(present))
        self._input[: len(present)] = present
        self._filled = len(present)

    def _consume(self, buffer: bytearray, end: int) -> None:
        self._corked = True
        try:
            try:
                position = self._handle_frames(buffer, end)
            finally:
                # After an error too: what was queued before it lies in a buffer that the next read fills.
                self._host.finish_requests()
        except UnservedRequest as error:
            log.warning("closing a connection that asked for what is not served", extra=self._about(error))
            self._host.unserved()
            self.close()
        except ProtocolError as error:
            log.warning("closing a connection that sent a malformed request", extra=self._about(error))
            self._host.malformed()
            self.close()
        except Exception:
            log.exception("a request could not be handled", extra=self._about())
            self.close()
        else:
            self._corked = False
            if position < end:
                rest = memoryview(buffer)[position:end]
                self._keep(rest)
                self._end_poll_before(rest)
            else:
                self._rest = b""
            self.drain()
        self._host.wake_waiters()

    def _handle_frames(self, buffer: bytearray, end: int) -> int:
        """Handle the whole frames in buffer[:end]; return where the rest begins."""
        view = memoryview(buffer)
        position = 0
        while end - position >= _SIZE_BYTES:
            size = _SIZE.unpack_from(buffer, position)[0]
            if not _REQUEST_BYTES_MIN <= size <= self.frame_bytes_max:
                raise self._bad_size(size)
            stop = position + _SIZE_BYTES + size
            if stop > end:
                break
            memo, start = self.memo, position + _SIZE_BYTES
            if memo is None or not memo.repeat(self, buffer, view, start, stop):
                self._handle(self, view[start:stop])  # which a login changes
            position = stop
            if self.closed or self._busy():
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

    def _keep(self, rest: memoryview) -> None:
        """Remember what could not be handled yet: as it is, or as the beginning of a large frame."""
        size = _SIZE.unpack_from(rest)[0] if len(rest) >= _SIZE_BYTES else 0
        total = _SIZE_BYTES + size
        if total > len(self._host.buffers.shared) and size <= self.frame_bytes_max:
            self._rest = b""
            self._borrow(rest, total)
        else:
            self._rest = bytes(rest)

    def _overtake(self) -> None:
        """Something has come behind a request that waits. If that is a long poll, see what it is."""
        if self._end_of_poll() is not None and self._input is None and not self._has_header():
            return  # the rest of it will come
        self._listen(False)
        self._end_poll_before(self._rest)

    def _has_header(self) -> bool:
        """Whether enough of the next request is here to tell its kind; no more than that is read."""
        missing = _API_KEY.size - len(self._rest)
        if missing <= 0:
            return True
        header = bytearray(missing)
        try:
            received = self._stream.recv_into(memoryview(header))
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return False
        self._rest += header[:received]
        return received == missing

    def _end_poll_before(self, behind: bytes | memoryview) -> None:
        end_poll = self._end_of_poll()
        if end_poll is not None and len(behind) >= _API_KEY.size:
            (api_key,) = _API_KEY.unpack_from(behind)
            if api_key not in _LONG_POLLS:
                end_poll()

    def _end_of_poll(self) -> Callable[[], None] | None:
        """What ends the long poll that holds up further requests, if one does."""
        replies = self.replies
        return replies[-1].on_overtaken if replies and replies[-1].parts is None else None

    # -- reading on ----------------------------------------------------------------------------------

    def _drained(self) -> None:
        if (self._rest or not self._listening) and not self.closed and not self._busy():
            self._resume()

    def _resume(self) -> None:
        if self._rest and not self._resuming and self._has_frame():
            self._resuming = True
            self._host.loop.call_soon(self._handle_kept)
        if not self._listening:
            self._listen(True)

    def _has_frame(self) -> bool:
        """Whether what is left can be handled, if only to find that it is malformed."""
        rest = self._rest
        if len(rest) < _SIZE_BYTES:
            return False
        size = _SIZE.unpack_from(rest)[0]
        valid = _REQUEST_BYTES_MIN <= size <= self.frame_bytes_max
        return not valid or len(rest) >= _SIZE_BYTES + size

    def _handle_kept(self) -> None:
        self._resuming = False
        if not self.closed and not self._busy():
            shared, rest = self._host.buffers.shared, self._rest
            shared[: len(rest)] = rest
            self._consume(shared, len(rest))

    def _listen(self, on: bool) -> None:
        self._listening = on
        self._stream.on_readable(self._on_readable if on else None)

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
        self._input = None
        self._rest = b""
        self.memo = None
        self._host.forget(self)

    def _about(self, error: Exception | None = None) -> dict[str, object]:
        host, port = self.peer
        about: dict[str, object] = {"client": f"{host}:{port}", "principal": self.principal}
        if self.software:
            about["software"] = self.software
        return about if error is None else about | {"reason": str(error)}
