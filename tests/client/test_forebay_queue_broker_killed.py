"""Workers of a queue while the broker is killed: no message is lost, none that was accepted comes again."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from forebay.client import Admin, ClientError, Queue, QueueMessage
from forebay.testing import Broker

TOTAL = 300
QUIET_SECONDS = 8.0
KILLS = (60, 180)
"""The broker is killed when this many messages have been handled."""


def test_every_message_is_accepted_and_none_again_after_that() -> None:
    with Broker(process=True) as broker:
        Admin(broker.bootstrap_servers).create_topic("jobs", partitions=1)
        handled: Counter[int] = Counter()
        lock = threading.Lock()
        stop = threading.Event()
        ending = threading.Timer(0, stop.set)

        def handle(message: QueueMessage) -> None:
            """The work ends when each message was handled, and nothing came again for a while."""
            nonlocal ending
            with lock:
                handled[int(message.value or b"")] += 1
                if handled.total() in KILLS:
                    broker.kill()
                    broker.start()
                if len(handled) == TOTAL:
                    ending.cancel()
                    ending = threading.Timer(QUIET_SECONDS, stop.set)
                    ending.start()

        with Queue(broker.bootstrap_servers, "jobs", group="g", lock_seconds=2, delivery_limit=10) as queue:
            for number in range(TOTAL):
                queue.send(str(number))
            queue.flush()
            summary = queue.work(handle, jobs=3, stop=stop)
            assert list(queue.messages(2.0)) == []
    assert sorted(handled) == list(range(TOTAL))
    repeated = handled.total() - TOTAL
    assert summary.accepted + summary.lost == handled.total()
    assert repeated <= summary.lost  # only what was not confirmed as accepted may come again


def test_a_block_that_ends_without_a_broker_does_not_pass_for_accepted() -> None:
    with Broker(process=True) as broker:
        Admin(broker.bootstrap_servers).create_topic("jobs", partitions=1)
        with Queue(broker.bootstrap_servers, "jobs", group="g") as queue:
            queue.send_and_wait("0")
            with (
                pytest.raises(ClientError, match="jobs/0 offset 0 could not be acknowledged"),
                queue.receive(60),
            ):
                broker.kill()
            broker.start()
            with queue.receive(60) as message:
                assert message.value == b"0"
