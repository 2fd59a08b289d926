"""The order of the steps on a connection that has to log in.

    INITIAL -> [ApiVersions] -> VERSIONS_KNOWN -> SaslHandshake -> CHOSEN -> SaslAuthenticate ... -> READY

Until it is READY a connection may ask for nothing else, and anything out of order ends it. A READY connection
whose session has an end may begin again at SaslHandshake, before or after that end (KIP-368); mechanism and
user must stay the same. FAILED is the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from forebay.core.security.sasl.exchange import (
    Accepted,
    CheckPassword,
    CheckToken,
    Exchange,
    Rejected,
    Step,
    Verdict,
)
from forebay.errors import ErrorCode
from forebay.wire.api_keys import ApiKey

REAUTHENTICATION_MS_MIN = 1000
"""A handshake sooner than this after the last login is out of order."""


class Phase(Enum):
    INITIAL = "initial"
    VERSIONS_KNOWN = "versions known"
    CHOSEN = "mechanism chosen"
    CHECKING = "checking"
    """The shell carries out a check."""
    READY = "ready"
    FAILED = "failed"


_MAY_COME: Mapping[Phase, frozenset[int]] = {
    Phase.INITIAL: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    Phase.VERSIONS_KNOWN: frozenset({ApiKey.SASL_HANDSHAKE}),
    Phase.CHOSEN: frozenset({ApiKey.SASL_AUTHENTICATE}),
    Phase.CHECKING: frozenset(),
    Phase.READY: frozenset(),
    Phase.FAILED: frozenset(),
}
"""The requests that each phase accepts. A READY connection accepts any, and this table is not used then."""


class LoginSession:
    def __init__(self, mechanisms: Mapping[str, Callable[[], Exchange]], *, reauthenticate_ms: int) -> None:
        """`mechanisms`: the listener's. `reauthenticate_ms`: how long a login is valid; 0: for ever."""
        self._mechanisms = mechanisms
        self._reauthenticate_ms = reauthenticate_ms
        self.phase = Phase.INITIAL
        self.mechanism = ""
        self.user: str | None = None
        """The user that has logged in."""
        self.lifetime_ms = 0
        """How long the last login is valid; 0: for ever."""
        self._exchange: Exchange | None = None
        self._ready_ms = 0
        self._changed_mechanism = False

    def may_come(self, api_key: int) -> bool:
        """True if a request is in order, on a connection that is not READY."""
        return api_key in _MAY_COME[self.phase]

    def versions_told(self) -> None:
        """Note that ApiVersions was answered, in a version that is served."""
        if self.phase is Phase.INITIAL:
            self.phase = Phase.VERSIONS_KNOWN

    def handshake(self, mechanism: str, now_ms: int) -> ErrorCode:
        if self.phase is Phase.READY:
            # If the clock was set back, the interval is unknown.
            too_soon = 0 <= now_ms - self._ready_ms < REAUTHENTICATION_MS_MIN
            if not self.lifetime_ms or too_soon:
                return ErrorCode.ILLEGAL_SASL_STATE  # the connection stays as it is
            self._changed_mechanism = mechanism != self.mechanism
        elif not self.may_come(ApiKey.SASL_HANDSHAKE):
            self.phase = Phase.FAILED
            return ErrorCode.ILLEGAL_SASL_STATE
        make = self._mechanisms.get(mechanism)
        if make is None:
            self.phase = Phase.FAILED
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self.mechanism = mechanism
        self._exchange = make()
        self.phase = Phase.CHOSEN
        return ErrorCode.NONE

    def fail(self) -> None:
        """End the session, whatever was sent."""
        self.phase, self._exchange = Phase.FAILED, None

    def authenticate(self, data: bytes, now_ms: int) -> Step:
        if not self.may_come(ApiKey.SASL_AUTHENTICATE):
            return self._take(Rejected(reason="SaslAuthenticate came out of order"), now_ms)
        if self._changed_mechanism:
            return self._take(Rejected(reason="a reauthentication used another mechanism"), now_ms)
        assert self._exchange is not None
        return self._take(self._exchange.step(data), now_ms)

    def resolve(self, verdict: Verdict, now_ms: int) -> Step:
        """Continue with the result of a check."""
        assert self.phase is Phase.CHECKING and self._exchange is not None
        return self._take(self._exchange.resolve(verdict), now_ms)

    def _take(self, step: Step, now_ms: int) -> Step:
        if isinstance(step, Accepted):
            step = self._checked(step, now_ms)
        if isinstance(step, Rejected):
            self.fail()
        elif isinstance(step, CheckPassword | CheckToken):
            self.phase = Phase.CHECKING
        elif isinstance(step, Accepted):
            self._accept(step, now_ms)
        else:
            self.phase = Phase.CHOSEN
        return step

    def _checked(self, accepted: Accepted, now_ms: int) -> Verdict:
        if self.user is not None and accepted.user != self.user:
            return Rejected(reason="a reauthentication was as another user", user=accepted.user)
        if accepted.expires_ms is not None and accepted.expires_ms <= now_ms:
            return Rejected(reason="what the client has shown is expired", user=accepted.user)
        return accepted

    def _accept(self, accepted: Accepted, now_ms: int) -> None:
        lifetimes = [self._reauthenticate_ms] if self._reauthenticate_ms else []
        if accepted.expires_ms is not None:
            lifetimes.append(accepted.expires_ms - now_ms)
        self.lifetime_ms = min(lifetimes, default=0)
        self.user = accepted.user
        self.phase, self._exchange, self._ready_ms = Phase.READY, None, now_ms
