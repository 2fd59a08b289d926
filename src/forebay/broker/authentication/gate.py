"""The gate between a connection of a SASL listener and the dispatcher, until the client has logged in.

A connection begins at the gate: a few small frames, a short time, and no requests but those of a login. Once
the client has logged in, its requests go to the dispatcher directly, and the gate costs nothing. It
comes back when the session ends, or when the client logs in again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from forebay.broker.authentication.logins import Login, Logins
from forebay.broker.net.connection import Connection, Handle
from forebay.broker.signals import Signal
from forebay.config import Listener
from forebay.core.cluster.image import ClusterImage
from forebay.core.security.sasl.exchange import Accepted, Rejected, Step
from forebay.core.security.sasl.login_session import Phase
from forebay.errors import ProtocolError
from forebay.wire.api_keys import ApiKey
from forebay.wire.frames import RequestHeader, read_request_header
from forebay.wire.messages import api_name
from forebay.wire.messages.api_versions import ApiVersionsRequest

_ENDED_PER_TURN = 16
"""Connections that are closed in a turn of the loop because their time to log in is up. Each takes about a
tenth of a millisecond, and a thousand that came at once are late at once."""


class Dispatch(Protocol):
    """The part behind the gate: `Dispatcher`."""

    def handle(self, connection: Connection, frame: memoryview) -> None: ...
    def handle_body(
        self, connection: Connection, frame: memoryview, header: RequestHeader, position: int
    ) -> None: ...


class LoginGate:
    def __init__(self, logins: Logins, dispatch: Dispatch, loop: asyncio.AbstractEventLoop) -> None:
        self._logins = logins
        self._dispatch = dispatch
        self._loop = loop
        self._late: deque[tuple[Login, asyncio.TimerHandle | None]] = deque()
        """Those whose time is up, with the timer that said so."""
        self.passed: Signal[Connection] = Signal()
        """A client has logged in; its next request goes to the dispatcher."""
        logins.shook_hands.listen(self._shook_hands)
        logins.stepped.listen(self._stepped)

    def handler(self, listener: Listener) -> Handle:
        """The function that handles the first requests of a listener's connections."""
        return self.handle if listener.protocol.is_sasl else self._dispatch.handle

    def opened(self, connection: Connection) -> None:
        if connection.listener.protocol.is_sasl:
            self._close_gate(self._logins.begin(connection))
        elif connection.listener.protocol.is_tls:
            self._logins.begin_handshake(connection)

    # -- before the login ------------------------------------------------------------------------------

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """A request of a connection that has to log in, or has to do so again."""
        login = self._logins.of(connection)
        assert login is not None, "the connection was closed"
        self._count(login)
        header, position = read_request_header(frame)
        phase = login.session.phase
        if phase is not Phase.READY and not login.session.may_come(header.api_key):
            self._logins.out_of_order(login, api_name(header.api_key))
            connection.close()
            return
        self._dispatch.handle_body(connection, frame, header, position)
        if header.api_key == ApiKey.API_VERSIONS and header.api_version <= ApiVersionsRequest.MAX_VERSION:
            login.session.versions_told()

    def _count(self, login: Login) -> None:
        login.requests += 1
        if login.requests > login.config.requests_max:
            raise ProtocolError(
                f"more than {login.config.requests_max} requests came before the login was done; a client "
                "that needs more needs a higher forebay.authentication.max.requests"
            )

    def _close_gate(self, login: Login) -> None:
        config, login.requests = login.config, 0
        login.connection.handle_with(self.handle, frame_bytes_max=config.receive_bytes_max)
        login.restart_timer(self._loop.call_later(config.timeout_ms / 1000, self._time_is_up, login))

    def _time_is_up(self, login: Login) -> None:
        if not self._late:
            self._loop.call_soon(self._end_late)
        self._late.append((login, login.timer))

    def _end_late(self) -> None:
        for _ in range(min(_ENDED_PER_TURN, len(self._late))):
            login, timer = self._late.popleft()
            if login.timer is timer:  # else it has logged in meanwhile, or was closed
                self._logins.timed_out(login)
                login.connection.close()
        if self._late:
            self._loop.call_soon(self._end_late)

    # -- what a step leads to --------------------------------------------------------------------------

    def _shook_hands(self, login: Login) -> None:
        """A connection that was open has to log in again now; one that failed ends with the answer."""
        if login.session.phase is Phase.CHOSEN and login.session.user is not None:
            self._close_gate(login)
        elif login.session.phase is Phase.FAILED:
            self._loop.call_soon(login.connection.close_when_sent)  # the answer leaves first

    def _stepped(self, login: Login, step: Step) -> None:
        if isinstance(step, Accepted):
            lifetime_ms = login.session.lifetime_ms
            login.connection.handle_with(self._dispatch.handle)
            login.restart_timer(
                self._loop.call_later(lifetime_ms / 1000, self._end_session, login) if lifetime_ms else None
            )
            self.passed.send(login.connection)
        elif isinstance(step, Rejected):
            login.restart_timer(None)

    # -- the end of a session --------------------------------------------------------------------------

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Close the connections whose delegation token was ended, or end their sessions with it."""
        was, now = before.tokens, after.tokens
        if was is now:
            return
        for token_id, logins in self._logins.of_tokens(lambda each: was.get(each) is not now.get(each)):
            token, known = now.get(token_id), was.get(token_id)
            for login in logins:
                if token is None:
                    self._logins.token_ended(login)
                    login.connection.close()
                elif known is None or login.session.phase is not Phase.READY:
                    continue  # a login under way asks for the token again at its end
                elif token.expires_ms < known.expires_ms:
                    self._end_session_sooner(login, self._logins.time_left_ms(token.expires_ms) / 1000)

    def _end_session_sooner(self, login: Login, left_s: float) -> None:
        if login.timer is None or login.timer.when() > self._loop.time() + left_s:
            login.restart_timer(self._loop.call_later(left_s, self._end_session, login))

    def _end_session(self, login: Login) -> None:
        """A fetch that waits goes on, as in Kafka; but with a token it gets nothing after the token's end."""
        login.connection.handle_with(self._handle_expired, frame_bytes_max=login.config.receive_bytes_max)
        if login.token_id:
            login.connection.end_long_poll()

    def _handle_expired(self, connection: Connection, frame: memoryview) -> None:
        """Whoever comes late may still log in again, and do nothing else."""
        header, position = read_request_header(frame)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            self._dispatch.handle_body(connection, frame, header, position)
            return
        login = self._logins.of(connection)
        assert login is not None
        self._logins.session_expired(login)
        connection.close()
