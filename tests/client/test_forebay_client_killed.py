"""The delivery modes, proved by killing a program at every stage of its work.

A program copies messages from one topic to another. Again and again it gets fresh messages, is killed at the
next moment of the list, and is started again; the last one may finish. Then the copy must show what the mode
promises: at most once has nothing twice, at least once has nothing missing, exactly once is the source.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence

import pytest

from forebay.client import Consumer, Delivery, Producer
from forebay.testing import Broker
from support.clients.killed_worker import PROCESSING, Job, Workers

FED = 10

READING = ["poll:before:0", "poll:after:0", "poll:after:1", "consume:after:0", "consume:after:1"]
WORKING = [f"{PROCESSING}:0", f"{PROCESSING}:1", f"{PROCESSING}:5"]
SENDING = ["produce:before:0", "produce:after:0", "produce:after:5"]
FLUSHING = ["flush:before:0", "flush:during:0", "flush:after:0"]
COMMITTING = ["commit:before:0", "commit:during:0", "commit:after:0", "commit:before:1", "commit:after:1"]
STORING = ["store_offsets:before:0", "store_offsets:after:0", "store_offsets:after:1"]
CLOSING = ["close:before:0", "close:during:0", "close:after:0"]
TRANSACTION = [
    "init_transactions:before:0",
    "init_transactions:during:0",
    "init_transactions:after:0",
    "begin_transaction:before:0",
    "begin_transaction:after:0",
    "begin_transaction:after:1",
    "send_offsets_to_transaction:before:0",
    "send_offsets_to_transaction:during:0",
    "send_offsets_to_transaction:after:0",
    "send_offsets_to_transaction:after:1",
    "commit_transaction:before:0",
    "commit_transaction:during:0",
    "commit_transaction:during:1",
    "commit_transaction:after:0",
    "commit_transaction:after:1",
]


def copy_with_kills(
    broker: Broker, topic: str, delivery: Delivery, moments: Sequence[str], *, iterate: bool = False
) -> tuple[list[str], list[str]]:
    """What was in the source, and what the copy has."""
    servers, sink = broker.bootstrap_servers, f"{topic}-copy"
    fed: list[str] = []
    with (
        Workers() as workers,
        Producer(servers, delivery="at-most-once", acks=1, profile="latency") as producer,
    ):
        for turn, moment in enumerate([*moments, ""]):
            values = [f"{turn}.{number}" for number in range(FED)]
            for value in values:
                producer.send(topic, value)
            producer.flush()
            fed += values
            job = Job(
                servers=servers,
                delivery=delivery,
                iterate=iterate,
                source=topic,
                sink=sink,
                kill_at=moment,
                last_value=values[-1],
            )
            assert workers.run(job) == (signal.SIGKILL if moment else 0), f"at {moment}"
    return fed, read(servers, sink, until=fed[-1])


def read(servers: str, topic: str, *, until: str) -> list[str]:
    """All that a consumer gets to see, up to a value that must come."""
    copied = []
    with Consumer(servers, topic, group=f"{topic}-check", profile="latency") as consumer:
        for message in consumer:
            assert message.value is not None
            copied.append(message.value.decode())
            if copied[-1] == until:
                return copied
    raise AssertionError("a consumer goes on for ever")


def twice(copied: list[str]) -> list[str]:
    return [value for value, count in Counter(copied).items() if count > 1]


@pytest.mark.parametrize("iterate", [True, False], ids=["iterate", "process"])
def test_at_most_once_never_repeats(forebay_broker: Broker, forebay_topic: str, iterate: bool) -> None:
    moments = READING + COMMITTING + WORKING + SENDING + CLOSING
    fed, copied = copy_with_kills(forebay_broker, forebay_topic, "at-most-once", moments, iterate=iterate)
    assert twice(copied) == []
    assert len(copied) < len(fed), "killed between commit and processing, something must be missing"
    assert copied == [value for value in fed if value in set(copied)]


@pytest.mark.parametrize("iterate", [True, False], ids=["iterate", "process"])
def test_at_least_once_never_loses(forebay_broker: Broker, forebay_topic: str, iterate: bool) -> None:
    own = STORING if iterate else FLUSHING + COMMITTING
    moments = READING + WORKING + SENDING + own + CLOSING
    fed, copied = copy_with_kills(forebay_broker, forebay_topic, "at-least-once", moments, iterate=iterate)
    assert [value for value in fed if value not in set(copied)] == []
    assert twice(copied), "killed between processing and commit, something must be there twice"


def test_exactly_once_neither_repeats_nor_loses(forebay_broker: Broker, forebay_topic: str) -> None:
    moments = READING + WORKING + SENDING + TRANSACTION + CLOSING
    fed, copied = copy_with_kills(forebay_broker, forebay_topic, "exactly-once", moments)
    assert copied == fed
