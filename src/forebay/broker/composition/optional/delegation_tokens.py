"""The delegation tokens of a broker, made when a client first asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.worker_threads import LazyThreads
from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.broker.authentication.logins import Logins
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.tokens.delegation_tokens import DelegationTokens


class LazyDelegationTokens:
    def __init__(self, base: Foundations, logins: Logins) -> None:
        self._base = base
        self._logins = logins
        self._threads = LazyThreads(base.loop, lambda: base.ports.executor(1, "forebay-token"))
        self._made: DelegationTokens | None = None

    def __call__(self) -> DelegationTokens:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> DelegationTokens:
        base = self._base
        return load("forebay.broker.tokens.delegation_tokens:DelegationTokens")(
            settings=base.settings,
            metadata=base.metadata,
            logins=self._logins,
            authorization=base.authorization,
            threads=self._threads,
            time=base.time,
            loop=base.loop,
            entropy=base.ports.entropy,
        )

    def close(self) -> None:
        """Blocks until the work under way has ended."""
        self._threads.close()
