"""The threads in which views are filtered, and the line in front of them.

There are few threads, and any user may bring them work that takes long. So work is done in turns: each ends
after a time, between two records, and what is left is asked for again, behind the others
(`core/views/fair_line.py`). A thread cannot be interrupted within a record. What a record may cost is bounded
(`core/views/conditions/limits.py`), but by settings: so a broker that is stopped waits for its threads only
for a while, and then leaves them behind.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from forebay.broker.views.large_blocks import give_back_large_blocks
from forebay.broker.yielding.core_shortage import CoreShortage, RestDebts, RestRule
from forebay.broker.yielding.pace import Pace, Stopped
from forebay.broker.yielding.user_rests import UserRests
from forebay.clock import Clock
from forebay.core.views.fair_line import FairLine, Next
from forebay.core.views.turn import Turn, UnpackLater
from forebay.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

T = TypeVar("T")

OTHER_BROKERS = ""
"""As whose turns they read views."""
_RESTS = RestRule(times=120, rest_s_max=8.0)
_TRUSTED_RESTS = RestRule(times=10, rest_s_max=1.0)
STOP_WAIT_S = 2.0
"""How long a broker that is stopped waits for the threads."""


class _MuchMemory:
    """For batches that unpack to tens of megabytes: they are filtered one at a time, or the threads together
    would take hundreds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._was_taken = False

    @property
    def is_taken(self) -> bool:
        return self._lock.locked()

    def take(self) -> bool:
        """Take it if it is free; False if it is not."""
        if not self._lock.acquire(blocking=False):
            return False
        if not self._was_taken:
            self._was_taken = True
            give_back_large_blocks()
        return True

    def give_back(self) -> None:
        self._lock.release()


class _PacedTurn:
    """Rests between stretches of work, and ends when its time is up."""

    def __init__(self, clock: Clock, seconds: float, much: _MuchMemory) -> None:
        """`much` is held by the turn that unpacks much, until it ends."""
        self._pace = Pace(clock, yields=True)
        self._much = much
        self._has_much = False
        self._now = clock.monotonic
        self._cpu = clock.thread_cpu
        self._began_s, self._began_cpu_s = self._now(), self._cpu()
        self._ends_s = self._began_s + seconds
        self.ended = threading.Event()
        """Set by its thread."""

    @property
    def used_s(self) -> float:
        return self._now() - self._began_s

    @property
    def cpu_s(self) -> float:
        """In its thread: the CPU that it has used."""
        return self._cpu() - self._began_cpu_s

    def goes_on(self) -> bool:
        """Raises Stopped."""
        self._pace.spend()
        return self._now() < self._ends_s

    def begin(self) -> None:
        now_s = self._now()
        self._ends_s = max(self._ends_s, 2 * now_s - self._began_s)

    def may_unpack_much(self) -> bool:
        self._has_much = self._has_much or self._much.take()
        return self._has_much

    def end(self) -> None:
        if self._has_much:
            self._much.give_back()
        self.ended.set()

    def stop(self) -> None:
        self._pace.stopped = True


class _Work(NamedTuple):
    do: Callable[[Turn], Any]
    done: asyncio.Future[Any]
    is_wanted: Callable[[], bool]


class FilterThreads:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        shortage: CoreShortage,
        pool: Executor,
        threads: int,
        turn_ms: Callable[[], int],
        is_trusted: Callable[[str], bool],
    ) -> None:
        """`threads`: how many the pool has. `is_trusted` tells users who may do everything."""
        self._loop = loop
        self._clock = clock
        self._pool = pool
        self._idle = threads
        self._turn_ms = turn_ms
        self._is_trusted = is_trusted
        self._line: FairLine[_Work] = FairLine()
        self._awaited: set[asyncio.Future[Any]] = set()
        """The futures that threads are about to complete."""
        self._turns: set[_PacedTurn] = set()
        """Under way. Threads add and remove."""
        self._much = _MuchMemory()
        self._postponed: list[Next[_Work]] = []
        """Turns that wait until another turn has unpacked its batch. They keep no thread meanwhile."""
        self._rests = UserRests(loop, RestDebts(loop, shortage, self._rest_rule), self._add)
        self._closed = False
        self.is_late = False
        """True if a thread was left behind when the broker was stopped."""

    async def run(
        self, user: str, view_id: bytes, do: Callable[[Turn], T], is_wanted: Callable[[], bool]
    ) -> T:
        """Have a thread do a turn's work. Raises what it raises, and KafkaError when the broker stops.

        `is_wanted`: asked when its turn comes, which may be late.
        """
        if self._closed:
            raise _stopped()
        done: asyncio.Future[T] = self._loop.create_future()
        self._line.add(user, view_id, _Work(do, done, is_wanted))
        self._start()
        return await done

    def _rest_rule(self, user: str) -> RestRule:
        return _TRUSTED_RESTS if user == OTHER_BROKERS or self._is_trusted(user) else _RESTS

    def stop(self) -> None:
        """Let nobody wait any longer, and have the threads end their turns."""
        self._closed = True
        while (waiting := self._line.take()) is not None:
            _answer(waiting.work.done, _stopped())
        self._postponed += self._rests.stop()
        while self._postponed:
            _answer(self._postponed.pop().work.done, _stopped())
        for done in self._awaited:
            _answer(done, _stopped())
        for turn in tuple(self._turns):
            turn.stop()

    def close(self) -> None:
        """Blocks until the threads have ended, or are given up."""
        self.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        give_up_s = self._clock.monotonic() + STOP_WAIT_S
        for turn in tuple(self._turns):
            if not turn.ended.wait(max(give_up_s - self._clock.monotonic(), 0)):
                self.is_late = True
        if self.is_late:
            log.warning("a view takes long for one message, and its thread is left behind")

    def _start(self) -> None:
        while self._idle and not self._closed and (taken := self._line.take()) is not None:
            work = taken.work
            if work.done.done() or not work.is_wanted():
                _answer(work.done, KafkaError(ErrorCode.NETWORK_EXCEPTION, "nobody waits for it any more"))
                continue
            if self._rests.keeps(taken.user, taken):
                continue
            self._idle -= 1
            self._awaited.add(work.done)
            turn_s = self._turn_ms() / 1000
            self._line.charge(taken.user, taken.view, turn_s)
            doing = self._loop.run_in_executor(self._pool, self._do, work.do, turn_s)
            doing.add_done_callback(partial(self._ended, taken, turn_s))

    def _ended(
        self, taken: Next[_Work], expected_s: float, doing: asyncio.Future[tuple[Any, float, float]]
    ) -> None:
        self._idle += 1
        self._awaited.discard(taken.work.done)
        if doing.cancelled():
            _answer(taken.work.done, _stopped())
            return
        error = doing.exception()
        if error is None:
            result, used_s, cpu_s = doing.result()
            self._rests.worked(taken.user, cpu_s)
            self._line.correct(taken.user, taken.view, expected_s=expected_s, used_s=used_s)
            if not taken.work.done.done():
                taken.work.done.set_result(result)
        elif isinstance(error, UnpackLater) and not self._closed:
            self._line.correct(taken.user, taken.view, expected_s=expected_s, used_s=0.0)
            self._postponed.append(taken)
        else:
            _answer(taken.work.done, _stopped() if isinstance(error, Stopped | UnpackLater) else error)
        postponed: list[Next[_Work]] = []
        if not self._much.is_taken:
            postponed, self._postponed = self._postponed, postponed
        self._add(postponed)

    def _add(self, waiting: Sequence[Next[_Work]]) -> None:
        for user, view, work in waiting:
            self._line.add(user, view, work)
        self._start()

    def _do(self, do: Callable[[Turn], T], turn_s: float) -> tuple[T, float, float]:
        """In a thread."""
        turn = _PacedTurn(self._clock, turn_s, self._much)
        self._turns.add(turn)
        try:
            if self._closed:
                raise Stopped
            return do(turn), turn.used_s, turn.cpu_s
        finally:
            turn.end()
            self._turns.discard(turn)


def _answer(done: asyncio.Future[Any], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


def _stopped() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is being stopped")
