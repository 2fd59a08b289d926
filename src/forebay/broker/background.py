"""The tasks of a broker that no connection waits for, and what becomes of the broker when one fails.

Most failures concern one partition, one peer or one request: the failure is logged and counted, and a task
that should go on is started again after a pause. Only two tasks end the broker when they fail, because it
cannot work without them: keeping its lease and following the cluster's metadata.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from forebay.broker.telemetry.metrics import Metrics
from forebay.errors import ForebayError

log = logging.getLogger(__name__)

_PAUSE_S = 0.5
_PAUSE_S_MAX = 30.0
"""The pause before a task that failed is started again: twice as long each time, up to the maximum."""
_LOOKS_EVERY_S = 1.0

Work = Coroutine[Any, Any, None]


class BrokerEnded(ForebayError):
    """The broker cannot go on; the message says which task failed."""


class Background:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._tasks: asyncio.TaskGroup | None = None

    def open(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    def close(self) -> None:
        """No task is started after this: the task group is about to finish."""
        self._tasks = None

    # -- kinds of tasks --------------------------------------------------------------------------------

    def spawn(self, work: Work, doing: str, *inner: Coroutine[Any, Any, Any]) -> None:
        """Do something once, beside the event loop's other work.

        `inner`: what the work awaits, and was given in another object. It is closed with it, if it could not
        start.
        """
        contained = self._contain(work, doing)
        try:
            if self._tasks is not None:
                task = self._tasks.create_task(contained)
                task.add_done_callback(lambda _: _close(work, *inner))  # it may not have started
                return
        except RuntimeError:
            pass  # the broker was cancelled, and its tasks are on their way out
        _close(contained, work, *inner)  # the broker ends, so it is not started

    def keep(self, begin: Callable[[], Work], doing: str) -> asyncio.Task[None]:
        """Do something for as long as the broker serves; started again when it fails."""
        return self._started(self._restart(begin, doing))

    def need(self, begin: Callable[[], Work], doing: str) -> asyncio.Task[None]:
        """Do something that the broker cannot live without."""
        return self._started(_vital(begin, doing))

    def _started(self, work: Work) -> asyncio.Task[None]:
        assert self._tasks is not None
        try:
            return self._tasks.create_task(work)
        except RuntimeError:  # the broker was cancelled while it started
            work.close()
            raise

    # -- failures --------------------------------------------------------------------------------------

    def failed(self, doing: str, error: Exception, **about: object) -> None:
        """Log and count a failure that the broker can go on after."""
        self._metrics.background_failures += 1
        log.error(
            "a background task failed",
            extra={"doing": doing, **about, "reason": _describe(error)},
            # Only our own mistakes need a traceback.
            exc_info=None if isinstance(error, (ForebayError, OSError)) else error,
        )

    async def _contain(self, work: Work, doing: str) -> None:
        try:
            await work
        except Exception as error:
            self.failed(doing, error)

    async def _restart(self, begin: Callable[[], Work], doing: str) -> None:
        pause_s, loop = _PAUSE_S, asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            try:
                return await begin()
            except Exception as error:
                if loop.time() - began_s > _PAUSE_S_MAX:
                    pause_s = _PAUSE_S  # it has worked for a while
                self.failed(doing, error, again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)


class RunWhenNeeded:
    """Runs a part for as long as the broker serves, from when it is needed on."""

    def __init__(
        self,
        is_needed: Callable[[], bool],
        run: Callable[[], Awaitable[None]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._is_needed = is_needed
        self._run = run
        self._loop = loop
        self._woken = asyncio.Event()

    async def run(self) -> None:
        while not self._is_needed():
            self._woken.clear()
            timer = self._loop.call_later(_LOOKS_EVERY_S, self._woken.set)
            await self._woken.wait()
            timer.cancel()
        await self._run()

    def look(self) -> None:
        """Look now whether the part is needed."""
        self._woken.set()


async def _vital(begin: Callable[[], Work], doing: str) -> None:
    try:
        await begin()
    except Exception as error:
        log.critical("the broker ends", extra={"failed": doing}, exc_info=error)
        raise BrokerEnded(f"the broker cannot go on: {doing} failed: {_describe(error)}") from error


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, ForebayError) else f"{type(error).__name__}: {error}"


def _close(*work: Coroutine[Any, Any, Any]) -> None:
    """Close coroutines; with one that has not started, also those that it was given to await."""
    for each in work:
        has_started = not inspect.iscoroutine(each) or inspect.getcoroutinestate(each) != inspect.CORO_CREATED
        given = {} if has_started else inspect.getcoroutinelocals(each)
        each.close()
        _close(*filter(inspect.iscoroutine, given.values()))
