"""Functions as workers of a queue, in threads and in tasks, on a real broker."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.client import (
    AsyncQueue,
    ClientError,
    Queue,
    QueueEmpty,
    QueueMessage,
    Reject,
    WorkSummary,
    worker,
)
from forebay.errors import ConfigError
from forebay.testing import Broker

WAIT = 50.0
"""For what must come: long, because the machine may be busy."""
IDLE = 1.0
"""For what must not come."""


@pytest.fixture
def servers(forebay_broker: Broker) -> str:
    return forebay_broker.bootstrap_servers


def sent(servers: str, topic: str, count: int) -> None:
    with Queue(servers, topic) as queue:
        for number in range(count):
            queue.send(str(number))


def number_of(message: QueueMessage) -> int:
    return int(message.value or b"-1")


def left(servers: str, topic: str, count: int = 0) -> list[int]:
    """The ones that must be left, and what comes beside them."""
    found = []
    with Queue(servers, topic, group=topic) as queue:
        for _ in range(count):
            with queue.receive(WAIT) as message:
                found.append(number_of(message))
        return found + [number_of(message) for message in queue.messages(IDLE)]


class Ending:
    """Stops the work a little after as many messages have been handled as must come."""

    def __init__(self, count: int) -> None:
        self.stop = threading.Event()
        self._count = count
        self._handled = itertools.count(1)

    def note(self) -> None:
        if next(self._handled) == self._count:
            threading.Timer(IDLE, self.stop.set).start()


def work(queue: Queue, handle: Callable[[QueueMessage], object], count: int, jobs: int = 1) -> WorkSummary:
    ending = Ending(count)

    def noted(message: QueueMessage) -> None:
        try:
            handle(message)
        finally:
            ending.note()

    return queue.work(noted, jobs=jobs, stop=ending.stop)


def test_return_accepts_an_exception_releases_and_reject_rejects(servers: str, forebay_topic: str) -> None:
    sent(servers, forebay_topic, 3)
    deliveries: list[tuple[int, int]] = []

    def handle(message: QueueMessage) -> None:
        number = number_of(message)
        deliveries.append((number, message.delivery_count))
        if number == 0:
            raise Reject("never")
        if number == 1 and message.delivery_count == 1:
            raise ValueError("not yet")

    with Queue(servers, forebay_topic, group=forebay_topic) as queue:
        summary = work(queue, handle, 4)
    assert sorted(deliveries) == [(0, 1), (1, 1), (1, 2), (2, 1)]
    assert str(summary) == "2 accepted, 1 rejected, 1 released"
    assert left(servers, forebay_topic) == []


def test_jobs_work_at_the_same_time_and_a_slow_one_holds_up_none(servers: str, forebay_topic: str) -> None:
    sent(servers, forebay_topic, 20)
    others_done = threading.Event()
    quick: list[int] = []

    def handle(message: QueueMessage) -> None:
        if number_of(message) == 0:
            assert others_done.wait(WAIT)  # only the other job can do them
        else:
            quick.append(number_of(message))
            if len(quick) == 19:
                others_done.set()

    with Queue(servers, forebay_topic, group=forebay_topic) as queue:
        summary = work(queue, handle, 20, jobs=2)
    assert (summary.accepted, summary.handled) == (20, 20)
    assert sorted(quick) == list(range(1, 20))


def test_stop_finishes_what_is_being_handled(servers: str, forebay_topic: str) -> None:
    sent(servers, forebay_topic, 5)
    stop = threading.Event()
    with Queue(servers, forebay_topic, group=forebay_topic, batch_max=5) as queue:
        summary = queue.work(lambda _message: stop.set(), stop=stop)
    assert str(summary) == "1 accepted, 0 rejected, 0 released"
    assert sorted(left(servers, forebay_topic, 4)) == [1, 2, 3, 4]


def test_what_is_handled_too_slowly_counts_as_lost(servers: str, forebay_topic: str) -> None:
    sent(servers, forebay_topic, 1)
    delivered_again = threading.Event()

    def handle(message: QueueMessage) -> None:
        if message.delivery_count > 1:
            delivered_again.set()
        else:
            assert delivered_again.wait(WAIT)
            time.sleep(message.lock_seconds_left)

    with Queue(servers, forebay_topic, group=forebay_topic, lock_seconds=3) as queue:
        summary = work(queue, handle, 2, jobs=2)
    assert (summary.accepted, summary.lost) == (1, 1)


def test_a_failure_of_the_client_is_raised(servers: str) -> None:
    with Queue(servers, "nowhere", group="g") as queue, pytest.raises(ClientError, match="no topic"):
        queue.work(print, jobs=2)


@pytest.mark.parametrize("jobs", [0, 201])
def test_the_number_of_jobs_is_checked(jobs: int) -> None:
    with Queue("127.0.0.1:1", "t", group="g") as queue, pytest.raises(ConfigError, match="jobs="):
        queue.work(print, jobs=jobs)


# -- the decorator -----------------------------------------------------------------------------------------


def test_a_decorated_function_is_still_a_function(servers: str, forebay_topic: str) -> None:
    seen: list[int] = []

    @worker(servers, forebay_topic, group=forebay_topic, jobs=2)
    def handle(message: QueueMessage) -> int:
        """Remembers."""
        seen.append(number_of(message))
        return len(seen)

    assert handle.__doc__ == "Remembers."
    assert handle(QueueMessage(topic="t", partition=0, offset=0, timestamp_ms=0, value=b"7")) == 1
    sent(servers, forebay_topic, 3)
    assert handle.run(idle_s=5.0).accepted == 3
    assert sorted(seen) == [0, 1, 2, 7]


def test_wrong_uses_of_the_decorator() -> None:
    with pytest.raises(ConfigError, match="start="):
        worker("127.0.0.1:1", "t", group="g", start="now")

    async def handle(_message: QueueMessage) -> None: ...

    with pytest.raises(ConfigError, match=r"AsyncQueue\.work"):
        worker("127.0.0.1:1", "t", group="g")(handle)


PROGRAM = """
import os, pathlib, sys, threading, time
from forebay.client import worker

@worker(sys.argv[1], sys.argv[2], group=sys.argv[2], jobs=2, lock_seconds=60)
def handle(message):
    os.write(1, b"begun\\n")  # in one piece, also beside the other job
    while not pathlib.Path(sys.argv[3]).exists():
        time.sleep(0.01)

stop = threading.Event()
threading.Thread(target=lambda: (stop.wait(), print("stopping", flush=True))).start()
print(handle.run(stop=stop), flush=True)
"""


def program(servers: str, topic: str, go: Path) -> subprocess.Popen[str]:
    """A worker that handles messages until `go` exists."""
    command = [sys.executable, "-c", PROGRAM, servers, topic, str(go)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_sigterm_ends_a_worker_after_its_messages(servers: str, forebay_topic: str, tmp_path: Path) -> None:
    sent(servers, forebay_topic, 3)
    go = tmp_path / "go"
    with program(servers, forebay_topic, go) as process:
        assert process.stdout is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["begun\n", "begun\n"]
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopping\n"
        go.touch()
        assert process.stdout.readline() == "2 accepted, 0 rejected, 0 released\n"
    assert process.returncode == 0
    assert left(servers, forebay_topic, 1) == [2]


def test_a_killed_worker_gives_its_message_back_at_once(
    servers: str, forebay_topic: str, tmp_path: Path
) -> None:
    sent(servers, forebay_topic, 1)
    started = program(servers, forebay_topic, tmp_path / "never")
    with started as process, Queue(servers, forebay_topic, group=forebay_topic) as queue:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
        with queue.receive(WAIT) as message:  # sooner than its lock of 60 s ends
            # Three, if the other job of the worker got it before the broker heard that this one is dead, too.
            assert message.delivery_count in (2, 3)


# -- asyncio -----------------------------------------------------------------------------------------------


async def test_async_blocks(servers: str, forebay_topic: str) -> None:
    async with AsyncQueue(servers, forebay_topic, group=forebay_topic) as queue:
        first = await queue.send("0", key="k")
        await queue.send("1")
        with pytest.raises(ZeroDivisionError):
            async with queue.receive(WAIT) as message:
                assert (message.offset, message.key) == (first.offset, b"k")
                raise ZeroDivisionError
        async with queue.receive(WAIT) as message:
            assert (number_of(message), message.delivery_count) == (0, 2)
            message.reject("enough")
        async with queue.receive(WAIT) as message:
            assert number_of(message) == 1
        with pytest.raises(QueueEmpty):
            async with queue.receive(0.2):
                pass


async def test_async_iteration(servers: str, forebay_topic: str) -> None:
    sent(servers, forebay_topic, 3)
    async with AsyncQueue(servers, forebay_topic, group=forebay_topic) as queue:
        async for message in queue:
            if number_of(message) == 1:
                break
    assert sorted(await asyncio.to_thread(left, servers, forebay_topic, 2)) == [1, 2]


async def test_a_loop_that_was_left_gives_its_message_back(servers: str, forebay_topic: str) -> None:
    sent(servers, forebay_topic, 2)
    async with AsyncQueue(servers, forebay_topic, group=forebay_topic) as queue:
        async for message in queue:
            assert number_of(message) == 0
            break
        async with queue.receive(WAIT) as message:
            assert (number_of(message), message.delivery_count) == (0, 2)


async def test_async_work_raises_what_the_client_raised(servers: str) -> None:
    async def handle(_message: QueueMessage) -> None: ...

    async with AsyncQueue(servers, "nowhere", group="g") as queue:
        with pytest.raises(ClientError, match="no topic"):
            await queue.work(handle, jobs=2)


async def test_a_cancelled_receive_loses_no_message(servers: str, forebay_topic: str) -> None:
    async with AsyncQueue(servers, forebay_topic, group=forebay_topic) as queue:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), queue.receive():
                pass
        await queue.send("0")
        async with queue.receive(WAIT) as message:
            assert (number_of(message), message.delivery_count) == (0, 1)


async def test_a_cancelled_block_releases_its_message(servers: str, forebay_topic: str) -> None:
    async with AsyncQueue(servers, forebay_topic, group=forebay_topic) as queue:
        await queue.send("0")
        with pytest.raises(TimeoutError):
            async with queue.receive(WAIT), asyncio.timeout(0.01):
                await asyncio.Event().wait()
        async with queue.receive(WAIT) as message:
            assert message.delivery_count == 2


async def test_async_work(servers: str, forebay_topic: str) -> None:
    sent(servers, forebay_topic, 10)
    both = asyncio.Barrier(2)

    async def handle(message: QueueMessage) -> None:
        if number_of(message) < 2:
            await both.wait()  # two are handled at the same time
        if number_of(message) == 5:
            raise Reject

    async with AsyncQueue(servers, forebay_topic, group=forebay_topic) as queue:
        summary = await queue.work(handle, jobs=2, idle_s=5.0)
    assert str(summary) == "9 accepted, 1 rejected, 0 released"
