"""Handshakes take turns: a step costs about a millisecond of CPU, as much as a hundred small requests.

Addresses take turns, so one that begins many keeps no other waiting. A step that finds its client gone costs
little and counts for little.
"""

from __future__ import annotations

from collections.abc import Callable

from forebay.broker.yielding.stranger_work import StrangerWork
from forebay.core.security.sender_rotation import StrangerRotation

Step = Callable[[], bool]
"""Tells whether there was anything to do."""

_IN_VAIN_MAX = 16
"""Steps without anything to do, for each one that may have something, in a turn of the loop."""


class HandshakeTurns:
    def __init__(self, work: StrangerWork, per_turn: int) -> None:
        self._work = work
        self._per_turn = per_turn
        self._steps: StrangerRotation[Step] = StrangerRotation(work.known)
        self._begin = work.kind(self._take_turn)

    def __len__(self) -> int:
        return len(self._steps)

    def begin(self, sender: str, step: Step) -> None:
        """Do a step of a handshake in this turn of the loop or in one after it, in the order of the sender's
        calls."""
        self._steps.add(sender, step)
        self._begin()

    def _take_turn(self) -> bool:
        done, looked_at, waiting = 0, 0, len(self._steps)  # those that follow from these wait
        while looked_at < min(waiting, self._per_turn * _IN_VAIN_MAX) and done < self._per_turn:
            done += self._steps.take()()
            looked_at += 1
            if self._work.piece_is_over:
                break
        return bool(self._steps)
