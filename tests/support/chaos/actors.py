"""Clients that do random things in threads of their own, and write down what they did (`history.py`).

They know nothing of crashes: brokers may die and come back under them, and what the client library reports of
it is handled as its documentation asks. A seed decides what each of them does, though not when.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from support.chaos.history import Ack, History, Send, Transaction
from support.clients.kafka_clients import DEADLINE_SECONDS

PATIENCE_SECONDS = 120.0
"""How long a producer tries to begin or end a transaction while brokers come and go. On a busy machine a
broker takes seconds to start, and is killed again before all clients have found it."""

QUICK = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
    # librdkafka forgets a broker that is away, and can then wait in send_offsets_to_transaction for the
    # coordinator that it was, until any other broker's connection comes or goes (its issues 5456 and 5511).
    "metadata.recovery.strategy": "none",
    "connections.max.idle.ms": 3_000,
    "log_level": 0,
    "error_cb": lambda _error: None,
}
"""Comes back quickly when the broker does."""
PENDING_MAX = 200
T = TypeVar("T")


class GivenUp(Exception):
    """A call of the client library did not return in time, and never may."""


def within(seconds: float, call: Callable[[], T]) -> T:
    """librdkafka has calls that can wait for ever when a coordinator moves; such a one is left to itself."""
    outcome: list[T] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if problems:
        raise problems[0]
    if not outcome:
        raise GivenUp
    return outcome[0]


class Stage(NamedTuple):
    """Where actors act, and what decides their choices."""

    bootstrap: str
    history: History
    seed: str
    pause_s_max: float = 0.02
    """Between two things that a producer does."""


class Actor:
    """One thread; `with` runs it, and at the end of the block it stops and tells what went wrong in it."""

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self.bootstrap, self.history, self._pause_s_max = stage.bootstrap, stage.history, stage.pause_s_max
        self.chance = random.Random(f"{stage.seed} {name}")
        self.stopping = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Actor:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._thread.join()
        if self._problem is None:
            return
        if error is None:
            raise AssertionError(f"{self.name} failed: {self._problem!r}") from self._problem
        error.add_note(f"{self.name} failed, too: {self._problem!r}")

    def _run(self) -> None:
        try:
            self.act()
        except BaseException as problem:
            self._problem = problem

    def act(self) -> None:
        """Until `stopping` is set."""
        raise NotImplementedError

    def pause_s(self) -> float:
        return self.chance.random() * self._pause_s_max


class Writer(Actor):
    """Sends numbered messages to all partitions of a topic, in no transaction."""

    def __init__(
        self,
        name: str,
        stage: Stage,
        *,
        topic: str,
        partitions: int,
        idempotent: bool,
        acks: str = "all",
    ) -> None:
        super().__init__(name, stage)
        self._topic, self._partitions, self._idempotent, self._acks = topic, partitions, idempotent, acks

    def act(self) -> None:
        settings = {"enable.idempotence": self._idempotent, "acks": self._acks, "linger.ms": 1}
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings, **QUICK})
        number = 0
        while not self.stopping.is_set():
            if len(producer) < PENDING_MAX:
                for _ in range(self.chance.randrange(1, 5)):
                    self._send(producer, number)
                    number += 1
            end = time.monotonic() + self.pause_s()
            while (left := end - time.monotonic()) > 0:
                producer.poll(left)
        assert producer.flush(DEADLINE_SECONDS) == 0, "messages are left in the producer"

    def _send(self, producer: Producer, number: int) -> None:
        place = (self._topic, self.chance.randrange(self._partitions))
        value = f"{self.name}.{number}".encode()
        self.history.sends[value] = Send(self.name, number, place, exactly_once=self._idempotent)
        acks = self.history.acks if self._acks == "all" else self.history.weak_acks
        producer.produce(place[0], value, partition=place[1], on_delivery=delivered(acks))


def delivered(acks: list[Ack]) -> Callable[[Any, Any], None]:
    def note(error: KafkaError | None, message: Any) -> None:
        if error is None:
            acks.append(Ack(message.value(), (message.topic(), message.partition()), message.offset()))

    return note


class Transactor(Actor):
    """Writes transactions that it commits, aborts, or abandons to be fenced by its own successor."""

    def __init__(self, name: str, stage: Stage, *, topic: str, partitions: int) -> None:
        super().__init__(name, stage)
        self._topic, self._partitions = topic, partitions
        self._number = 0

    def act(self) -> None:
        producer = new_transactional(self.bootstrap, self.name)
        for count in range(1_000_000):
            if self.stopping.is_set():
                return
            name = f"{self.name}.{count}"
            transaction = self.history.begin_transaction(name)
            if not self._transact(producer, name, transaction):
                producer = new_transactional(self.bootstrap, self.name)
            time.sleep(self.pause_s())

    def _transact(self, producer: Producer, name: str, transaction: Transaction) -> bool:
        """Whether the producer can go on afterwards."""
        try:
            producer.begin_transaction()
            for _ in range(self.chance.randrange(1, 8)):
                self._send(producer, name)
            if self.chance.random() < 0.5:
                producer.flush(self.chance.random() * 0.1)
        except KafkaException:
            return abort(producer, transaction)
        fate = self.chance.random()
        if fate < 0.05:
            return self._abandon(producer, transaction)
        if fate < 0.25:
            return abort(producer, transaction)
        return commit(producer, transaction, self.history)

    def _send(self, producer: Producer, name: str) -> None:
        place = (self._topic, self.chance.randrange(self._partitions))
        value = f"{name}.{self._number}".encode()
        self.history.sends[value] = Send(self.name, self._number, place, transaction=name)
        self._number += 1
        producer.produce(place[0], value, partition=place[1], on_delivery=delivered(self.history.acks))

    def _abandon(self, zombie: Producer, transaction: Transaction) -> bool:
        """From the moment that another has its transactional id, it must not be able to commit."""
        new_transactional(self.bootstrap, self.name)
        transaction.outcome = "aborted"
        try:
            zombie.commit_transaction(DEADLINE_SECONDS)
        except KafkaException:
            return False
        raise AssertionError("a fenced producer has committed")


def new_transactional(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    """A producer that has fenced all others of its transactional id."""
    own = {"transactional.id": transactional_id, "transaction.timeout.ms": 20_000, "linger.ms": 1}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        producer = Producer({"bootstrap.servers": bootstrap, **own, **QUICK, **settings})
        try:
            _persist(producer.init_transactions)
            return producer
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def commit(producer: Producer, transaction: Transaction, history: History) -> bool:
    """Whether the producer can go on; the transaction says how it ended."""
    transaction.commit_begun = history.tick()
    try:
        _persist(producer.commit_transaction)
        transaction.outcome = "committed"
        return True
    except KafkaException as problem:
        if problem.args[0].txn_requires_abort():
            return abort(producer, transaction)
        transaction.outcome = "unknown"
        return False


def abort(producer: Producer, transaction: Transaction) -> bool:
    try:
        _persist(producer.abort_transaction)
        transaction.outcome = "aborted"
        return True
    except KafkaException:
        # Its successor will abort it. Only if it was asked to commit before could it have been committed.
        transaction.outcome = "aborted" if transaction.commit_begun is None else "unknown"
        return False


def _persist(call: Callable[[float], Any]) -> None:
    """As often as the library says that the same call may be tried again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            call(5.0)
            return
        except KafkaException as problem:
            if not problem.args[0].retriable() or time.monotonic() > deadline:
                raise
