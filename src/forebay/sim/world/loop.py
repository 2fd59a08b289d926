"""The event loop of one simulated process, and the threads beside it.

Every process has its own loop, so that it can be stopped (SIGSTOP: its callbacks and timers are held back,
then run late) or killed, and the others notice no more than in reality. The loop behaves like asyncio's:
callbacks in the order they were given, timers when they are due, one turn after the other. Each turn takes a
little virtual time that comes from the seed; this interleaves the processes, and lets time pass for a busy
loop.

Work that takes long is charged to the loop or thread that does it (`spend`). A loop then blocks: its next
turn begins when the work would be done, and `on_stall` is called with the time.

Work for a pool of threads takes effect some time after it was submitted and is reported some time after that:
data written in between is not covered by a sync that has already begun.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextvars import Context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

from forebay.sim.world.disks.disk_handle import Died
from forebay.sim.world.virtual_time import World

T = TypeVar("T")

_TURN_S_MIN = 5e-6
_TURN_S_MAX = 60e-6
_THREAD_S = (20e-6, 800e-6)
_SLOW_CHANCE = 0.01
_SLOW_FACTOR = 40
_CLOSES_MAX = 100

_task_numbers = count()


class SimTask(asyncio.Task[Any]):
    """A task that hashes by its number: asyncio's sets of tasks always have the same order."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.number = next(_task_numbers)
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self.number


class ProcessLoop(asyncio.AbstractEventLoop):
    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.world = world
        self.alive = True
        self.paused = False
        self.thread_delay_s: float | None = None
        """While a thread's work is carried out: how long after it the loop gets the result."""
        self.on_failure: Callable[[str, BaseException | None], None] = lambda _message, _error: None
        self.on_stall: Callable[[float], None] = lambda _seconds: None
        self.turns_count = 0
        self._in_turn = False
        self._busy_s = 0.0
        self._free_at = 0.0
        self._random = world.chance(f"loop/{name}").random
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_number = 0
        self._wake_at: float | None = None
        self._wakes: set[float] = set()
        """The times of scheduled turns, whether or not they are still needed."""
        self._turn_due = False
        """A turn for what is ready is scheduled or under way: no other need be scheduled."""
        self._held: list[Callable[[], None]] = []

    # -- turns -----------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True if the loop itself is working now, and not a thread."""
        return self._in_turn and self.thread_delay_s is None

    def spend(self, seconds: float) -> None:
        """Charge the running work with this time. Calls from outside the loop cost nothing."""
        if self.thread_delay_s is not None:
            self.thread_delay_s += seconds
        elif self._in_turn:
            self._busy_s += seconds

    def _wake(self, when: float) -> None:
        if when < self._free_at:
            when = self._free_at
        if self._wake_at is None or when < self._wake_at:
            self._wake_at = when
            if when not in self._wakes:
                self._wakes.add(when)
                self.world.at(when, self._turn, when)

    def _wake_soon(self) -> None:
        self._turn_due = True
        self._wake(self.world.now + _TURN_S_MIN + (_TURN_S_MAX - _TURN_S_MIN) * self._random())

    def _turn(self, when: float) -> None:
        self._wakes.discard(when)
        if when != self._wake_at or not self.alive:
            return
        self._wake_at = None
        if self.paused:
            self._held.append(self._wake_soon)
            return
        self._collect_due()
        self.turns_count += 1
        self._turn_due = self._in_turn = True
        events._set_running_loop(self)
        ready = self._ready
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                if not self.alive:
                    break
        finally:
            events._set_running_loop(None)
            self._in_turn = False
        if self._busy_s:
            self._stand_still()
        self._plan_next()

    def _stand_still(self) -> None:
        seconds, self._busy_s = self._busy_s, 0.0
        self._free_at = self.world.now + seconds
        self.on_stall(seconds)

    def _collect_due(self) -> None:
        timers, now = self._timers, self.world.now
        while timers and timers[0][0] <= now:
            self._ready.append(heappop(timers)[2])

    def _plan_next(self) -> None:
        self._turn_due = False
        if self._ready:
            self._wake_soon()
            return
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        if self._timers:
            self._wake(self._timers[0][0])

    # -- stopping and ending -----------------------------------------------------------------------------

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        for action in held:
            action()

    def when_running(self, action: Callable[[], None]) -> None:
        """Carry something out now, or when the process resumes."""
        if self.paused:
            self._held.append(action)
        elif self.alive:
            action()

    def kill(self) -> None:
        """End the process at once. Its coroutines are taken apart here: nothing they do counts any more."""
        self.alive = False
        pending = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
        with warnings.catch_warnings(), self.world.ignoring():
            # Coroutines that were never awaited are expected here.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in sorted(pending, key=lambda task: task.number):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _take_apart(task.get_coro())
                _forget_callbacks(task)
        self._ready.clear()
        self._timers.clear()
        self._held.clear()

    # -- asyncio's interface -----------------------------------------------------------------------------

    def time(self) -> float:
        return self.world.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self.alive:
            self._ready.append(handle)
            if not self._turn_due:
                self._wake_soon()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self.thread_delay_s is not None:
            return self.call_later(self.thread_delay_s, callback, *args, context=context)
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self.alive:
            self._timer_number += 1
            heappush(self._timers, (when, self._timer_number, handle))
            if not self._turn_due:  # else the turn plans the next when it ends
                self._wake(max(when, self.world.now))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio; a cancelled timer is skipped when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        return SimTask(coro, loop=self, name=name, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        assert executor is not None, "all threads come from ports.executor"
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.alive:
            self.on_failure(str(context.get("message")), context.get("exception"))

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.alive

    def is_closed(self) -> bool:
        return not self.alive


def _forget_callbacks(task: SimTask) -> None:
    """They may hold coroutines that never began, which would be noticed whenever the task is collected."""
    for callback, _ in task._callbacks or ():
        task.remove_done_callback(callback)


def _take_apart(coroutine: Any) -> None:
    """Close a coroutine whose process is dead. It may try to await while it is closed: again, until it is."""
    for _ in range(_CLOSES_MAX):
        try:
            coroutine.close()
            return
        except BaseException as error:
            if not isinstance(error, RuntimeError):
                return


class SimThreads(Executor):
    """A pool of threads of a simulated process."""

    def __init__(
        self, loop: ProcessLoop, workers: int, name: str, slow_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`slow_s`: the minimum time of a piece of work, now."""
        self._loop = loop
        self._workers = workers
        self._slow_s = slow_s
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running: dict[int, tuple[Future[Any], Callable[[], Any]]] = {}
        self._numbers = count()
        self._chance = loop.world.chance(f"threads/{loop.name}/{name}")
        self._closed = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        self._waiting.append((future, lambda: fn(*args, **options)))
        self._start()
        return future

    def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **_options: Any) -> Iterator[T]:
        """The caller waits for all of it, and so does the whole loop: so it is done at once."""
        return iter([fn(*args) for args in zip(*iterables, strict=False)])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """The loop waits for its threads: their work is done now, unless their process is dead."""
        self._closed = True
        jobs = [*self._running.values(), *self._waiting]
        self._running.clear()
        self._waiting.clear()
        for future, work in jobs:
            if self._loop.alive:
                self._carry_out(future, work, 0.0)
            else:
                future.set_exception(Died())  # a coroutine that is being closed must not wait for it

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._workers:
            number = next(self._numbers)
            self._running[number] = self._waiting.popleft()
            delay_s = max(self._delay_s(), self._slow_s())
            self._loop.world.after(delay_s, self._loop.when_running, partial(self._run, number))

    def _run(self, number: int) -> None:
        job = self._running.pop(number, None)
        if job is not None and self._loop.alive:
            self._carry_out(*job, self._delay_s())
            self._start()

    def _carry_out(self, future: Future[Any], work: Callable[[], Any], report_s: float) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self._loop.thread_delay_s = report_s
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            self._loop.thread_delay_s = None

    def _delay_s(self) -> float:
        delay_s = self._chance.uniform(*_THREAD_S)
        return delay_s * _SLOW_FACTOR if self._chance.random() < _SLOW_CHANCE else delay_s
