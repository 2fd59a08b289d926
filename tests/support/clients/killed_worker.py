"""A program on forebay.client that kills itself at a chosen moment, for proofs of the delivery modes.

The moments are the calls into librdkafka, before, during and after each of them, and the middle of processing
a message: between two of them nothing happens that another process could see. `Workers` is the parent's side;
run as a script, this file is a process that forks one worker per line of its standard input, so that a worker
starts in no time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import confluent_kafka

from forebay.client import Consumer, Delivery, Message, Producer, Record, process

PRODUCER_CALLS = (
    "init_transactions",
    "begin_transaction",
    "produce",
    "flush",
    "send_offsets_to_transaction",
    "commit_transaction",
)
CONSUMER_CALLS = ("poll", "consume", "commit", "store_offsets", "close")
PROCESSING = "processing"
BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    servers: str
    delivery: Delivery
    iterate: bool
    """`for message in consumer` instead of `process`."""
    source: str
    sink: str
    kill_at: str
    """A moment and how often it is let pass: commit:after:0. Empty for never."""
    last_value: str
    """The worker ends when it has dealt with this one."""


class Workers:
    """Runs jobs one after the other, each in a process of its own."""

    def __enter__(self) -> Workers:
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=60)

    def run(self, job: Job) -> int:
        """The signal that ended the worker, or 0."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
        self._server.stdin.flush()
        status = int(self._server.stdout.readline())
        assert os.WIFSIGNALED(status) or status == 0, f"{job}: exit status {status}"
        return os.WTERMSIG(status)


class Reaper:
    def __init__(self, kill_at: str) -> None:
        moment, _, passes = kill_at.rpartition(":")
        self._moment = moment
        self._passes = int(passes or 0)
        self._seen: Counter[str] = Counter()
        self._dying = False

    def reach(self, moment: str) -> None:
        if moment == self._moment and self._seen[moment] == self._passes:
            if moment.endswith(":during"):
                self._dying = True
                threading.Thread(target=_kill_soon, daemon=True).start()
            else:
                _kill()
        self._seen[moment] += 1

    def watch(self, kind: Any, calls: tuple[str, ...]) -> Any:
        """The same class, with a moment before, during and after each of these calls."""
        return type(
            kind.__name__, (kind,), {name: self._watched(getattr(kind, name), name) for name in calls}
        )

    def _watched(self, call: Any, name: str) -> Any:
        def watched(*arguments: Any, **options: Any) -> Any:
            self.reach(f"{name}:before")
            self.reach(f"{name}:during")
            result = call(*arguments, **options)
            if self._dying:
                signal.pause()  # the call was faster than death, which is on its way
            # A poll that brought nothing is not a moment of interest: it happens any number of times.
            if name != "poll" or result is not None:
                self.reach(f"{name}:after")
            return result

        return watched


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_soon() -> None:
    time.sleep(0.001)
    _kill()


def work(job: Job) -> None:
    reaper = Reaper(job.kill_at)
    confluent_kafka.Producer = reaper.watch(confluent_kafka.Producer, PRODUCER_CALLS)  # type: ignore[misc]
    confluent_kafka.Consumer = reaper.watch(confluent_kafka.Consumer, CONSUMER_CALLS)  # type: ignore[misc]
    ended = False

    def transform(message: Message) -> Record:
        nonlocal ended
        reaper.reach(PROCESSING)
        ended = message.value == job.last_value.encode()
        return Record(topic=job.sink, value=message.value)

    with _producer(job) as producer, _consumer(job) as consumer:
        if not job.iterate:
            process(consumer, producer, transform, batch_max=BATCH, stop=lambda: ended)
            return
        for message in consumer:
            producer.send_and_wait(transform(message))
            if ended:
                consumer.commit()
                return


def _producer(job: Job) -> Producer:
    transactional_id = f"{job.sink}-worker" if job.delivery == "exactly-once" else None
    return Producer(job.servers, delivery=job.delivery, profile="latency", transactional_id=transactional_id)


def _consumer(job: Job) -> Consumer:
    return Consumer(
        job.servers,
        job.source,
        group=f"{job.sink}-group",
        delivery=job.delivery,
        profile="latency",
        batch_max=BATCH,
        settings={
            # A static member: the next worker takes its place at once, without a session timeout.
            "group.instance.id": "worker",
            "auto.commit.interval.ms": 20,
        },
    )


def main() -> None:
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            _work_and_exit(Job(**json.loads(line)))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def _work_and_exit(job: Job) -> None:
    code = 1
    try:
        work(job)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
