"""A blocking connection to one broker: a session (`wire/session.py`) on a plain socket.

A frame is read into a buffer that the connection keeps, and records in an answer are views of it: fetched
data is copied once, out of the kernel, before it is decoded.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from typing import Any, Self

from forebay.errors import ErrorCode, KafkaError, ProtocolError, known_code
from forebay.wire.fields import Request
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from forebay.wire.messages.sasl_handshake import SaslHandshakeRequest
from forebay.wire.parts import FileRange, join
from forebay.wire.sasl.client import Login
from forebay.wire.session import LENGTH_BYTES, Session

FRAME_BYTES_MAX = 1 << 30
BUFFER_BYTES_MIN = 1 << 16
_RENEW_AFTER = 0.5
"""A login is renewed after this share of its lifetime, when no answer is awaited."""


def no_login() -> None:
    """Do nothing, for listeners without a login."""


class BlockingConnection:
    """`ask` is a request and its answer; `post` and `read` keep several in flight.

    Answers are read into one buffer that is used again: views of records in an answer hold until the next
    answer is read. After an error the connection is closed, since its state is unknown. Not thread-safe.
    """

    def __init__(
        self,
        connected: socket.socket,
        address: str,
        *,
        client_id: str,
        timeout_s: float,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        new_login: Callable[[], Login | None] = no_login,
    ) -> None:
        """Takes over a connected socket, asks for the broker's versions, and logs in.

        The socket is closed if that fails.
        """
        self.address = address
        self._timeout_s = timeout_s
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._socket: socket.socket | None = connected
        self._session = Session(address, client_id=client_id, response_bytes_max=frame_bytes_max)
        self._new_login = new_login
        self._renew_at = math.inf
        try:
            self.ask(ApiVersionsRequest())
            self._log_in()
        except BaseException:
            self.close()
            raise

    def _log_in(self) -> None:
        """Log in if needed. Raises KafkaError SASL_AUTHENTICATION_FAILED or NETWORK_EXCEPTION."""
        login = self._new_login()
        self._renew_at = math.inf
        if login is None:
            return
        began = time.monotonic()
        try:
            lifetime_s = self._take_steps(login)
        except BaseException:
            self.close()
            raise
        if lifetime_s:
            self._renew_at = began + _RENEW_AFTER * lifetime_s

    def _take_steps(self, login: Login) -> float:
        """How long the login is valid, in seconds; 0 for ever."""
        chosen = self.ask(SaslHandshakeRequest(mechanism=login.mechanism))
        if chosen.error_code:
            offered = f", only {', '.join(chosen.mechanisms)}" if chosen.mechanisms else ""
            raise self._refused(chosen.error_code, f"it does not take {login.mechanism}{offered}")
        message: bytes | None = login.first()
        while message is not None:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=message))
            if answer.error_code:
                raise self._refused(answer.error_code, answer.error_message or "the login failed")
            message = login.step(bytes(answer.auth_bytes))
        lifetime_s: float = answer.session_lifetime_ms / 1000
        return lifetime_s

    def _refused(self, code: int, message: str) -> KafkaError:
        return KafkaError(known_code(code), f"the broker at {self.address}: {message}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._socket is None

    @property
    def unanswered(self) -> int:
        """The number of requests whose answers have not been read."""
        return len(self._session.in_flight)

    @property
    def oldest_unanswered(self) -> type[Request]:
        """The class of the request whose answer is read next."""
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
        if time.monotonic() >= self._renew_at and not self.unanswered:
            self._log_in()
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
        """The answer to the oldest unanswered request; waits for it `extra_s` longer than usual."""
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
            # Views of the old one may still be held, so it cannot grow in place.
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
