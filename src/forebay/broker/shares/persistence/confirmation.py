"""Whether the state of a share partition is still the one that was read.

A group without members can be reset, or deleted and made again, and the leader is not told. So if a share
partition is there when a member begins to fetch from it (because of a backoff, or of a session that was left
over), that is a doubt. The share coordinator is asked by a write without content. It refuses that if the
state is not the one that was read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from forebay.broker.shares.persistence.state_store import NO_WRITE
from forebay.core.shares.partition.writes import StateWrite
from forebay.errors import KafkaError


class Confirmation:
    def __init__(self, persist: Callable[[StateWrite, int], Awaitable[None]]) -> None:
        self._persist = persist
        self.doubts = 0
        """How often there was reason to ask."""
        self._confirmed = 0
        """Up to which of the doubts the state is known to be the same."""
        self._is_asking = False

    def doubt(self) -> None:
        """The state may have been reset, or be that of another group of the name."""
        self.doubts += 1

    def answers(self, doubts: int) -> bool:
        """Whether a request may go on that came when there had been that many doubts. Later ones are not its
        own: they would hold it up for as long as members come."""
        return self._confirmed >= doubts

    def begin(self) -> bool:
        """Whether to `ask` now: there is a doubt, and nobody asks yet."""
        if self._confirmed == self.doubts or self._is_asking:
            return False
        self._is_asking = True
        return True

    async def ask(self, state_epoch: int) -> bool:
        """False if the state is another, or cannot be had."""
        doubts = self.doubts
        try:
            await self._persist(NO_WRITE, state_epoch)
        except KafkaError:
            return False
        finally:
            self._is_asking = False
        self._confirmed = doubts
        return True
