"""Which logs are synced when: waiters are not held up by logs that nobody waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forebay.broker.produce.flush import SYNC_THREADS, GroupCommit
from forebay.broker.telemetry.metrics import Metrics
from forebay.errors import StorageError


class Thread:
    """The thread of syncs and the loop, one step at a time."""

    def __init__(self) -> None:
        self.submitted: list[Callable[[], None]] = []
        self.called: list[Callable[[], None]] = []

    def submit(self, work: Callable[..., None], *arguments: Any) -> None:
        self.submitted.append(lambda: work(*arguments))

    def call_soon_threadsafe(self, work: Callable[..., None], *arguments: Any) -> None:
        self.called.append(lambda: work(*arguments))

    def run(self) -> None:
        """One turn of the thread, and then of the loop."""
        (work,), self.submitted = self.submitted, []
        work()
        (told,), self.called = self.called, []
        told()


class Log:
    def __init__(self, name: str, synced: list[str], meanwhile: Callable[[], None] | None = None) -> None:
        self.name, self._synced, self._meanwhile = name, synced, meanwhile

    def datasync(self) -> None:
        self._synced.append(self.name)
        if self._meanwhile is not None:
            self._meanwhile()
        if self.name == "broken":
            raise StorageError("it is broken")


@pytest.fixture
def thread() -> Thread:
    return Thread()


@pytest.fixture
def commit(thread: Thread) -> GroupCommit:
    stand_in: Any = thread
    return GroupCommit(stand_in, Metrics(), stand_in)


def test_waiters_come_after_one_log_that_nobody_waits_for(thread: Thread, commit: GroupCommit) -> None:
    synced: list[str] = []
    told: list[str] = []
    awaited = Log("awaited", synced)

    def somebody_waits() -> None:
        commit.wait(awaited, lambda _error: told.append("first"))
        commit.wait(awaited, lambda _error: told.append("second"))

    logs = [Log(str(number), synced, None if number else somebody_waits) for number in range(4)]
    commit.sync_soon(logs)
    thread.run()
    assert (synced, told) == (["0"], [])
    thread.run()
    assert (synced, told) == (["0", "awaited"], ["first", "second"])
    thread.run()
    assert synced == ["0", "awaited", "1", "2", "3"], "the rest, as nobody waits any more"
    assert not thread.submitted


def test_logs_that_nobody_waits_for_have_their_turn(thread: Thread, commit: GroupCommit) -> None:
    """However many wait, all the time."""
    synced: list[str] = []
    busy = Log("busy", synced, lambda: commit.wait(busy, lambda _error: None))
    commit.wait(busy, lambda _error: None)
    commit.sync_soon([Log(str(number), synced) for number in range(3)])
    for _ in range(7):
        thread.run()
    assert synced == ["busy", "0", "busy", "1", "busy", "2", "busy"]


def test_a_log_is_not_synced_for_nobody_after_it_was_for_somebody(
    thread: Thread, commit: GroupCommit
) -> None:
    synced: list[str] = []
    told: list[StorageError | None] = []
    first, second, broken = Log("first", synced), Log("second", synced), Log("broken", synced)
    commit.sync_soon([first])
    commit.sync_soon([second, broken])
    commit.wait(second, told.append)
    commit.wait(broken, told.append)
    failed: list[object] = []
    commit.failed.listen(failed.append)
    while thread.submitted:
        thread.run()
    assert synced == ["first", "second", "broken"]
    assert [error and error.message for error in told] == [None, "it is broken"]
    assert failed == [broken]


def test_many_logs_are_shared_out_among_threads(thread: Thread, commit: GroupCommit) -> None:
    synced: list[str] = []
    told: list[StorageError | None] = []
    first = Log("first", synced)
    commit.wait(first, told.append)
    names = [str(number) for number in range(1000)]
    for name in names:
        commit.wait(Log(name, synced), told.append)
    thread.run()
    assert len(thread.submitted) == SYNC_THREADS
    shares, thread.submitted = thread.submitted, []
    for work in shares:
        work()
    assert sorted(synced) == sorted(["first", *names]), "each once"
    late = Log("late", synced)
    commit.wait(late, told.append)
    for number, report in enumerate(thread.called, 1):
        report()
        assert bool(thread.submitted) == (number == SYNC_THREADS), "the next begin when all have ended"
    thread.called.clear()
    thread.run()
    assert told == [None] * 1002


def test_a_few_logs_are_left_to_one_thread(thread: Thread, commit: GroupCommit) -> None:
    commit.sync_soon([Log(str(number), []) for number in range(8)])
    assert len(thread.submitted) == 1
