"""Tokens of OAUTHBEARER logins: their signatures are checked in a thread, with keys that another one fetches.

Keys are fetched when a token names one that is not known, but not more often than
`forebay.oauthbearer.jwks.refetch.ms` allows, and from time to time. While they cannot be fetched, those that
are known stay in use.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from forebay.broker.authentication.fair_threads import FairThreads
from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.worker_threads import LazyThreads
from forebay.config import OAuthConfig
from forebay.core.security.sasl.exchange import CheckToken, Rejected, Verdict
from forebay.core.security.sasl.token_claims import ALGORITHMS, TokenRules, judge, key_id

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger(__name__)

_NO_SIGNATURE = Rejected(reason="the token is not signed by a known key")

Keys = Mapping[str | None, "PyJWK"]
"""By their ids; None for the only one, if there is only one."""


class TokenChecks:
    def __init__(
        self,
        config: OAuthConfig,
        *,
        time: BrokerTime,
        background: Background,
        threads: FairThreads,
        fetching: LazyThreads,
    ) -> None:
        """`fetching`: the thread that waits for the server with the keys."""
        self._config = config
        self._rules = TokenRules(
            audience=config.audience,
            issuer=config.issuer or None,
            user_claim=config.user_claim,
            clock_skew_s=config.clock_skew_s,
        )
        self._time = time
        self._background = background
        self._threads = threads
        self._fetching = fetching
        self._fetch_lock = asyncio.Lock()
        self._keys: Keys = {}
        self._fetched_ms: int | None = None
        """When a fetch was last begun, by the uptime."""

    async def verdict(self, asked: CheckToken, host: str, is_wanted: Callable[[], bool]) -> Verdict:
        """`host`: where the client is. `is_wanted`: whether it still waits when its turn has come."""
        named = key_id(asked.token)
        if named is None:
            return Rejected(reason="this is no token, or its algorithm is not accepted")
        algorithm, kid = named
        if kid not in self._keys:
            await self._fetch_keys()
        elif self._age_ms() >= self._config.refresh_ms:
            self._background.spawn(self._fetch_keys(), "fetching the keys of tokens")
        key = self._keys.get(kid)
        if key is None:
            return _NO_SIGNATURE
        claims = await self._threads.run(host, "", is_wanted, lambda: _claims(asked.token, key, algorithm))
        return _NO_SIGNATURE if claims is None else judge(claims, self._rules, self._time.now_ms())

    def close(self) -> None:
        self._threads.close()
        self._fetching.close()

    def _age_ms(self) -> float:
        return float("inf") if self._fetched_ms is None else self._time.uptime_ms() - self._fetched_ms

    async def _fetch_keys(self) -> None:
        async with self._fetch_lock:  # whoever comes meanwhile waits for the same answer
            if self._age_ms() < self._config.refetch_ms:
                return
            self._fetched_ms = self._time.uptime_ms()
            url = self._config.jwks_url
            assert url is not None, "the settings were checked"
            try:
                self._keys = await self._fetching.run(lambda: _fetched(url))
            except (OSError, ValueError) as error:
                about = {"url": _without_login(url), "reason": str(error)}
                log.warning("the keys of tokens could not be fetched", extra=about)


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _fetched(url: str) -> Keys:
    """Blocks. Raises OSError or ValueError."""
    # Imported by the thread that waits anyway: most brokers check no tokens, and need no client of HTTP.
    from forebay.broker.authentication.key_fetching import fetch_keys

    return fetch_keys(url)


def _claims(token: str, key: PyJWK, algorithm: str) -> dict[str, Any] | None:
    """The claims of a token, if the key has signed it. Blocks for some tenths of a millisecond."""
    from jwt import PyJWS
    from jwt.exceptions import PyJWTError

    assert algorithm in ALGORITHMS
    try:
        claims = json.loads(PyJWS().decode(token, key.key, algorithms=[algorithm]))
    except (PyJWTError, ValueError, TypeError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None
