"""Decides when a partition whose records are being copied is closed, step by step.

It stays open while most of it is copied. When little is left, its leader *holds* it: producers are refused,
with an error that they retry, until the rest is copied as well. Then the topic's record says that it is
closed. Messages sent for it from then on come after everything that was copied.

A transaction that is open in the partition must end first, and it cannot end while its producer is refused.
So if there is one, new transactions are refused first (the partition is *draining*), while open ones
continue. When none is open, the partition is held.

A hold is short. If it has not ended after a few seconds (a long transaction, a target that cannot be
written), it is given up, and tried again after a while.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

REST_MAX = 10_000
"""A partition is held when at most this many offsets are left: they are copied in well under a second."""
HOLD_S_MAX = 5.0
"""The maximum time for which producers are refused before the hold is given up."""
PAUSE_S = 5.0
"""The pause between a hold that was given up and the next."""
GAIN_S = 30.0
"""If a partition grows faster than it is copied for this long, it is held all the same."""


DRAIN_S_MAX = 900.0
"""The maximum time that new transactions wait for open ones: as long as a transaction may take."""


class Pace:
    """Tracks if a partition is copied faster than it grows, and how long its open transactions may take."""

    def __init__(self, rest: int, now_s: float) -> None:
        """`rest`: the number of offsets left to copy."""
        self._rest_before = rest
        self._looked_s = now_s
        self._is_losing = False
        self.drain_s = HOLD_S_MAX
        """How long new transactions wait for the end of open ones: longer each time it was not enough."""

    def is_losing(self, rest: int, now_s: float) -> bool:
        """True if the rest has not become smaller for a while."""
        if now_s - self._looked_s > GAIN_S:
            self._is_losing = rest >= self._rest_before
            self._rest_before, self._looked_s = rest, now_s
        return self._is_losing

    def drain_failed(self) -> None:
        self.drain_s = min(2 * self.drain_s, DRAIN_S_MAX)


class Held(Enum):
    NOT = "it takes all messages"
    DRAINING = "it takes no new transactions"
    FULLY = "it takes nothing"


class Progress(NamedTuple):
    held: Held
    rest: int
    """The number of offsets not copied yet, including those of uncommitted messages."""
    has_more: bool
    """True if some of them are committed, and not blocked by an open transaction."""
    in_transaction: bool
    """True if a transaction is open."""
    is_followed: bool
    """True if no replica that may lead next can hold more messages than those."""
    is_losing: bool = False
    """True if the rest has not become smaller for a while."""
    is_pausing: bool = False
    """True if a hold was given up a short time ago, or if delayed messages wait in the partition."""


class ClosingStep(Enum):
    COPY = "copy what can be read"
    WAIT = "until something has changed"
    DRAIN = "hold new transactions off"
    HOLD = "hold all messages off"
    FINISH = "all is copied: close it"


def next_step(progress: Progress) -> ClosingStep:
    meanwhile = ClosingStep.COPY if progress.has_more else ClosingStep.WAIT
    if progress.held is Held.FULLY:
        return ClosingStep.FINISH if not progress.rest and progress.is_followed else meanwhile
    if progress.held is Held.DRAINING:
        return meanwhile if progress.in_transaction else ClosingStep.HOLD
    is_much = progress.rest > REST_MAX and not progress.is_losing
    if progress.is_pausing or is_much:
        return meanwhile
    return ClosingStep.DRAIN if progress.in_transaction else ClosingStep.HOLD
