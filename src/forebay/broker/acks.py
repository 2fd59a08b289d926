"""Acknowledgements of one partition that wait until its followers have what was appended.

Each waits for the high watermark to reach the log's end as it was after the append. Appends come in the
order of the log, so those that are done are always at the front.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from forebay.errors import ErrorCode

Done = Callable[[ErrorCode], None]


class _Waiting(NamedTuple):
    next_offset: int
    deadline_s: float
    done: Done


class PendingAcks:
    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, next_offset: int, deadline_s: float, done: Done) -> None:
        """Call `done` once everything below `next_offset` is committed, or can no longer be told to be."""
        self._waiting.append(_Waiting(next_offset, deadline_s, done))

    def committed(self, high_watermark: int) -> list[Done]:
        """Those whose messages are committed; they wait no more."""
        ready: list[Done] = []
        while self._waiting and self._waiting[0].next_offset <= high_watermark:
            ready.append(self._waiting.popleft().done)
        return ready

    def expire(self, now_s: float) -> None:
        """Answer those whose time is up. What they appended stays, and may be committed later."""
        late = [waiting for waiting in self._waiting if waiting.deadline_s <= now_s]
        if late:
            self._waiting = deque(waiting for waiting in self._waiting if waiting.deadline_s > now_s)
            _answer((waiting.done for waiting in late), ErrorCode.REQUEST_TIMED_OUT)

    def fail(self, error: ErrorCode) -> None:
        """Nobody here can say any more what becomes of the messages."""
        waiting, self._waiting = self._waiting, deque()
        _answer((item.done for item in waiting), error)


def _answer(dones: Iterable[Done], error: ErrorCode) -> None:
    for done in dones:
        done(error)
