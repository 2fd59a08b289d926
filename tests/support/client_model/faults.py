"""Which calls raise, and which waits are cancelled: by number, so that all can be tried one by one."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException

from forebay import client
from support.clients.hooked_kafka import Around, Call

T = TypeVar("T")


CLIENT_FOLDER = str(Path(client.__file__).parent)
HOLDS_A_LOCK = frozenset({"note_delivery", "_forget_failures", "inside", "inside_if_free"})
FINALIZER = "__del__"


class Struck(BaseException):
    """As Ctrl-C: nothing that a library could handle."""


def _kafka(code: int, **properties: Any) -> Callable[[], BaseException]:
    return lambda: KafkaException(KafkaError(code, **properties))


class Fault(NamedTuple):
    name: str
    error: Callable[[], BaseException]
    after: bool
    """The call was made, and its result is lost."""


FAULTS = [
    *(Fault(f"struck {when}", Struck, when == "after") for when in ("before", "after")),
    *(
        Fault(f"passing {when}", _kafka(KafkaError._TRANSPORT, retriable=True), when == "after")
        for when in ("before", "after")
    ),
    Fault("fatal before", _kafka(KafkaError._FATAL, fatal=True), after=False),
]
ABORTABLE = Fault(
    "abortable before", _kafka(KafkaError.INVALID_TXN_STATE, txn_requires_abort=True), after=False
)
IN_TRANSACTIONS = frozenset(
    {"Producer.produce", "Producer.send_offsets_to_transaction", "Producer.commit_transaction"}
)


def at_random(chance: random.Random, count: int, gap_max: int) -> dict[int, Fault]:
    """A plan of so many faults, each of them soon after the one before."""
    return {number: chance.choice(FAULTS) for number in numbers_at_random(chance, count, gap_max)}


def numbers_at_random(chance: random.Random, count: int, gap_max: int) -> list[int]:
    return list(itertools.accumulate(chance.randint(1, gap_max) for _ in range(count)))


class Faults:
    """Numbers the calls, and lets those of the plan fail."""

    def __init__(self, plan: Mapping[int, Fault], around: Around, uncounted: Iterable[str] = ()) -> None:
        """`around`: what is done with calls that are made. `uncounted`: those that get no number."""
        self._plan = plan
        self._around = around
        self._uncounted = frozenset(uncounted)
        self.calls: list[str] = []
        self.struck: list[str] = []

    def around(self, call: Call) -> Any:
        if call.name in self._uncounted:
            return self._around(call)
        fault = self._plan.get(len(self.calls))
        self.calls.append(call.name)
        if fault is None:
            return self._around(call)
        self.struck.append(f"{call.name} {fault.name}")
        if fault.after:
            self._around(call)
        raise fault.error()


Line = tuple[str, int]
"""A file of forebay.client, and the number of a line in it."""


class CtrlC:
    """Interrupts forebay.client between two of its lines, as a signal does, in the thread that enters this.

    Not where a lock is held: tracing interrupts even the line that lets go of it, which a signal cannot. Nor
    in finalizers: Python ignores what is raised there.
    """

    def __init__(self, at: int | None = None) -> None:
        """`at`: before which of the lines that are run, counted from 0; never when it is None."""
        self._at = at
        self.lines: list[Line] = []

    def __enter__(self) -> Self:
        sys.settrace(self._enter_function)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _enter_function(self, frame: types.FrameType, _event: str, _: object) -> Any:
        code = frame.f_code
        is_ours = code.co_filename.startswith(CLIENT_FOLDER) and code.co_name not in HOLDS_A_LOCK
        return self._line if is_ours and not _is_finalizing(frame) else None

    def _line(self, frame: types.FrameType, event: str, _: object) -> Any:
        if event == "line":
            self.lines.append((frame.f_code.co_filename, frame.f_lineno))
            if len(self.lines) - 1 == self._at:
                raise Struck
        return self._line


def _is_finalizing(frame: types.FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename.startswith(CLIENT_FOLDER):
        if frame.f_code.co_name == FINALIZER:
            return True
        frame = frame.f_back
    return False


class Cancels:
    """Runs a task that is cancelled at the waits of the plan."""

    def __init__(self, plan: Iterable[int]) -> None:
        self._plan = frozenset(plan)
        self.waits = 0

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.create_task(self._counting(work))

    async def _counting(self, work: Coroutine[Any, Any, T]) -> T:
        return await _watched(work, self._suspended)

    def _suspended(self) -> None:
        number, self.waits = self.waits, self.waits + 1
        if number in self._plan:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # takes effect at this very wait


@types.coroutine
def _watched(work: Coroutine[Any, Any, T], suspended: Callable[[], None]) -> Generator[Any, Any, T]:
    error: BaseException | None = None
    while True:
        try:
            waits_for = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        error = None
        suspended()
        try:
            yield waits_for
        except BaseException as thrown:
            error = thrown
