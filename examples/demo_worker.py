"""A worker of the queue chapter, as a process of its own: it says on stdout what it does with each job.

`got JOB DELIVERY`, then `accepted JOB` or `released JOB`; a hoarder only says `held JOB` of each that it has.
"""

from __future__ import annotations

import signal
import sys
import time

from forebay.client import Queue, QueueMessage

JOBS = "jobs"
GROUP = "crew"
DEAD_JOBS = "dead-jobs"
DELIVERIES_MAX = 3
POISON = b"poison"
QUIET = {"log_level": 0}


class CannotWork(Exception):
    """What the job does to every worker that tries it."""


def queue_of(address: str, jobs_at_once: int = 1) -> Queue:
    return Queue(
        address,
        JOBS,
        group=GROUP,
        delivery_limit=DELIVERIES_MAX,
        retry_backoff_seconds=0.2,
        dead_letter_topic=DEAD_JOBS,
        batch_max=jobs_at_once,
        settings=QUIET,
    )


def work(queue: Queue, seconds_per_job: float) -> None:
    while True:
        try:
            with queue.receive() as message:
                job = _job(message)
                _say("got", job, message.delivery_count)
                if message.value == POISON:
                    raise CannotWork
                time.sleep(seconds_per_job)
            # Not before the block has ended: now the broker has persisted it.
            _say("accepted", job)
        except CannotWork:
            _say("released", job)


def hoard(queue: Queue) -> None:
    """Take jobs and never finish them."""
    receiver = queue.receiver
    while not receiver.fill(1.0):
        pass
    while (message := receiver.take()) is not None:
        _say("held", _job(message))
    _say("stuck")
    time.sleep(3_600)


def _job(message: QueueMessage) -> int:
    return int(message.header("n") or 0)


def _say(*words: object) -> None:
    print(*words, flush=True)


def main(address: str, jobs_at_once: int, seconds_per_job: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which ends its workers
    with queue_of(address, jobs_at_once) as queue:
        if jobs_at_once > 1:
            hoard(queue)
        work(queue, seconds_per_job)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
