"""One connection to one broker that blocks: a session (`wire/session.py`) on a plain socket.

A frame is read into a buffer that the connection keeps, and records in an answer are views of it: what was
fetched is copied once, out of the kernel, before it is decoded.
"""

from __future__ import annotations

import socket
from typing import Any, Self

from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.fields import Request
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.parts import FileRange, join
from forebay.wire.session import LENGTH_BYTES, Session

FRAME_BYTES_MAX = 1 << 30
BUFFER_BYTES_MIN = 1 << 16


class BlockingConnection:
    """`ask` is a request and its answer; `post` and `read` keep several in flight.

    Answers are read into one buffer that is used again: views of records in an answer hold until the next
    answer is read. After an error the connection is closed, since what would come next is anyone's guess.
    Not for several threads at a time.
    """

    def __init__(
        self,
        connected: socket.socket,
        address: str,
        *,
        client_id: str,
        timeout_s: float,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Takes a connected socket over, and asks which versions the broker serves."""
        self.address = address
        self._timeout_s = timeout_s
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._socket: socket.socket | None = connected
        self._session = Session(address, client_id=client_id, response_bytes_max=frame_bytes_max)
        self.ask(ApiVersionsRequest())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._socket is None

    @property
    def unanswered(self) -> int:
        """Requests whose answers have not been read."""
        return len(self._session.in_flight)

    @property
    def oldest_unanswered(self) -> type[Request]:
        """The kind of request whose answer is read next."""
        return next(iter(self._session.in_flight.values())).request

    def version(self, request: type[Request], limit: int | None = None) -> int:
        """The version in which a request of this class goes to this broker."""
        return self._session.version(request, limit)

    def ask(self, request: Request, limit: int | None = None) -> Any:
        """The answer, whose class is the request's counterpart. The version as in `post`."""
        if self.unanswered:
            raise RuntimeError("answers to earlier requests come first: read them")
        self.post(request, limit)
        return self.read()

    def post(self, request: Request, limit: int | None = None) -> None:
        """Send a request in the highest version that both sides know, or in `limit` if that is lower."""
        _, parts = self._session.send(request, self.version(type(request), limit))
        try:
            for part in parts:
                self._connected().sendall(join([part]) if isinstance(part, FileRange) else part)
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:  # Ctrl-C, for example: the broker may have half a request
            self.close()
            raise

    def read(self, *, extra_s: float = 0.0) -> Any:
        """The answer to the oldest request that has none, for which it waits `extra_s` longer than usual."""
        oldest = next(iter(self._session.in_flight.values()), None)
        if oldest is None:
            raise self._lost(ConnectionError("there is no request to answer: the connection was closed"))
        try:
            sent, response = self._session.receive(self._read_frame(self._timeout_s + extra_s))
            if sent is not oldest:
                raise ProtocolError(
                    f"answer {sent.correlation_id} came where {oldest.correlation_id} was awaited"
                )
        except (OSError, ProtocolError) as error:
            raise self._lost(error) from error
        except BaseException:  # the answer may still come, and must not be taken for another's
            self.close()
            raise
        return response

    def close(self) -> None:
        connected, self._socket = self._socket, None
        self._session.in_flight.clear()
        if connected is not None:
            connected.close()

    # -- bytes ---------------------------------------------------------------------------------------

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("the connection was closed")
        return self._socket

    def _read_frame(self, timeout_s: float) -> memoryview:
        connected = self._connected()
        connected.settimeout(timeout_s)
        return self._fill(connected, self._session.frame_size(self._fill(connected, LENGTH_BYTES)))

    def _fill(self, connected: socket.socket, size: int) -> memoryview:
        if size > len(self._buffer):
            # Views of the old one may be held still, so that it cannot grow in place.
            self._buffer = bytearray(size + size // 4)
        view = memoryview(self._buffer)[:size]
        position = 0
        while position < size:
            received = connected.recv_into(view[position:])
            if not received:
                raise ConnectionError("the broker closed the connection")
            position += received
        return view

    def _lost(self, error: Exception) -> KafkaError:
        self.close()
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the broker at {self.address}: {error}")
