"""A member of a group in a process of its own, which can crash: nothing is closed, no goodbye is sent.

Among threads a consumer could only be dropped. With the protocol of KIP-848 librdkafka may hang in that, and
leave a thread that loops without end and takes a core from all others.

The child asks for its places in the common order, and tells what it is going to do before it does it; so
everything that it may have done is in the history when it is killed.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from support.chaos.actors import GivenUp
from support.chaos.group_actors import Member, Membership
from support.chaos.history import Commit, History

_SPAWN = multiprocessing.get_context("spawn")
_LIFE_SECONDS = (2.0, 8.0)
_CRASH_CHANCE = 0.4
_LEAVE_SECONDS = 8.0
_LOOK_SECONDS = 0.05
_TICK, _MAY_GO_ON, _ACKNOWLEDGED = "tick", "may go on", "acknowledged"
T = TypeVar("T")


class ProcessMember(Member):
    """Lives in one process after another; each leaves the group, or is killed."""

    def act(self) -> None:
        for life in itertools.count():
            if self.stopping.is_set():
                return
            here, there = _SPAWN.Pipe()
            what = f"{self.name}.{life}", self.bootstrap, self.group, self.topics, self.settings
            child = _SPAWN.Process(target=_be_member, args=(there, self.chance.random(), *what), daemon=True)
            child.start()
            there.close()
            relay = _Relay(here, self.history)
            try:
                self._watch(relay, child)
            finally:
                child.kill()
                child.join()
                relay.read_on()  # what it said before
                here.close()

    def _watch(self, relay: _Relay, child: BaseProcess) -> None:
        """Until it is time to kill it, or it has left."""
        end = time.monotonic() + self.chance.uniform(*_LIFE_SECONDS)
        crashes = self.chance.random() < _CRASH_CHANCE
        while child.is_alive():
            is_late = not self.settled.is_set() and time.monotonic() >= end
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
        self.may_go_on = True

    def read_on(self, seconds: float = 0.0) -> None:
        """Everything that has come, if nothing then wait for so long."""
        try:
            while self._channel.poll(seconds):
                self._take(*self._channel.recv())
                seconds = 0.0
        except (EOFError, OSError):
            return  # it is gone, maybe in the middle of a word

    def _take(self, what: str, event: Any) -> None:
        if what == _TICK:
            self._channel.send(self._history.tick())
        elif what == _MAY_GO_ON:
            self._channel.send(self.may_go_on)
        elif what == _ACKNOWLEDGED:
            self._history.acknowledge(self._commits[event])
        else:
            getattr(self._history, what).append(event)
            if isinstance(event, Commit):
                self._commits.append(event)


# -- in the child -------------------------------------------------------------------------------------------


def _be_member(
    channel: Connection,
    seed: float,
    name: str,
    bootstrap: str,
    group: str,
    topics: list[str],
    settings: dict[str, Any],
) -> None:
    history, chance = _RemoteHistory(channel), random.Random(seed)
    membership = Membership(name, bootstrap, history, group, topics, **settings)
    try:
        while history.may_go_on():
            membership.take_turn(chance)
        membership.leave()
    except (KafkaException, GivenUp):
        pass
    os._exit(0)  # librdkafka is not waited for


class _RemoteHistory(History):
    """The history in the child: every entry is sent to the parent, which has the clock."""

    def __init__(self, channel: Connection) -> None:
        super().__init__(
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

    def _ask(self, what: str) -> Any:
        self._channel.send((what, None))
        return self._channel.recv()


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
