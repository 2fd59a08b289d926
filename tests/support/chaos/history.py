"""What clients did and saw while a broker was put to the test, as plain facts for `checker.py` to judge.

Clients write down an event before they ask for something and after they were answered; `tick` gives every
event its place in one order. Each message has a value that no other message has, so that a value names it.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""

Outcome = Literal["open", "committed", "aborted", "unknown"]
Content = dict[Place, dict[int, bytes]]
"""Values by offset."""


class Send(NamedTuple):
    """A message that a producer was asked to send; whether it was stored is another question."""

    producer: str
    number: int
    """Its place in the order of this producer's messages."""
    place: Place
    exactly_once: bool = True
    """Whether the producer is idempotent: its messages are stored at most once, and in order."""
    transaction: str | None = None


class Ack(NamedTuple):
    value: bytes
    place: Place
    offset: int | None
    """None when the broker said that it has the message already (DUPLICATE_SEQUENCE_NUMBER), not where."""


@dataclass(slots=True)
class Transaction:
    outcome: Outcome = "open"
    """What its producer was told. Unknown, when the producer was fenced or lost before it heard."""
    commit_begun: int | None = None
    """When the producer first asked to commit."""


class Read(NamedTuple):
    consumer: str
    """One assignment of one consumer: with the next one begins another name."""
    place: Place
    offset: int
    value: bytes
    at: int
    committed_only: bool = True
    group: str | None = None
    generation: int | None = None
    member: str = ""


class Given(NamedTuple):
    """A partition that a member has in an epoch, as the coordinator of its group told it."""

    group: str
    epoch: int
    place: Place
    member: str


class Begin(NamedTuple):
    """A consumer was told to read on from an offset."""

    consumer: str
    place: Place
    offset: int


@dataclass(slots=True)
class Commit:
    """An offset that somebody tried to commit; acknowledged or not."""

    group: str
    place: Place
    offset: int
    begun: int
    acknowledged: int | None = None
    is_reset: bool = False
    transaction: str | None = None


class Found(NamedTuple):
    """A committed offset as the broker told it, None for none; `begun` is when it was asked."""

    group: str
    place: Place
    offset: int | None
    begun: int
    ended: int


class Clock:
    """Gives the events of several processes their places in one order."""

    def __init__(self) -> None:
        self._count = multiprocessing.get_context("forkserver").Value("q", 0)

    def tick(self) -> int:
        with self._count.get_lock():
            count: int = self._count.value + 1
            self._count.value = count
        return count


@dataclass(slots=True)
class History:
    sends: dict[bytes, Send] = field(default_factory=dict)
    acks: list[Ack] = field(default_factory=list)
    weak_acks: list[Ack] = field(default_factory=list)
    """Of producers that do not wait for the replicas: of those nothing is promised, not even the offset."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    given: set[Given] = field(default_factory=set)
    begins: list[Begin] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    stored: Content = field(default_factory=dict)
    """Everything in the logs in the end, also what was aborted."""
    visible: Content = field(default_factory=dict)
    """The same as a reader of committed messages sees it."""
    clock: Clock = field(default_factory=Clock)

    def tick(self) -> int:
        return self.clock.tick()

    def begin_transaction(self, name: str) -> Transaction:
        transaction = self.transactions[name] = Transaction()
        return transaction

    def acknowledge(self, commit: Commit) -> None:
        commit.acknowledged = self.tick()
