"""Every user may change tokens, and each change is a write to the store: so one user makes one at a time, and
no more of them than `forebay.delegation.token.changes.per.second` allows. Others do not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from forebay.core.quotas.token_bucket import TokenBucket

_BURST_S = 10.0
_DEBT_S_MAX = 60.0
_KEPT_MAX = 1_000
"""Users that are remembered before those who have made no changes for a while are forgotten."""


class _Turn:
    """Of one user."""

    def __init__(self, bucket: TokenBucket) -> None:
        self.lock = asyncio.Lock()
        self.bucket = bucket
        self.wanted = 0
        """Changes under way, or waiting."""


class ChangeTurns:
    def __init__(self, now: Callable[[], float], per_second: int) -> None:
        """`now`: the time of the event loop."""
        self._now = now
        self._per_second = per_second
        self._turns: dict[str, _Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    @asynccontextmanager
    async def of(self, principal: str) -> AsyncIterator[None]:
        turn = self._turn(principal)
        turn.wanted += 1
        try:
            async with turn.lock:
                wait_s = turn.bucket.wait_s(self._now())
                if wait_s:
                    await asyncio.sleep(wait_s)
                turn.bucket.take(1, self._now())
                yield
        finally:
            turn.wanted -= 1

    def _turn(self, principal: str) -> _Turn:
        turn = self._turns.get(principal)
        if turn is None:
            if len(self._turns) >= _KEPT_MAX:
                self._forget_idle()
            now = self._now()
            bucket = TokenBucket(self._per_second, now, burst_s=_BURST_S, debt_s_max=_DEBT_S_MAX)
            turn = self._turns[principal] = _Turn(bucket)
        return turn

    def _forget_idle(self) -> None:
        now = self._now()
        for principal, turn in list(self._turns.items()):
            if not turn.wanted and turn.bucket.is_full(now):
                del self._turns[principal]
