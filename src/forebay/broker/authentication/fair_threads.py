"""Checks of logins in a thread, one at a time: addresses take turns, and at each address its users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from forebay.broker.worker_threads import LazyThreads
from forebay.core.security.networks import network_of
from forebay.core.security.sasl.fair_line import FairLine

T = TypeVar("T")


class FairThreads:
    def __init__(self, threads: LazyThreads) -> None:
        self._threads = threads
        self._line: FairLine[asyncio.Future[None]] = FairLine()
        self._is_busy = False

    async def run(
        self, host: str, user: str, is_wanted: Callable[[], bool], work: Callable[[], T]
    ) -> T | None:
        """None if it is not wanted any more when its turn has come. No more wait here than there are
        connections without a login: each has one check at most."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.put(network_of(host), user, turn)
        if not self._is_busy:
            self._give_turn()
        try:
            await turn
            return await self._threads.run(work) if is_wanted() else None
        finally:
            if turn.done() and not turn.cancelled():
                self._give_turn()

    def _give_turn(self) -> None:
        while (turn := self._line.take()) is not None:
            if not turn.done():  # whoever gave up has cancelled it
                turn.set_result(None)
                break
        self._is_busy = turn is not None

    def close(self) -> None:
        self._threads.close()
