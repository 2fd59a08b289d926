"""Workers of a queue while the broker is killed: no message is lost, none that was accepted comes again."""

from __future__ import annotations

import threading
from collections import Counter

from forebay.client import Admin, Queue, QueueMessage
from forebay.testing import Broker

TOTAL = 300
KILLS = (60, 180)
"""The broker is killed when this many messages have been handled."""


def test_every_message_is_accepted_and_none_again_after_that() -> None:
    with Broker(process=True) as broker:
        Admin(broker.bootstrap_servers).create_topic("jobs", partitions=1)
        handled: Counter[int] = Counter()
        lock = threading.Lock()

        def handle(message: QueueMessage) -> None:
            with lock:
                handled[int(message.value or b"")] += 1
                if handled.total() in KILLS:
                    broker.kill()
                    broker.start()

        with Queue(broker.bootstrap_servers, "jobs", group="g", lock_seconds=2, delivery_limit=10) as queue:
            for number in range(TOTAL):
                queue.send(str(number))
            queue.flush()
            summary = queue.work(handle, jobs=3, idle_s=8)
            assert list(queue.messages(2.0)) == []
    assert sorted(handled) == list(range(TOTAL))
    repeated = handled.total() - TOTAL
    assert summary.accepted + summary.lost == handled.total()
    assert repeated <= summary.lost  # only what was not confirmed as accepted may come again
