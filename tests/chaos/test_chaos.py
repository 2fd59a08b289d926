"""Random producers, transactions, groups and pipelines on a broker that is killed again and again.

`make test` runs it for a few seconds with one seed, `make chaos` for as long as CHAOS_SECONDS says,
with a seed of its own each time; CHAOS_SEED repeats one. A seed decides what each client does; when
the broker dies in between is up to the machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable

import pytest

from actors import Actor, Stage, Transactor, Writer
from broker_process import BrokerProcess, StartBroker
from checker import check, nothing_missed, transformed_once
from group_actors import Member, Reader, Transformer
from history import History, Place
from kafka_clients import DEADLINE_SECONDS, create_topic
from witness import read_everything, witness

PARTITIONS = 3
PLAIN, TRANSACTIONS, DERIVED = "plain", "transactions", "derived"
PLACES: list[Place] = [(topic, n) for topic in (PLAIN, TRANSACTIONS, DERIVED) for n in range(PARTITIONS)]
DOWN_SECONDS_MAX = 0.5
CHAOS_SECONDS = float(os.environ.get("CHAOS_SECONDS", "120"))
CHAOS_SEED = os.environ.get("CHAOS_SEED") or f"{random.SystemRandom().randrange(2**32)}"

BROKER_ASSIGNS = {"group.protocol": "consumer"}
QUICK_GROUPS = ("group.consumer.session.timeout.ms=2000", "group.consumer.heartbeat.interval.ms=200")
SETTINGS = {
    "default": (),
    "small segments": ("log.segment.bytes=20000", "offsets.topic.segment.bytes=20000"),
    "compacting": (
        "offsets.topic.segment.bytes=20000",
        "transaction.state.log.segment.bytes=20000",
        "log.cleaner.backoff.ms=200",
        "log.cleaner.min.cleanable.ratio=0.1",
    ),
}


class Cast:
    """Everybody who takes part."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.settled = threading.Event()

    def producers(self) -> list[Actor]:
        stage = self._stage
        return [
            Writer("plain", stage, topic=PLAIN, partitions=PARTITIONS, idempotent=False),
            Writer("idempotent", stage, topic=PLAIN, partitions=PARTITIONS, idempotent=True),
            Transactor("txn-a", stage, topic=TRANSACTIONS, partitions=PARTITIONS),
            Transactor("txn-b", stage, topic=TRANSACTIONS, partitions=PARTITIONS),
        ]

    def transformers(self) -> list[Actor]:
        names = ("transform-a", "transform-b")
        return [
            Transformer(name, self._stage, group="pipeline", source=TRANSACTIONS, target=DERIVED)
            for name in names
        ]

    def consumers(self) -> list[Actor]:
        return [
            *(self._member(f"billing-{n}", "billing", PLAIN, TRANSACTIONS) for n in range(3)),
            *(self._member(f"audit-{n}", "audit", DERIVED, **BROKER_ASSIGNS) for n in range(2)),
            self._reader("reader-committed", committed_only=True),
            self._reader("reader-all", committed_only=False),
        ]

    def _member(self, name: str, group: str, *topics: str, **settings: str) -> Actor:
        return Member(name, self._stage, group=group, topics=list(topics), settled=self.settled, **settings)

    def _reader(self, name: str, *, committed_only: bool) -> Actor:
        places = [place for place in PLACES if place[0] != PLAIN]
        return Reader(name, self._stage, places=places, committed_only=committed_only)


def torment(broker: BrokerProcess, chance: random.Random, seconds: float) -> int:
    """Kill it, or stop it, and bring it back, for so long. How often."""
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.3, 2.5))
        (broker.stop if chance.random() < 0.2 else broker.kill)()
        time.sleep(chance.uniform(0, DOWN_SECONDS_MAX))
        broker.start()
        count += 1
    return count


def wait_until(condition: Callable[[], bool]) -> None:
    """Or until the time is up: the checker then says what is missing."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)


def origin(derived: bytes) -> bytes:
    return derived.partition(b"|")[0]


def run_chaos(broker: BrokerProcess, seed: str, seconds: float) -> History:
    for topic in (PLAIN, TRANSACTIONS, DERIVED):
        create_topic(broker.bootstrap, topic, PARTITIONS)
    history = History()
    cast = Cast(Stage(broker.bootstrap, history, seed))
    with contextlib.ExitStack() as consumers, contextlib.ExitStack() as transformers:
        for actor in cast.consumers():
            consumers.enter_context(actor)
        for actor in cast.transformers():
            transformers.enter_context(actor)
        with contextlib.ExitStack() as producers:
            for actor in cast.producers():
                producers.enter_context(actor)
            torment(broker, random.Random(seed), seconds)
        cast.settled.set()
        witness(broker.bootstrap, [place for place in PLACES if place[0] != DERIVED], history)
        wait_until(lambda: left_to_transform(broker, history) <= 0)
        transformers.close()
        witness(broker.bootstrap, PLACES, history)
        wait_until(lambda: not list(nothing_missed(history)))
    return history


def left_to_transform(broker: BrokerProcess, history: History) -> int:
    derived = read_everything(broker.bootstrap, [p for p in PLACES if p[0] == DERIVED], "read_committed")
    inputs = sum(len(values) for place, values in history.visible.items() if place[0] == TRANSACTIONS)
    return inputs - sum(map(len, derived.values()))


def judge(broker: BrokerProcess, history: History, seed: str) -> None:
    breaches = check(history) + transformed_once(history, TRANSACTIONS, DERIVED, origin)
    shown = "\n".join(breaches[:20])
    assert not breaches, f"seed {seed}: {len(breaches)} breaches\n{shown}\n{broker.log()[-2_000:]}"
    assert "Traceback" not in broker.log(), broker.log()[-4_000:]
    outcomes = {transaction.outcome for transaction in history.transactions.values()}
    assert {"committed", "aborted"} <= outcomes, "too little was done to prove anything"
    assert {read.group for read in history.reads} >= {"billing", "pipeline", "audit"}
    assert any(commit.acknowledged for commit in history.commits)


def test_nothing_breaks_while_the_broker_is_killed(start_broker: StartBroker) -> None:
    broker = start_broker(*QUICK_GROUPS)
    judge(broker, run_chaos(broker, "a", 10.0), "a")


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_nothing_breaks_for_long(start_broker: StartBroker, settings: tuple[str, ...]) -> None:
    broker = start_broker(*QUICK_GROUPS, *settings)
    judge(broker, run_chaos(broker, CHAOS_SEED, CHAOS_SECONDS), CHAOS_SEED)
