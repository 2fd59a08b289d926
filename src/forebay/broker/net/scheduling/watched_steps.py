"""Requests that are handled in several turns of the event loop: how long it is blocked in each is watched.

Their time is spent in tasks, where nobody would know whose request it was that blocked the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any


class WatchedSteps:
    """Awaits a coroutine, and reports each of its steps that takes too long. Its waits do not count."""

    __slots__ = ("_alarm_s", "_coroutine", "_now", "_report")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        now: Callable[[], float],
        alarm_s: float,
        report: Callable[[float], None],
    ) -> None:
        self._coroutine = coroutine
        self._now = now
        self._alarm_s = alarm_s
        self._report = report

    def __await__(self) -> Generator[Any, Any, Any]:
        now, resume = self._now, self._coroutine.send
        sent: Any = None
        while True:
            began = now()
            try:
                awaited = resume(sent)
            except StopIteration as end:
                return end.value
            finally:
                if (took_s := now() - began) >= self._alarm_s:
                    self._report(took_s)
            try:
                sent = yield awaited
                resume = self._coroutine.send
            except BaseException as error:  # a cancellation, or what the awaited has raised
                resume, sent = self._coroutine.throw, error
