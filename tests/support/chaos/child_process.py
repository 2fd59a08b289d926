"""Actors whose clients live in processes of their own, one after the other, and can crash: SIGKILL, and no
goodbye is sent.

Among threads a consumer could only be dropped, and librdkafka may hang in that, or in close(), when a
rebalance comes just then: with a thread that loops without end and takes a core, or while it holds Python's
interpreter lock, so that all other clients stand still with it.

The child asks for its places in the common order, and tells what it is going to do before it does it; so
everything that it may have done is in the history when it is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar, TypeVar

from confluent_kafka import KafkaException

from support.chaos.actors import Actor, GivenUp, Stage
from support.chaos.history import Commit, History, Outcome, Send, Transaction

_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload(["support.chaos.group_actors"])
_LIFE_SECONDS = (2.0, 8.0)
_CRASH_CHANCE = 0.4
_LEAVE_SECONDS = 8.0
_LOOK_SECONDS = 0.05
_TICK, _MAY_GO_ON, _ACKNOWLEDGED = "tick", "may go on", "acknowledged"
_SEND, _OUTCOME, _COMMIT_BEGUN = "send", "outcome", "commit begun"
T = TypeVar("T")


class ProcessActor(Actor):
    """Lives in one process after another; each ends by itself, is asked to end, or is killed."""

    live: ClassVar[Callable[..., None]]
    """What a child does: called with the history, a source of chance, the name of this life, and `about`.
    Returns when the history says that it may not go on, or when this life is over."""

    def __init__(self, name: str, stage: Stage, settled: threading.Event) -> None:
        """Once `settled` is set its child stays, so that everything can be read in the end."""
        super().__init__(name, stage)
        self._settled = settled

    def about(self) -> dict[str, Any]:
        """What the child has to know."""
        raise NotImplementedError

    def act(self) -> None:
        for life in itertools.count():
            if self.stopping.is_set():
                return
            here, there = _FORK.Pipe()
            chance, name = random.Random(self.chance.random()), f"{self.name}.{life}"
            args = (type(self).live, there, chance, name, self.about())
            child = _FORK.Process(target=_be_child, args=args, daemon=True)
            child.start()
            there.close()
            relay = _Relay(here, self.history)
            try:
                self._watch(relay, child)
            finally:
                child.kill()
                child.join()
                relay.read_on()  # what it said before
                relay.end_transactions()
                here.close()

    def _watch(self, relay: _Relay, child: BaseProcess) -> None:
        """Until it is time to kill it, or it has ended."""
        end = time.monotonic() + self.chance.uniform(*_LIFE_SECONDS)
        crashes = self.chance.random() < _CRASH_CHANCE
        while child.is_alive():
            is_late = not self._settled.is_set() and time.monotonic() >= end
            if is_late and crashes:
                return
            if is_late or self.stopping.is_set():
                relay.may_go_on = False
                end = min(end, time.monotonic())
                if time.monotonic() >= end + _LEAVE_SECONDS:
                    return
            relay.read_on(_LOOK_SECONDS)


class _Relay:
    """Puts into the history what a child says."""

    def __init__(self, channel: Connection, history: History) -> None:
        self._channel, self._history = channel, history
        self._commits: list[Commit] = []
        self._transactions: list[Transaction] = []
        self.may_go_on = True

    def read_on(self, seconds: float = 0.0) -> None:
        """Everything that has come; if nothing has, wait for this time."""
        try:
            while self._channel.poll(seconds):
                self._take(*self._channel.recv())
                seconds = 0.0
        except (EOFError, OSError):
            return  # it is gone, maybe in the middle of a word

    def end_transactions(self) -> None:
        """What the child left open, its successor aborts, unless the broker was asked to commit it."""
        for each in self._transactions:
            if each.outcome == "open":
                each.outcome = "aborted" if each.commit_begun is None else "unknown"

    def _take(self, what: str, event: Any) -> None:
        history = self._history
        if what == _TICK:
            self._channel.send(history.tick())
        elif what == _MAY_GO_ON:
            self._channel.send(self.may_go_on)
        elif what == _ACKNOWLEDGED:
            history.acknowledge(self._commits[event])
        elif what == _SEND:
            value, send = event
            history.sends[value] = send
        elif what in (_OUTCOME, _COMMIT_BEGUN):
            self._note(what, *event)
        else:
            getattr(history, what).append(event)
            if isinstance(event, Commit):
                self._commits.append(event)

    def _note(self, what: str, name: str, value: Any) -> None:
        """Something is known of a transaction."""
        transaction = self._history.transactions.get(name)
        if transaction is None:
            transaction = self._history.transactions[name] = Transaction()
            self._transactions.append(transaction)
        if what == _OUTCOME:
            transaction.outcome = value
        else:
            transaction.commit_begun = value


# -- in the child -------------------------------------------------------------------------------------------


class RemoteHistory(History):
    """The history in the child: every entry is sent to the parent, which has the clock."""

    def __init__(self, channel: Connection) -> None:
        super().__init__(
            sends=_SentSends(channel),
            acks=_SentList(channel, "acks"),
            reads=_SentList(channel, "reads"),
            begins=_SentList(channel, "begins"),
            found=_SentList(channel, "found"),
            commits=_SentList(channel, "commits"),
        )
        self._channel = channel

    def tick(self) -> int:
        return int(self._ask(_TICK))

    def may_go_on(self) -> bool:
        return bool(self._ask(_MAY_GO_ON))

    def acknowledge(self, commit: Commit) -> None:
        number = next(number for number, each in enumerate(self.commits) if each is commit)
        self._channel.send((_ACKNOWLEDGED, number))

    def begin_transaction(self, name: str) -> Transaction:
        return _SentTransaction(self._channel, name)

    def _ask(self, what: str) -> Any:
        self._channel.send((what, None))
        return self._channel.recv()


Live = Callable[..., None]


def _be_child(live: Live, channel: Connection, chance: random.Random, name: str, about: Any) -> None:
    with contextlib.suppress(KafkaException, GivenUp):
        live(RemoteHistory(channel), chance, name, **about)
    os._exit(0)  # librdkafka is not waited for


class _SentTransaction(Transaction):
    """Tells the parent whatever becomes known of it."""

    def __init__(self, channel: Connection, name: str) -> None:
        object.__setattr__(self, "_tell", lambda what, value: channel.send((what, (name, value))))
        super().__init__()

    def __setattr__(self, attribute: str, value: Outcome | int | None) -> None:
        object.__setattr__(self, attribute, value)
        self._tell(_OUTCOME if attribute == "outcome" else _COMMIT_BEGUN, value)  # type: ignore[attr-defined]


class _SentSends(dict[bytes, Send]):
    def __init__(self, channel: Connection) -> None:
        super().__init__()
        self._channel = channel

    def __setitem__(self, value: bytes, send: Send) -> None:
        self._channel.send((_SEND, (value, send)))


class _SentList(list[T]):
    def __init__(self, channel: Connection, name: str) -> None:
        super().__init__()
        self._channel, self._name = channel, name

    def append(self, event: T) -> None:
        super().append(event)
        self._channel.send((self._name, event))

    def extend(self, events: Iterable[T]) -> None:
        for event in events:
            self.append(event)
