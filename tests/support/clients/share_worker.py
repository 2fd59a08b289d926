"""Members of share groups made of confluent-kafka's ShareConsumer, here or in a process of their own.

Run as a script, this file is a member that takes messages, says so, and holds them until it is killed.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import AcknowledgeType, ShareConsumer

from forebay.client.closing import close_share_consumer
from forebay.client.errors import error_of
from forebay.errors import ErrorCode

DEADLINE_SECONDS = 120.0
RECONNECTING = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}


def consumer(servers: str, group: str, topic: str, **settings: Any) -> ShareConsumer:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    made = ShareConsumer({"bootstrap.servers": servers, "group.id": group, **RECONNECTING, **config})
    made.subscribe([topic])
    return made


class Worker:
    """Acknowledges explicitly, and counts as accepted only what the broker has confirmed."""

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        self.accepted: Counter[bytes] = Counter()
        self.deliveries: Counter[bytes] = Counter()
        self.failures: list[str] = []
        self.refused: Counter[bytes] = Counter()
        """What may have been accepted: the broker has not confirmed it, and has perhaps only not said so."""
        self.denied: Counter[bytes] = Counter()
        """What was surely not accepted: the broker says that this member does not hold it."""
        self._consumer = consumer(servers, group, topic, share_acknowledgement_mode="explicit", **settings)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        close_share_consumer(self._consumer)

    def work(self, judge: Callable[[Any], AcknowledgeType] = lambda _: AcknowledgeType.ACCEPT) -> None:
        """One poll: what came is acknowledged as `judge` says of each message."""
        messages: list[Any] = [each for each in self._consumer.poll(0.2) if each.error() is None]
        accepted: dict[tuple[str, int], list[bytes]] = {}
        for message in messages:
            self.deliveries[message.value()] += 1
            verdict = judge(message)
            self._consumer.acknowledge(message, verdict)
            if verdict == AcknowledgeType.ACCEPT:
                accepted.setdefault((message.topic(), message.partition()), []).append(message.value())
        if not messages:
            return
        for at, error in self._consumer.commit_sync(20.0).items():
            values = accepted.pop((at.topic, at.partition), [])
            if error is None:
                self.accepted.update(values)
            else:
                self.failures.append(str(error))
                is_denied = error_of(error).code() == ErrorCode.INVALID_RECORD_STATE
                (self.denied if is_denied else self.refused).update(values)
        for values in accepted.values():
            self.refused.update(values)


def work_until(condition: Callable[[], bool], *workers: Worker, **how: Any) -> None:
    give_up = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < give_up, [dict(each.accepted) for each in workers]
        for worker in workers:
            worker.work(**how)


@contextlib.contextmanager
def holding(servers: str, group: str, topic: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds messages; its first line says how many."""
    child = subprocess.Popen(
        [sys.executable, __file__, servers, group, topic], stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate(timeout=DEADLINE_SECONDS)


def _hold(servers: str, group: str, topic: str) -> None:
    member = consumer(servers, group, topic, share_acknowledgement_mode="explicit")
    give_up = time.monotonic() + DEADLINE_SECONDS
    while not (messages := list(member.poll(1.0))):
        assert time.monotonic() < give_up, "there is nothing to hold"
    sys.stdout.write(f"{len(messages)}\n")
    sys.stdout.flush()
    time.sleep(DEADLINE_SECONDS)


if __name__ == "__main__":
    _hold(*sys.argv[1:])
