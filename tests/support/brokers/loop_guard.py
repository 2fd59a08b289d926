"""Finds what waits for a disk on the event loop of a broker, and belongs into a thread.

That is every call in `LogFiles`, and opening a log. The loop may make them itself before the broker serves
and when it serves no more. Tests may, too: only what the broker's own code calls counts.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from forebay.broker.partition.assignment.assignment import Assignment
from forebay.storage.log.files import LogFiles
from forebay.storage.log.opening import open_log
from forebay.storage.log.truncation import LogTruncation


@contextmanager
def loops_guarded() -> Iterator[None]:
    """Fails in the end if any broker of this process, simulated or not, has waited for a disk on its loop."""
    waited: list[str] = []
    not_serving = threading.local()

    def guarded(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            caller = sys._getframe(1).f_globals["__name__"]
            own = not caller.startswith(("forebay.storage.log.", "support.", "test_", "tests."))
            if own and _on_loop() and not getattr(not_serving, "now", False):
                waited.append(f"{work.__qualname__}, called by {caller}")
            return work(*args, **options)

        return call

    def unguarded(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            not_serving.now = True
            try:
                return work(*args, **options)
            finally:
                not_serving.now = False

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name, work in {**vars(LogTruncation), **vars(LogFiles)}.items():
            if callable(work) and not name.startswith("_"):
                patch.setattr(LogFiles, name, guarded(work))
        patch.setattr("forebay.storage.datadir.open_log", guarded(open_log))
        patch.setattr(Assignment, "open_all", unguarded(Assignment.open_all))
        patch.setattr(Assignment, "close_all", unguarded(Assignment.close_all))
        yield
    assert not waited, "on the loop: " + "; ".join(sorted(set(waited)))


def _on_loop() -> bool:
    """Whether an event loop runs in this thread. A simulated one knows whether it is a thread's turn."""
    loop = asyncio._get_running_loop()
    return loop is not None and bool(getattr(loop, "busy", True))
