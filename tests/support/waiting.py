"""Every wait of a test has an end, and fails with what was seen."""

from __future__ import annotations

import asyncio
import functools
import io
import select
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

SECONDS_MAX = 120.0
"""How long anything may take on a machine with much else to do. Only what hangs takes as long."""
ASYNC_TEST_SECONDS_MAX = 400.0
"""Less than the limit of pytest-timeout, which knows nothing of tasks."""

AsyncTest = Callable[..., Coroutine[Any, Any, None]]


class Patience:
    """For a loop that does something while it waits; `check` fails when that takes too long.

    patience = Patience("the member gets a partition")
    while not consumer.assignment():
        patience.check()
        consumer.poll(0.05)
    """

    def __init__(self, what: str, seconds: float = SECONDS_MAX) -> None:
        self._what, self._seconds = what, seconds
        self._give_up_at = time.monotonic() + seconds

    def check(self, seen: object = None) -> None:
        told = "" if seen is None else f"; seen: {seen}"
        assert time.monotonic() < self._give_up_at, f"not within {self._seconds:.0f} s: {self._what}{told}"


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def readable(files: Iterable[int | HasDescriptor], seconds: float) -> bool:
    """True once any of them can be read. Not by select(), which knows the first 1,024 descriptors only."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def ended(test: AsyncTest, seconds: float = ASYNC_TEST_SECONDS_MAX) -> AsyncTest:
    """The same test, cancelled after so long: it fails with what each task waited for by then."""

    @functools.wraps(test)
    async def limited(*arguments: Any, **named: Any) -> None:
        waiting: list[str] = []
        task = asyncio.current_task()
        assert task is not None

        def give_up() -> None:
            waiting.extend(map(_stack, asyncio.all_tasks()))
            task.cancel()

        timer = asyncio.get_running_loop().call_later(seconds, give_up)
        try:
            await test(*arguments, **named)
        except asyncio.CancelledError:
            if not waiting:
                raise
            task.uncancel()
            told = "\n".join(waiting)
            raise AssertionError(f"it has not ended after {seconds:.0f} s. Its tasks:\n{told}") from None
        finally:
            timer.cancel()

    return limited


def _stack(task: asyncio.Task[Any]) -> str:
    text = io.StringIO()
    task.print_stack(file=text)
    return text.getvalue()
