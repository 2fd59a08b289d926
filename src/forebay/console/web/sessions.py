"""Sessions of people behind a cookie, begun with the token or with a login to the cluster.

With the token, all sessions share the console's own access to each cluster. With logins, each user has an
access of their own, with their own credentials, so that the brokers decide what they may do.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import field

from forebay.console.settings import ClusterSettings, ConsoleSettings
from forebay.console.watch.cluster_access import ClusterAccess
from forebay.errors import ConfigError
from forebay.lazy import dataclass
from forebay.operations.client import Client, CommandError
from forebay.operations.wire import WireConnection

IDLE_SECONDS_MAX = 12 * 3600.0
_LOGINS_AT_ONCE = 2
_DEFAULT_MECHANISM = "SCRAM-SHA-512"


class LoginRefused(CommandError):
    """Wrong name, password or token."""


@dataclass(slots=True, kw_only=True)
class Session:
    id: str
    user: str
    """Empty for holders of the token."""
    clusters: dict[str, ClusterAccess]
    used_at: float = 0.0
    problems: dict[str, str] = field(default_factory=dict)
    """The reason of each cluster that did not let this user in."""


class Sessions:
    """All of them. Thread-safe; `log_in` blocks."""

    def __init__(self, settings: ConsoleSettings, now: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._now = now
        self._lock = threading.Lock()
        self._logins = threading.Semaphore(_LOGINS_AT_ONCE)
        self._sessions: dict[str, Session] = {}
        self._shared: dict[str, ClusterAccess] = {}

    def start(self) -> None:
        if self._settings.login:
            return
        for cluster in self._settings.clusters:
            access = self._access(cluster, {})
            access.start()
            self._shared[cluster.name] = access

    def close(self) -> None:
        with self._lock:
            ended, self._sessions = list(self._sessions.values()), {}
        for session in ended:
            self._end(session)
        for access in self._shared.values():
            access.close()

    def find(self, cookie: str) -> Session | None:
        with self._lock:
            session = self._sessions.get(cookie)
            if session is not None and session.used_at >= self._now() - IDLE_SECONDS_MAX:
                session.used_at = self._now()
                return session
        if session is not None:
            self.log_out(session)
        return None

    def with_token(self, token: str) -> Session | None:
        """A session for the holder of the token; None if it is wrong."""
        if self._settings.login or not hmac.compare_digest(token.encode(), self._settings.token.encode()):
            return None
        return self._keep(Session(id=_new_id(), user="", clusters=dict(self._shared)))

    def log_in(self, user: str, password: str) -> Session:
        """Log in to each cluster; one that accepts is enough. Raises LoginRefused."""
        accesses: dict[str, ClusterAccess] = {}
        problems: dict[str, str] = {}
        with self._logins:
            for cluster in self._settings.clusters:
                access = self._access(cluster, {"sasl.username": user, "sasl.password": password})
                try:
                    WireConnection.open(access.client).close()
                    accesses[cluster.name] = access
                except (CommandError, ConfigError) as error:
                    problems[cluster.name] = str(error)
            if not accesses:
                time.sleep(1.0)  # guessing passwords should take long
                raise LoginRefused("; ".join(problems.values()))
        for access in accesses.values():
            access.start()
        return self._keep(Session(id=_new_id(), user=user, clusters=accesses, problems=problems))

    def log_out(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)
        self._end(session)

    def _access(self, cluster: ClusterSettings, login: dict[str, str]) -> ClusterAccess:
        properties = dict(cluster.properties)
        if login:
            protocol = properties.get("security.protocol", "SASL_PLAINTEXT")
            mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
            properties |= {
                "security.protocol": protocol,
                "sasl.mechanism": mechanism or _DEFAULT_MECHANISM,
                **login,
            }
        client = Client(bootstrap=cluster.bootstrap, properties=properties)
        return ClusterAccess(cluster, client, self._settings, login.get("sasl.username", ""))

    def _keep(self, session: Session) -> Session:
        """Old sessions end when there are too many, the longest unused first."""
        session.used_at = self._now()
        with self._lock:
            self._sessions[session.id] = session
            by_age = sorted(self._sessions.values(), key=lambda each: each.used_at)
            limit = session.used_at - IDLE_SECONDS_MAX
            spare = len(by_age) - self._settings.sessions_max
            ended = [each for at, each in enumerate(by_age) if at < spare or each.used_at < limit]
            for each in ended:
                del self._sessions[each.id]
        for each in ended:
            self._end(each)
        return session

    def _end(self, session: Session) -> None:
        if session.user:  # the others share theirs
            for access in session.clusters.values():
                access.close()


def _new_id() -> str:
    return secrets.token_urlsafe(32)
