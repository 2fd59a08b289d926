"""The logins of all connections of SASL listeners: which mechanisms there are, and what becomes of each step.

`core/security/sasl` decides. Here are the clock, the timers, the log, and the connections themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from forebay.broker.authentication.password_checks import PasswordChecks
from forebay.broker.authentication.token_checks import TokenChecks
from forebay.broker.broker_time import BrokerTime
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.connection import Connection
from forebay.broker.signals import Signal
from forebay.broker.telemetry.metrics import Metrics
from forebay.config import SaslConfig
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.images.user_image import ScramCredential
from forebay.core.security.sasl.bearer import BearerExchange
from forebay.core.security.sasl.exchange import (
    Accepted,
    Challenge,
    CheckPassword,
    CheckToken,
    Exchange,
    Rejected,
    Step,
    Verdict,
)
from forebay.core.security.sasl.login_session import LoginSession
from forebay.core.security.sasl.made_up_credentials import MadeUpCredentials
from forebay.core.security.sasl.plain import PlainExchange
from forebay.core.security.sasl.scram_exchange import Identity, ScramExchange
from forebay.core.security.sasl.unfinished_logins import UnfinishedLogins
from forebay.core.security.sasl.wrong_logins import LoginLimits, WrongLogins
from forebay.errors import ErrorCode
from forebay.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from forebay.wire.sasl.scram import BY_NAME, ScramMechanism

log = logging.getLogger(__name__)

_NOT_CHECKED = Rejected(reason="it was not looked at")
_OTHER_USER = Rejected(reason="it asks to act as another user")
OAUTHBEARER = "OAUTHBEARER"


class Login:
    """One connection's."""

    def __init__(self, connection: Connection, session: LoginSession, config: SaslConfig) -> None:
        self.connection = connection
        self.session = session
        self.config = config
        self.requests = 0  # that came since it began, or began again
        self.refusal_noted = False
        self.claimed = ""
        """Who the client says to be, by what it has sent so far."""
        self.token_id = ""
        """Of the delegation token that the client has logged in with, if it has."""
        self.timer: asyncio.TimerHandle | None = None
        """Until it is ready, the end of its time to log in; then the end of its session."""

    def restart_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer


class Logins:
    def __init__(
        self,
        *,
        settings: LiveConfig,
        metadata: Metadata,
        metrics: Metrics,
        time: BrokerTime,
        passwords: PasswordChecks,
        tokens: TokenChecks,
        made_up: MadeUpCredentials,
        entropy: Callable[[int], bytes],
        log_failed: Callable[[str, Mapping[str, object]], None],
    ) -> None:
        """`log_failed`: takes the address of a client whose login failed, and what there is to say of it."""
        self._settings = settings
        self._metadata = metadata
        self._metrics = metrics
        self._time = time
        self._passwords = passwords
        self._tokens = tokens
        self._entropy = entropy
        self._made_up = made_up
        self._log_failed = log_failed
        self._logins: dict[Connection, Login] = {}
        self._by_token: dict[str, set[Login]] = {}
        """Those with delegation tokens, by the tokens' ids."""
        self._unfinished: UnfinishedLogins[Connection] = UnfinishedLogins()
        self._wrong = WrongLogins()
        self.shook_hands: Signal[Login] = Signal()
        """The client's choice of a mechanism was taken or refused, and the answer is about to be sent."""
        self.stepped: Signal[Login, Step] = Signal()
        """A login has come further, or to its end, and the answer is about to be sent."""

    def begin(self, connection: Connection) -> Login:
        config = self._settings.current.sasl_of(connection.listener.name)
        mechanisms = {name: self._mechanism(name) for name in config.mechanisms}
        session = LoginSession(mechanisms, reauthenticate_ms=config.reauthenticate_ms)
        login = self._logins[connection] = Login(connection, session, config)
        self._add_unfinished(connection, config)
        return login

    def begin_handshake(self, connection: Connection) -> None:
        """Where TLS is all that a client has to do, its handshake is what is unfinished."""
        self._add_unfinished(connection, self._settings.current.sasl_of(connection.listener.name))

    def end_handshake(self, connection: Connection) -> None:
        if connection not in self._logins:
            self._unfinished.discard(connection.peer[0], connection)

    def _add_unfinished(self, connection: Connection, config: SaslConfig) -> None:
        while len(self._unfinished) >= config.unauthenticated_max:
            self.make_room()
        self._unfinished.add(connection.peer[0], connection)

    def make_room(self) -> bool:
        """End the unfinished login that has to go first; False if there is none."""
        if not self._unfinished:
            return False
        self._metrics.logins_evicted += 1
        self._unfinished.next_to_go().close()  # which is then forgotten
        return True

    def of(self, connection: Connection) -> Login | None:
        """None on listeners without logins."""
        return self._logins.get(connection)

    def forget(self, connection: Connection) -> None:
        login = self._logins.pop(connection, None)
        if login is not None:
            login.restart_timer(None)
            self._set_token(login, "")
        self._unfinished.discard(connection.peer[0], connection)

    def of_tokens(self, is_wanted: Callable[[str], bool]) -> list[tuple[str, list[Login]]]:
        """The logins with delegation tokens whose ids are wanted."""
        return [(token_id, list(found)) for token_id, found in self._by_token.items() if is_wanted(token_id)]

    def _set_token(self, login: Login, token_id: str) -> None:
        if login.token_id:
            found = self._by_token[login.token_id]
            found.discard(login)
            if not found:
                del self._by_token[login.token_id]
        login.token_id = token_id
        if token_id:
            self._by_token.setdefault(token_id, set()).add(login)

    @property
    def unfinished(self) -> int:
        """Connections that have not logged in, or are within their TLS handshake."""
        return len(self._unfinished)

    def close(self) -> None:
        """Blocks until the checks under way have ended."""
        self._passwords.close()
        self._tokens.close()

    # -- steps -----------------------------------------------------------------------------------------

    def handshake(self, login: Login, mechanism: str) -> ErrorCode:
        code = login.session.handshake(mechanism, self._time.now_ms())
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            self._note_failed(login, Rejected(reason="the mechanism is not enabled here"))
        self.shook_hands.send(login)
        return code

    def refuse_handshake(self, login: Login, reason: str) -> None:
        login.session.fail()
        self._note_failed(login, Rejected(reason=reason))
        self.shook_hands.send(login)

    async def authenticate(self, login: Login, data: bytes) -> Step:
        """Carry out the checks of a login step; the step that answers the client."""
        session, now_ms = login.session, self._time.now_ms
        step = self._too_early(login) or session.authenticate(data, now_ms())
        if isinstance(step, CheckPassword | Challenge) and step.user:
            login.claimed = step.user
            step = self._too_early(login) or step
        if isinstance(step, CheckPassword | CheckToken):
            verdict = await self._checked(login, step)
            if login.connection.closed:
                return Rejected(reason="the client did not wait")
            refused = self._too_early(login) if verdict is None else None
            step = refused or session.resolve(verdict or _NOT_CHECKED, now_ms())
            if isinstance(step, Challenge):
                # A token was refused. The client need not acknowledge that, so it is noted now.
                self._note_failed(login, verdict if isinstance(verdict, Rejected) else _OTHER_USER)
                login.refusal_noted = True
        if isinstance(step, Accepted):
            self._note_accepted(login, step)
        elif isinstance(step, Rejected) and not login.refusal_noted:
            self._note_failed(login, step)
        self.stepped.send(login, step)
        return step

    async def _checked(self, login: Login, asked: CheckPassword | CheckToken) -> Verdict | None:
        """None if it was not looked at, since the client did not wait, or there were too many wrong logins
        before it."""
        connection = login.connection
        if isinstance(asked, CheckToken):
            return await self._tokens.verdict(asked, connection.peer[0], lambda: not connection.closed)
        return await self._passwords.verdict(
            asked, connection.peer[0], lambda: not connection.closed and not self._wait_ms(login)
        )

    # -- wrong logins ----------------------------------------------------------------------------------

    def _too_early(self, login: Login) -> Rejected | None:
        """Refuse a login unseen, whose client has to wait after wrong ones."""
        wait_ms = self._wait_ms(login)
        if not wait_ms:
            return None
        login.session.fail()
        self._metrics.logins_refused += 1
        return Rejected(
            reason="too many wrong logins before it: it was not looked at",
            user=login.claimed,
            wait_ms=wait_ms,
        )

    def _wait_ms(self, login: Login) -> int:
        """Whoever logs in again on a connection that is open has shown before who it is."""
        if not login.claimed or login.session.user is not None:
            return 0
        # Brokers may have to log in for the first time while somebody guesses on the same machine.
        is_broker = login.claimed == self._settings.current.sasl.broker_user
        return self._wrong.wait_ms(
            login.claimed,
            login.connection.peer[0],
            self._limits(),
            self._time.uptime_ms(),
            is_known=is_broker,
        )

    def _limits(self) -> LoginLimits:
        config = self._settings.current.sasl
        return LoginLimits(
            failures_max=config.failures_max,
            address_failures_max=config.address_failures_max,
            wait_ms=config.wait_ms,
            wait_ms_max=config.wait_max_ms,
            exempt=config.wait_exempt,
            remembered_max=config.failures_remembered_max,
        )

    # -- what is noted ---------------------------------------------------------------------------------

    def timed_out(self, login: Login) -> None:
        self._metrics.logins_timed_out += 1
        log.warning("a client has not logged in in time", extra=self._about(login))

    def session_expired(self, login: Login) -> None:
        self._metrics.sessions_expired += 1
        log.warning("a client has not logged in again in time", extra=self._about(login))

    def token_ended(self, login: Login) -> None:
        log.warning("closing a connection whose delegation token was ended", extra=self._about(login))

    def time_left_ms(self, end_ms: int) -> int:
        return max(end_ms - self._time.now_ms(), 0)

    def out_of_order(self, login: Login, api: str) -> None:
        self._metrics.logins_failed += 1
        hint = "set security.protocol=SASL_PLAINTEXT or SASL_SSL and sasl.mechanism in the client"
        log.warning(
            "closing a connection that asked for something before it had logged in",
            extra=self._about(login) | {"request": api, "hint": hint},
        )

    def _note_accepted(self, login: Login, accepted: Accepted) -> None:
        login.connection.logged_in(f"User:{accepted.user}")
        self._set_token(login, accepted.token_id)
        self._unfinished.discard(login.connection.peer[0], login.connection)
        if login.claimed:
            self._wrong.succeeded(login.claimed, login.connection.peer[0], self._limits())
        self._metrics.logins += 1
        log.debug("a client has logged in", extra=self._about(login))

    def _note_failed(self, login: Login, rejected: Rejected) -> None:
        self._metrics.logins_failed += 1
        if login.claimed and not rejected.wait_ms:
            host = login.connection.peer[0]
            self._wrong.failed(login.claimed, host, self._limits(), self._time.uptime_ms())
        about = self._about(login) | {"reason": rejected.reason}
        if rejected.user:
            about["user"] = rejected.user
        self._log_failed(login.connection.peer[0], about)

    def _about(self, login: Login) -> dict[str, object]:
        connection = login.connection
        host, port = connection.peer
        return {
            "client": f"{host}:{port}",
            "listener": connection.listener.name,
            "mechanism": login.session.mechanism,
            "principal": connection.principal,
        }

    # -- mechanisms ------------------------------------------------------------------------------------

    def _mechanism(self, name: str) -> Callable[[], Exchange]:
        if name in BY_NAME:
            mechanism = BY_NAME[name]
            find, make_up = partial(self._find, mechanism), partial(self._make_up, mechanism)
            return partial(ScramExchange, mechanism, find, made_up=make_up, entropy=self._entropy)
        return BearerExchange if name == OAUTHBEARER else PlainExchange

    def _find(self, mechanism: ScramMechanism, name: str, is_token: bool) -> Identity | None:
        """Clients that cannot say that a name is a token's id (librdkafka) may log in with it all the same:
        no user has such a name."""
        image = self._metadata.image
        if not is_token and (user := image.users.get(name)) is not None:
            own = user.credentials.get(mechanism)
            return None if own is None else Identity(name, own)
        token = image.tokens.get(name) if self._settings.current.tokens.is_enabled else None
        credential = None if token is None else token.credentials.get(mechanism)
        if token is None or credential is None:
            return None
        return Identity(token.owner_name, credential, min(token.expires_ms, token.max_ms), token.id)

    def _make_up(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        return self._made_up.credential(mechanism, user, self._metadata.image.users)


def response(session: LoginSession, step: Step) -> SaslAuthenticateResponse:
    """The answer to one step. It says the same whatever a login failed for, if it was looked at."""
    if isinstance(step, Challenge):
        return SaslAuthenticateResponse(auth_bytes=step.data)
    if isinstance(step, Accepted):
        return SaslAuthenticateResponse(auth_bytes=step.data, session_lifetime_ms=session.lifetime_ms)
    if isinstance(step, Rejected) and step.wait_ms:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message="Authentication failed: there were too many failed logins from this address, "
            f"try again in {-(-step.wait_ms // 1000)} s",
        )
    return SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
        error_message="Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {session.mechanism}",
    )
