"""One connection to another broker, for the requests that brokers send each other.

Requests are pipelined and their answers matched by correlation id. A large answer, such as the fetch of a
replica, is received straight into a buffer of its own, and what is decoded from it are views of that buffer:
nothing is copied on the way to the log. A buffer without views is filled again, because fresh memory costs a
page fault for every 4 KB touched.

There is one way to fail: the connection breaks, whatever the reason, and every waiter gets NETWORK_EXCEPTION.
An answer that takes too long breaks it too, since the answers after it would only come later. The caller then
does not know whether the peer has carried out the request.

A coroutine waits for its answer (`ask`), and goes on in the next turn of the loop. A callback gets it at once
(`post`): followers fetch this way, because producers with acks=all wait for them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from forebay.broker.ports import Stream
from forebay.errors import ErrorCode, KafkaError, ProtocolError, known_code
from forebay.lazy import dataclass
from forebay.wire.fields import Request, Response
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from forebay.wire.messages.sasl_handshake import SaslHandshakeRequest
from forebay.wire.parts import FileRange, Part
from forebay.wire.sasl.client import Login
from forebay.wire.session import LENGTH_BYTES, Session

Connect: TypeAlias = Callable[[str, int], Awaitable[Stream]]

TIMEOUT_S = 30.0
_OPEN_TIMEOUT_S = 5.0
_UNANSWERED_MAX = 1000
_RENEW_AFTER = 0.8
"""A login is renewed after this share of its lifetime."""
_STAGING_BYTES = 16 * 1024
_SPARE_BYTES_MAX = 16 * 1024 * 1024


class PeerRefused(KafkaError):
    """Connections to the peer are refused: as far as can be known from here, no process listens there."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """The caller of a request in flight."""

    answered: Callable[[Any], None]
    failed: Callable[[KafkaError], None]
    timeout_s: float
    deadline: float


class PeerConnection:
    """Make one with `await PeerConnection.open(...)`, which finds out what the peer speaks."""

    def __init__(
        self,
        stream: Stream,
        *,
        client_id: str,
        response_bytes_max: int,
        new_login: Callable[[], Login] | None = None,
    ) -> None:
        self.closed = False
        self.broken = asyncio.Event()
        """Set when it is closed, whoever closed it."""
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._new_login = new_login
        self._renew_at = math.inf
        """When to log in again, since the session would end."""
        self._renewing = asyncio.Lock()
        host, port = stream.peer
        self._session = Session(f"{host}:{port}", client_id=client_id, response_bytes_max=response_bytes_max)
        self._waiters: dict[int, _Waiter] = {}
        """By correlation id."""
        self._timer: asyncio.TimerHandle | None = None
        """Goes off when the first of them may have waited too long."""
        self._output: list[memoryview] = []
        self._staging = bytearray(_STAGING_BYTES)
        self._staging_view = memoryview(self._staging)
        self._staged = 0
        self._body: memoryview | None = None  # of an answer that did not come whole
        self._body_filled = 0
        self._spare = bytearray()
        stream.on_readable(self._on_readable)

    @classmethod
    async def open(
        cls,
        connect: Connect,
        host: str,
        port: int,
        *,
        client_id: str,
        response_bytes_max: int,
        timeout_s: float = _OPEN_TIMEOUT_S,
        new_login: Callable[[], Login] | None = None,
    ) -> PeerConnection:
        """Connect, ask what the peer speaks, and log in where that is needed.

        Raises PeerRefused, or KafkaError NETWORK_EXCEPTION.
        """
        try:
            async with asyncio.timeout(timeout_s):
                stream = await connect(host, port)
        except ConnectionRefusedError as error:
            reason = f"{host}:{port} could not be reached: {error.strerror}"
            raise PeerRefused(ErrorCode.NETWORK_EXCEPTION, reason) from None
        except OSError as error:  # which a timeout is too
            reason = str(error) or "it took too long"
            raise _unreachable(f"{host}:{port} could not be reached: {reason}") from None
        connection = cls(
            stream, client_id=client_id, response_bytes_max=response_bytes_max, new_login=new_login
        )
        try:
            await connection.ask(ApiVersionsRequest(), timeout_s=timeout_s)
            if new_login is not None:
                await connection._log_in(new_login())
        except BaseException:
            connection.close()
            raise
        return connection

    def version(self, request: type[Request]) -> int:
        """The highest version of an API that both sides know; raises KafkaError UNSUPPORTED_VERSION."""
        return self._session.version(request)

    # -- asking --------------------------------------------------------------------------------------

    async def ask(
        self,
        request: Request,
        version: int | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        sent_by: Callable[[object], None] | None = None,
    ) -> Response:
        """The peer's answer. Its `records` are views: keeping one keeps the memory of the whole answer.

        `sent_by` is called with this connection right before the request leaves, and may raise KafkaError.
        """
        if self._renew_at != math.inf:
            await self._renew_login()
        if sent_by is not None:
            sent_by(self)
        return await self._ask(request, version, timeout_s)

    async def _ask(self, request: Request, version: int | None, timeout_s: float) -> Response:
        answer: asyncio.Future[Response] = self._loop.create_future()

        def answered(response: Response) -> None:
            if not answer.done():  # it is done when its caller was cancelled
                answer.set_result(response)

        def failed(error: KafkaError) -> None:
            if not answer.done():
                answer.set_exception(error)

        self.post(request, answered, failed, version=version, timeout_s=timeout_s)
        return await answer

    @property
    def wants_login(self) -> bool:
        """True if the next request has to be asked with `ask`, which logs in again first."""
        return self._loop.time() >= self._renew_at

    def post(
        self,
        request: Request,
        answered: Callable[[Any], None],
        failed: Callable[[KafkaError], None],
        *,
        version: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Send a request, and have its answer told by one of two callbacks, which must not raise.

        Raises KafkaError if it could not be sent; `failed` may be called before this returns.
        """
        if self.closed:
            raise _unreachable(f"the connection to {self._peer} is closed")
        if len(self._waiters) >= _UNANSWERED_MAX:
            raise _unreachable(f"{_UNANSWERED_MAX} requests to {self._peer} are unanswered; try again later")
        sent, parts = self._session.send(request, version)
        deadline = self._loop.time() + timeout_s
        self._waiters[sent.correlation_id] = _Waiter(answered, failed, timeout_s, deadline)
        if self._timer is None or deadline < self._timer.when():
            self._wait_until(deadline)
        self._send(parts)

    # -- waiting -------------------------------------------------------------------------------------

    def _wait_until(self, deadline: float) -> None:
        """One timer for all requests: one for each would have to be cancelled with each answer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        self._timer = None
        if not self._waiters:
            return
        first = min(self._waiters.values(), key=lambda waiter: waiter.deadline)
        if first.deadline <= self._loop.time():
            self._break(f"no answer within {first.timeout_s:g} s")
        else:
            self._wait_until(first.deadline)

    # -- logging in ----------------------------------------------------------------------------------

    async def _log_in(self, login: Login) -> None:
        began = self._loop.time()
        chosen: Any = await self._ask(SaslHandshakeRequest(mechanism=login.mechanism), None, _OPEN_TIMEOUT_S)
        if chosen.error_code:
            raise _refused(chosen.error_code, f"{self._peer} does not take {login.mechanism}")
        message: bytes | None = login.first()
        while message is not None:
            request = SaslAuthenticateRequest(auth_bytes=message)
            answer: Any = await self._ask(request, None, _OPEN_TIMEOUT_S)
            if answer.error_code:
                raise _refused(answer.error_code, f"{self._peer} refused the login of this broker")
            try:
                message = login.step(bytes(answer.auth_bytes))
            except KafkaError as error:
                raise _unreachable(f"the login at {self._peer} failed: {error.message}") from None
        lifetime_s = answer.session_lifetime_ms / 1000
        self._renew_at = began + _RENEW_AFTER * lifetime_s if lifetime_s else math.inf

    async def _renew_login(self) -> None:
        """Log in again if it is time. Whoever comes meanwhile waits for that; all go on in their order."""
        assert self._new_login is not None
        async with self._renewing:
            if self._loop.time() >= self._renew_at and not self.closed:
                try:
                    await self._log_in(self._new_login())
                except KafkaError:
                    self.close()
                    raise

    # -- sending -------------------------------------------------------------------------------------

    def _send(self, parts: list[Part]) -> None:
        waiting = bool(self._output)
        for part in parts:
            assert not isinstance(part, FileRange), "requests have no records in files"
            self._output.append(memoryview(part))
        if not waiting:
            self._flush()

    def _flush(self) -> None:
        output = self._output
        try:
            while output:
                sent = self._stream.send(output[0] if len(output) == 1 else b"".join(output))
                self._drop_sent(sent)
        except BlockingIOError:
            self._stream.on_writable(self._on_writable)
        except OSError as error:
            self._break(str(error))

    def _drop_sent(self, sent: int) -> None:
        output = self._output
        while output and sent >= len(output[0]):
            sent -= len(output.pop(0))
        if sent:
            output[0] = output[0][sent:]

    def _on_writable(self) -> None:
        self._stream.on_writable(None)
        self._flush()

    # -- answers -------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            if self._body is None:
                received = self._stream.recv_into(self._staging_view[self._staged :])
            else:
                received = self._stream.recv_into(self._body[self._body_filled :])
        except BlockingIOError:
            return
        except OSError as error:
            self._break(str(error))
            return
        if not received:
            self._break("the peer has closed it")
            return
        try:
            self._received(received)
        except ProtocolError as error:
            self._break(f"the peer sent what is no answer: {error}")

    def _received(self, count: int) -> None:
        if self._body is None:
            self._staged = self._cut(self._staged + count)
            return
        self._body_filled += count
        if self._body_filled == len(self._body):
            body, self._body = self._body, None
            self._answer(body)

    def _cut(self, end: int) -> int:
        """Take the answers out of what is staged; how many bytes of it stay for the next time."""
        position = 0
        while end - position >= LENGTH_BYTES and not self.closed:
            start = position + LENGTH_BYTES
            stop = start + self._session.frame_size(self._staging, position)
            if stop > end:
                self._begin_body(stop - start, self._staging_view[start:end])
                return 0
            self._answer(memoryview(bytes(self._staging_view[start:stop])))
            position = stop
        self._staging[: end - position] = self._staging[position:end]
        return end - position

    def _begin_body(self, size: int, present: memoryview) -> None:
        if len(self._spare) < size or _in_use(self._spare):
            self._spare = bytearray(size)
        self._body = memoryview(self._spare)[:size]
        self._body[: len(present)] = present
        self._body_filled = len(present)
        if len(self._spare) > _SPARE_BYTES_MAX:
            self._spare = bytearray()  # the view keeps it for as long as it is needed

    def _answer(self, frame: memoryview) -> None:
        sent, response = self._session.receive(frame)
        self._waiters.pop(sent.correlation_id).answered(response)

    def look(self) -> None:
        """Take notice now of what has come, such as the end of the connection."""
        if not self.closed:
            self._on_readable()

    # -- end -----------------------------------------------------------------------------------------

    @property
    def _peer(self) -> str:
        return self._session.peer

    def _break(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self.broken.set()
        self._stream.close()
        self._output.clear()
        self._session.in_flight.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            waiter.failed(_unreachable(f"the connection to {self._peer} broke: {reason}"))

    def close(self) -> None:
        self._break("it was closed here")


def _unreachable(message: str) -> KafkaError:
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, message)


def _refused(code: int, message: str) -> KafkaError:
    hint = "check forebay.sasl.username, forebay.sasl.password and sasl.mechanism.inter.broker.protocol"
    return _unreachable(f"{message} ({known_code(code).name}): {hint}")


def _in_use(buffer: bytearray) -> bool:
    """True if there are views of it: Python refuses to resize such a buffer."""
    try:
        last = buffer.pop()  # not append, which would move all of it to where there is room for more
    except BufferError:
        return True
    buffer.append(last)
    return False
