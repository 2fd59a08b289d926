"""The queue chapter: workers of different speed, one that dies holding jobs, a job that always fails."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import demo_worker
from demo_stage import Broker, Facts, Failed, console, step, table, until
from demo_worker import DEAD_JOBS, DELIVERIES_MAX, GROUP, JOBS, POISON, QUIET, queue_of
from forebay.client import Admin, Message
from forebay.client import Consumer as ForebayConsumer

JOB_COUNT, JOB_COUNT_SHORT = 500, 200
HELD_MAX = 10
PACES_MS = {"ada": 5, "ben": 20, "cleo": 80}
"""How long each worker takes for a job."""


class Ledger:
    """What all workers have said."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.deliveries: Counter[int] = Counter()
        self.accepted: Counter[int] = Counter()
        self.released: Counter[int] = Counter()
        self.held: set[int] = set()
        self.again_at: dict[int, float] = {}
        """When a job came to its second worker."""

    def note(self, verb: str, job: int, delivery: int) -> None:
        with self.lock:
            if verb in ("got", "held"):
                self.deliveries[job] += 1
            if verb == "held":
                self.held.add(job)
            if verb == "accepted":
                self.accepted[job] += 1
            if verb == "released":
                self.released[job] += 1
            if delivery == 2:
                self.again_at.setdefault(job, time.perf_counter())


class Worker:
    """A process with a worker in it, and a thread that listens to it."""

    def __init__(
        self, address: str, name: str, ledger: Ledger, *, jobs_at_once: int = 1, pace_ms: int = 0
    ) -> None:
        self.name = name
        self.pace_ms = pace_ms
        self.accepted = 0
        self.is_stuck = False
        self._ledger = ledger
        command = [sys.executable, demo_worker.__file__, address, str(jobs_at_once), str(pace_ms / 1000)]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            verb, *numbers = line.split()
            job, delivery = (*map(int, numbers), 0, 0)[:2]
            self.is_stuck |= verb == "stuck"
            self.accepted += verb == "accepted"
            if numbers:
                self._ledger.note(verb, job, delivery)

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    def kill(self) -> None:
        """As a machine that breaks does it: nothing is said to the broker."""
        if self.is_alive:
            os.kill(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._listener.join()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def play(short: bool) -> Facts:
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as directory:
        broker = Broker(Path(directory) / "data")
        try:
            started = broker.start()
            step(f"started a broker in {started:.2f} s on {broker.address}")
            return _play(broker.address, JOB_COUNT_SHORT if short else JOB_COUNT)
        finally:
            broker.end(signal.SIGKILL)


def _play(address: str, count: int) -> Facts:
    _send_jobs(address, count)
    ledger = Ledger()
    with contextlib.ExitStack() as workers:
        dora = workers.enter_context(Worker(address, "dora", ledger, jobs_at_once=HELD_MAX))
        until(lambda: dora.is_stuck or not dora.is_alive, "a worker takes jobs")
        if not dora.is_stuck:
            raise Failed("a worker ended before it had jobs")
        step(f"dora takes {len(ledger.held)} jobs as a member of share group {GROUP}, and gets stuck")
        crew = [
            workers.enter_context(Worker(address, name, ledger, pace_ms=pace))
            for name, pace in PACES_MS.items()
        ]
        seconds = _finish_jobs(dora, crew, ledger, count)
        letter = _dead_letter(address)
    _show(crew, dora, ledger)
    _check(ledger, count, letter)
    return _facts(crew, ledger, count, seconds)


def _send_jobs(address: str, count: int) -> None:
    """One in the middle is the job that no worker can do; its neighbours must not suffer from it."""
    Admin(address, settings=QUIET).create_topic(JOBS, partitions=1)
    with queue_of(address) as queue:
        for number in range(count):
            value = POISON if number == count // 2 else b"job %d" % number
            queue.send(value, headers={"n": str(number)})
    step(f"sent {count} jobs into a topic with one partition; job {count // 2} makes every worker fail")


def _finish_jobs(dora: Worker, crew: list[Worker], ledger: Ledger, count: int) -> float:
    """Seconds from the death of a worker until the first of its jobs is with another one."""
    until(lambda: all(worker.accepted for worker in crew), "all workers get jobs")
    paces = ", ".join(f"{worker.name} takes {worker.pace_ms} ms for a job" for worker in crew)
    step(f"more workers come: {paces}")
    killed = time.perf_counter()
    dora.kill()
    until(lambda: ledger.held <= ledger.again_at.keys(), "the jobs of the dead worker come again")
    seconds = min(ledger.again_at[job] for job in ledger.held) - killed
    step(f"killed dora (kill -9): the first of her jobs is with another worker after {seconds:.2f} s")
    until(lambda: len(ledger.accepted) >= count - 1, "all jobs are done")
    return seconds


def _dead_letter(address: str) -> Message:
    """The only one. It is read as any message is."""
    until(lambda: DEAD_JOBS in Admin(address, settings=QUIET).topics(), "there are dead letters")
    letters: list[Message] = []
    with ForebayConsumer(address, DEAD_JOBS, group="undertaker", settings=QUIET) as consumer:

        def look() -> bool:
            letters.extend(consumer.take(1, 0.1))
            return bool(letters)

        until(look, "the job that nobody can do becomes a dead letter")
    ends = Admin(address, settings=QUIET).end_offsets(DEAD_JOBS)
    if sum(ends.values()) != 1:
        raise Failed(f"there are {sum(ends.values())} dead letters, not one")
    return letters[0]


def _show(crew: list[Worker], dora: Worker, ledger: Ledger) -> None:
    shown = table("worker", "ms for a job", "jobs accepted", words=1)
    for worker in crew:
        shown.add_row(worker.name, str(worker.pace_ms), f"{worker.accepted:,}")
    shown.add_row(f"{dora.name}, killed", f"held {len(ledger.held)}", "0")
    console.print(shown)


def _check(ledger: Ledger, count: int, letter: Message) -> None:
    poison = count // 2
    wanted = set(range(count)) - {poison}
    if ledger.accepted.keys() != wanted or ledger.accepted.total() != len(wanted):
        raise Failed(
            f"{len(wanted - ledger.accepted.keys())} jobs are not done, "
            f"{ledger.accepted.total() - len(ledger.accepted)} were done twice"
        )
    again = {job: times for job, times in ledger.deliveries.items() if times > 1}
    expected = {**dict.fromkeys(ledger.held, 2), poison: DELIVERIES_MAX}
    if again != expected:
        raise Failed(f"delivered more than once: {again}; it should be {expected}")
    step(
        f"{len(wanted)} jobs are accepted once each: none lost, none doubled; "
        f"{ledger.deliveries.total()} deliveries, "
        f"dora's {len(ledger.held)} and {DELIVERIES_MAX} of job {poison} among them"
    )
    about = {name: value.decode() for name, value in letter.headers if value is not None}
    if int(about["n"]) != poison or letter.value != POISON:
        raise Failed(f"the dead letter is job {about['n']}, not {poison}")
    step(
        f"job {poison} failed {ledger.released[poison]} times and is a dead letter in {DEAD_JOBS}: "
        f"{about['__dlq.errors.message']} ({about['__dlq.errors.delivery.count']} deliveries)"
    )


def _facts(crew: list[Worker], ledger: Ledger, count: int, seconds: float) -> Facts:
    return [
        ("three workers, one partition", ", ".join(f"{each.name} {each.accepted:,}" for each in crew)),
        ("kill -9 of a worker", f"its {len(ledger.held)} jobs came again, the first after {seconds:.2f} s"),
        ("a job that always fails", f"{DELIVERIES_MAX} deliveries, then one dead letter"),
        ("all together", f"{count - 1:,} jobs accepted: none lost, none doubled"),
    ]
