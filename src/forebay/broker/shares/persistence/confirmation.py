"""Checks that the persisted state of a share partition is still the one that was read.

A group without members can be reset, or deleted and created again, and the leader is not notified. So there
is a doubt if a share partition is loaded already when a member begins to fetch from it (because of a backoff,
or of an old session). Then an empty write goes to the share coordinator. The coordinator refuses it if the
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
        """The number of doubts so far."""
        self._confirmed = 0
        """The number of doubts after which the state was confirmed."""
        self._is_asking = False

    def doubt(self) -> None:
        """Note that the state may have been reset, or belong to a newer group of the same name."""
        self.doubts += 1

    def answers(self, doubts: int) -> bool:
        """True if a request that came after that many doubts may continue. Later doubts do not delay it:
        otherwise it would wait for as long as new members come."""
        return self._confirmed >= doubts

    def begin(self) -> bool:
        """True if the caller has to `ask` now: there is a doubt, and no question is in flight."""
        if self._confirmed == self.doubts or self._is_asking:
            return False
        self._is_asking = True
        return True

    async def ask(self, state_epoch: int) -> bool:
        """False if the state is another one, or the coordinator cannot be asked."""
        doubts = self.doubts
        try:
            await self._persist(NO_WRITE, state_epoch)
        except KafkaError:
            return False
        finally:
            self._is_asking = False
        self._confirmed = doubts
        return True
