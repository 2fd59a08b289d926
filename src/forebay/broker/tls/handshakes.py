"""Handshakes take turns: a step costs about a millisecond of CPU, as much as a hundred small requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class HandshakeTurns:
    def __init__(self, loop: asyncio.AbstractEventLoop, per_turn: int) -> None:
        self._loop = loop
        self._per_turn = per_turn
        self._steps: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    def begin(self, step: Callable[[], None]) -> None:
        """Do a step of a handshake in this turn of the loop or in one after it, in the order of the calls."""
        if not self._steps:
            self._loop.call_soon(self._take_turn)
        self._steps.append(step)

    def _take_turn(self) -> None:
        for _ in range(min(self._per_turn, len(self._steps))):
            self._steps.popleft()()
        if self._steps:
            self._loop.call_soon(self._take_turn)
