"""How a parent starts a worker, without a process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import Any

from forebay.local.workers.launching import ForkServerEnded
from forebay.local.workers.plan import WorkerPlan
from forebay.local.workers.worker import Worker

PLAN = WorkerPlan(number=1, settings={}, ports={}, metrics=None)


class Ended:
    """A worker that has ended."""

    pid = 1

    def signal(self, number: signal.Signals) -> None: ...

    async def wait(self) -> int | None:
        return 0


class Launcher:
    """Its fork server ends while it starts a worker, which may live."""

    def __init__(self) -> None:
        self.given: int | None = None
        """The standard input of that worker."""
        self.ends_with_its_input: list[bool] = []

    async def launch(self, _number: int, stdin: int, _stdout: int, _descriptors: Sequence[int]) -> Ended:
        if self.given is None:
            self.given = os.dup(stdin)
            os.set_blocking(self.given, False)
            raise ForkServerEnded("the fork server has ended")
        try:
            self.ends_with_its_input.append(os.read(self.given, 1) == b"")
        except BlockingIOError:
            self.ends_with_its_input.append(False)
        return Ended()


async def test_a_worker_that_a_dying_fork_server_may_have_started_ends_before_the_next_is_started() -> None:
    launcher: Any = Launcher()
    worker = Worker(PLAN, launcher, shared={}, inherited=(), connect=None)
    assert await asyncio.wait_for(worker._run_once(), 30) == "exit code 0"
    assert launcher.ends_with_its_input == [True]
    os.close(launcher.given)
