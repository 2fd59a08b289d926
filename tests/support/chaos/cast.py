"""Everybody who takes part in a chaos run, and how it goes: act while things break, then let all be read.

The same cast plays on a single broker and on a cluster; what breaks is the caller's.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from support.chaos.actors import Actor, Stage, Transactor, Writer
from support.chaos.checker import check, missed_count, transformed_once
from support.chaos.group_actors import Member, Reader, Transformer, Watcher
from support.chaos.history import History, Place
from support.chaos.witness import read_everything, witness
from support.clients.kafka_clients import DEADLINE_SECONDS

PARTITIONS = 3
PLAIN, TRANSACTIONS, DERIVED = "plain", "transactions", "derived"
TRANSACTORS = ("txn-a", "txn-b")
TOPICS = (PLAIN, TRANSACTIONS, DERIVED)
PLACES: list[Place] = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
BROKER_ASSIGNS = {"group.protocol": "consumer"}


class Cast:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.settled = threading.Event()

    def producers(self) -> list[Actor]:
        stage = self._stage
        return [
            self._writer("plain", idempotent=False),
            self._writer("idempotent", idempotent=True),
            self._writer("hasty", idempotent=False, acks="1"),
            self._writer("careless", idempotent=False, acks="0"),
            *(Transactor(name, stage, topic=TRANSACTIONS, partitions=PARTITIONS) for name in TRANSACTORS),
        ]

    def transformers(self) -> list[Actor]:
        names = ("transform-a", "transform-b")
        return [
            Transformer(
                name,
                self._stage,
                group="pipeline",
                source=TRANSACTIONS,
                target=DERIVED,
                settled=self.settled,
            )
            for name in names
        ]

    def consumers(self) -> list[Actor]:
        return [
            *(self._member(f"billing-{n}", "billing", PLAIN, TRANSACTIONS) for n in range(3)),
            *(self._member(f"audit-{n}", "audit", DERIVED, **BROKER_ASSIGNS) for n in range(2)),
            Watcher("watcher", self._stage, group="audit"),
            self._reader("reader-committed", PLACES, committed_only=True),
            self._reader("reader-all", PLACES, committed_only=False),
        ]

    def _writer(self, name: str, *, idempotent: bool, acks: str = "all") -> Actor:
        return Writer(name, self._stage, topic=PLAIN, partitions=PARTITIONS, idempotent=idempotent, acks=acks)

    def _member(self, name: str, group: str, *topics: str, **settings: str) -> Actor:
        return Member(name, self._stage, group=group, topics=list(topics), settled=self.settled, **settings)

    def _reader(self, name: str, places: list[Place], *, committed_only: bool) -> Actor:
        return Reader(name, self._stage, places=places, committed_only=committed_only)


def play(stage: Stage, torment: Callable[[], object]) -> History:
    """Everybody acts while `torment` goes on; when it returns, nothing must be broken any more."""
    cast = Cast(stage)
    with contextlib.ExitStack() as consumers, contextlib.ExitStack() as transformers:
        for actor in cast.consumers():
            consumers.enter_context(actor)
        for actor in cast.transformers():
            transformers.enter_context(actor)
        with contextlib.ExitStack() as producers:
            for actor in cast.producers():
                producers.enter_context(actor)
            torment()
        cast.settled.set()
        witness(stage.bootstrap, [place for place in PLACES if place[0] != DERIVED], stage.history)
        _wait_while_it_goes_on(lambda: _left_to_transform(stage))
        transformers.close()
        witness(stage.bootstrap, PLACES, stage.history)
        _wait_while_it_goes_on(lambda: missed_count(stage.history))
    return stage.history


def breaches_of(history: History) -> list[str]:
    return check(history) + transformed_once(history, TRANSACTIONS, DERIVED, _origin)


def enough_was_done(history: History) -> bool:
    """Whether the run proves anything."""
    outcomes = {transaction.outcome for transaction in history.transactions.values()}
    groups = {read.group for read in history.reads}
    return (
        {"committed", "aborted"} <= outcomes
        and {"billing", "pipeline", "audit"} <= groups
        and len({given.epoch for given in history.given}) > 1
        and any(commit.acknowledged for commit in history.commits)
    )


def _wait_while_it_goes_on(left: Callable[[], int]) -> None:
    """Until nothing is left, or nothing more happens: the checker then says what is missing."""
    best, since = left(), time.monotonic()
    while best > 0 and time.monotonic() - since < DEADLINE_SECONDS:
        time.sleep(0.2)
        now = left()
        if now < best:
            best, since = now, time.monotonic()


def _left_to_transform(stage: Stage) -> int:
    derived = read_everything(stage.bootstrap, [p for p in PLACES if p[0] == DERIVED], "read_committed")
    inputs = sum(len(values) for place, values in stage.history.visible.items() if place[0] == TRANSACTIONS)
    return inputs - sum(map(len, derived.values()))


def _origin(derived: bytes) -> bytes:
    return derived.partition(b"|")[0]
