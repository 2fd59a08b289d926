"""Handshakes take turns: a step costs about a millisecond of CPU, as much as a hundred small requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from forebay.broker.pauses import PausedWork


class HandshakeTurns:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, thread_cpu: Callable[[], float], per_turn: int
    ) -> None:
        """`thread_cpu`: the seconds of CPU that the loop's thread has used."""
        self._per_turn = per_turn
        self._steps: deque[Callable[[], None]] = deque()
        self._work = PausedWork(loop, thread_cpu, self._take_turn)

    def __len__(self) -> int:
        return len(self._steps)

    def begin(self, step: Callable[[], None]) -> None:
        """Do a step of a handshake in this turn of the loop or in one after it, in the order of the calls."""
        self._steps.append(step)
        self._work.begin()

    def _take_turn(self) -> bool:
        for _ in range(min(self._per_turn, len(self._steps))):
            self._steps.popleft()()
        return bool(self._steps)
