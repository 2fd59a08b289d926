"""Workers of a share group that are killed and come back, each a process with a record of its own.

A worker writes the number of a message down before it accepts it, and again when the broker has confirmed or
denied that. Of an attempt without an answer nobody can know what became of it. Run as a script, this file is
a worker; it ends in peace when it is asked to (SIGTERM).
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import AcknowledgeType

from support.clients.share_worker import Worker
from support.import_path import import_path

MESSAGES_PER_POLL = 100
WORK_SECONDS_MAX = 0.1
STOP_SECONDS_MAX = 60.0
LOCK_SECONDS = 30.0
_TRIED, _ACCEPTED, _DENIED = b"?", b"+", b"-"


class Outcome(NamedTuple):
    """How often it was so, by the number of the message."""

    accepted: Counter[int]
    unknown: Counter[int]


class Crew:
    """A number of workers, some of which are dead for a moment."""

    def __init__(self, servers: str, group: str, topic: str, directory: Path, *, workers: int) -> None:
        self._about = (servers, group, topic)
        self._directory = directory
        self._lives = itertools.count(1)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._count = workers

    def __enter__(self) -> Self:
        self._workers = [self._start() for _ in range(self._count)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def stop(self) -> None:
        """All finish what they are doing, so that their records are complete."""
        self.check()
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            assert worker.wait(STOP_SECONDS_MAX) == 0, self._errors()

    @property
    def lives(self) -> int:
        return len(list(self._directory.glob("*.record")))

    def replace_one(self, chance: random.Random) -> None:
        """One dies, whatever it is doing, and after a while there is another."""
        number = chance.randrange(len(self._workers))
        self.check()
        self._workers[number].kill()
        self._workers[number].wait()
        time.sleep(chance.uniform(0.0, 0.5))
        self._workers[number] = self._start()

    def check(self) -> None:
        """None has ended by itself."""
        for worker in self._workers:
            assert worker.poll() is None, self._errors()

    def outcome(self) -> Outcome:
        lines: Counter[bytes] = Counter()
        for path in self._directory.glob("*.record"):
            # A worker may have died while it wrote, so its last line counts only if it is whole.
            lines.update(path.read_bytes().split(b"\n")[:-1])
        tried, accepted, denied = (_numbers(lines, kind) for kind in (_TRIED, _ACCEPTED, _DENIED))
        return Outcome(accepted, tried - accepted - denied)

    def _errors(self) -> str:
        return "\n".join(each.read_text()[-2_000:] for each in self._directory.glob("*.errors"))

    def _start(self) -> subprocess.Popen[bytes]:
        life = self._directory / f"{next(self._lives)}.record"
        life.touch()
        with life.with_suffix(".errors").open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, __file__, *self._about, str(life)],
                stderr=errors,
                env={**os.environ, "PYTHONPATH": import_path()},
            )


def _numbers(lines: Counter[bytes], kind: bytes) -> Counter[int]:
    return Counter({int(line[1:]): times for line, times in lines.items() if line.startswith(kind)})


def _work(servers: str, group: str, topic: str, path: str) -> None:
    record = os.open(path, os.O_WRONLY | os.O_APPEND)
    asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())

    def write(kind: bytes, values: Iterable[bytes]) -> None:
        os.write(record, b"".join(b"%s %s\n" % (kind, value) for value in values))

    def judge(message: Any) -> AcknowledgeType:
        write(_TRIED, [message.value()])
        return AcknowledgeType.ACCEPT

    earlier = now = time.monotonic()
    with Worker(servers, group, topic, max_poll_records=MESSAGES_PER_POLL) as worker:
        while not asked_to_end.is_set():
            earlier, now = now, time.monotonic()  # what this poll returns may have come during the last one
            worker.work(judge)
            # Brokers confirm anything about a message that the group is past: late, that says nothing.
            if time.monotonic() - earlier < LOCK_SECONDS / 2:
                write(_ACCEPTED, worker.accepted.elements())
            write(_DENIED, worker.denied.elements())
            worker.accepted.clear()
            worker.denied.clear()
            time.sleep(random.uniform(0.0, WORK_SECONDS_MAX))


if __name__ == "__main__":
    _work(*sys.argv[1:])
