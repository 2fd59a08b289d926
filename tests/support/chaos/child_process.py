"""Actors whose clients live in processes of their own, one after the other, and can crash: SIGKILL, and no
goodbye is sent.

Among threads a consumer could only be dropped, and librdkafka may hang in that, or in close(), when a
rebalance comes just then: with a thread that loops without end and takes a core, or while it holds Python's
interpreter lock, so that all other clients stand still with it.

The child tells what it is going to do before it does it; so everything that others may have seen of it is in
the history when it is killed. What it only read it tells a little later, but before anything else: of a read
that nobody heard of nothing follows.
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
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar, TypeVar

from confluent_kafka import KafkaException

from support.chaos.actors import Actor, GivenUp, Stage
from support.chaos.history import Clock, Commit, History, Outcome, Send, Transaction

_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload(["support.chaos.group_actors"])
_LIFE_SECONDS = (2.0, 8.0)
_CRASH_CHANCE = 0.4
_LEAVE_SECONDS = 8.0
_LOOK_SECONDS = 0.05
_MAY_GO_ON, _ACKNOWLEDGED = "may go on", "acknowledged"
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
            args = (type(self).live, there, self.history.clock, chance, name, self.about())
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
                for event in self._channel.recv():
                    self._take(*event)
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
        if what == _MAY_GO_ON:
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
    """The history in the child: every entry is sent to the parent."""

    def __init__(self, channel: Connection, clock: Clock) -> None:
        self._channel = channel
        self._unsent: list[tuple[str, Any]] = []
        super().__init__(
            sends=_SentSends(self.say),
            acks=_SentList(partial(self.say, "acks")),
            reads=_SentList(partial(self.say_later, "reads")),
            begins=_SentList(partial(self.say, "begins")),
            found=_SentList(partial(self.say, "found")),
            commits=_SentList(partial(self.say, "commits")),
            clock=clock,
        )

    def say_later(self, what: str, event: Any) -> None:
        self._unsent.append((what, event))

    def say(self, what: str, event: Any) -> None:
        events, self._unsent = [*self._unsent, (what, event)], []
        self._channel.send(events)

    def may_go_on(self) -> bool:
        self.say(_MAY_GO_ON, None)
        return bool(self._channel.recv())

    def acknowledge(self, commit: Commit) -> None:
        number = next(number for number, each in enumerate(self.commits) if each is commit)
        self.say(_ACKNOWLEDGED, number)

    def begin_transaction(self, name: str) -> Transaction:
        return _SentTransaction(lambda what, value: self.say(what, (name, value)))


Live = Callable[..., None]
Say = Callable[[str, Any], None]


def _be_child(
    live: Live, channel: Connection, clock: Clock, chance: random.Random, name: str, about: Any
) -> None:
    history = RemoteHistory(channel, clock)
    with contextlib.suppress(KafkaException, GivenUp):
        live(history, chance, name, **about)
    os._exit(0)  # librdkafka is not waited for


class _SentTransaction(Transaction):
    """Tells the parent whatever becomes known of it."""

    def __init__(self, say: Say) -> None:
        object.__setattr__(self, "_say", say)
        super().__init__()

    def __setattr__(self, attribute: str, value: Outcome | int | None) -> None:
        object.__setattr__(self, attribute, value)
        self._say(_OUTCOME if attribute == "outcome" else _COMMIT_BEGUN, value)  # type: ignore[attr-defined]


class _SentSends(dict[bytes, Send]):
    def __init__(self, say: Say) -> None:
        super().__init__()
        self._say = say

    def __setitem__(self, value: bytes, send: Send) -> None:
        self._say(_SEND, (value, send))


class _SentList(list[T]):
    def __init__(self, say: Callable[[T], None]) -> None:
        super().__init__()
        self._say = say

    def append(self, event: T) -> None:
        super().append(event)
        self._say(event)

    def extend(self, events: Iterable[T]) -> None:
        for event in events:
            self.append(event)
