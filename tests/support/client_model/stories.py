"""One run of one program on the broker in memory, and what the rules say to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from forebay.client import Delivery, processing, transactions
from support.chaos.checker import check, transformed_once
from support.chaos.history import History, Place, Send
from support.client_model.async_programs import AsyncCopier, AsyncPump, AsyncReader, AsyncSender
from support.client_model.faults import Cancels, Fault, Faults
from support.client_model.in_memory_kafka import Kafka, clients_of
from support.client_model.programs import Copier, Pump, Reader, Sender, Setting
from support.client_model.recorder import Recorder
from support.clients.hooked_kafka import hook_clients

SOURCE, SINK = "source", "sink"
VALUES = [b"value-%d" % number for number in range(5)]
PROGRAMS: dict[str, Any] = {
    "copy": Copier,
    "copy async": AsyncCopier,
    "pump": Pump,
    "pump async": AsyncPump,
    "read": Reader,
    "read async": AsyncReader,
    "send": Sender,
    "send async": AsyncSender,
}
DELIVERIES: dict[str, list[Delivery]] = {
    "copy": ["at-most-once", "at-least-once", "exactly-once"],
    "pump": ["exactly-once"],
    "read": ["at-most-once", "at-least-once"],
    "send": ["at-least-once", "exactly-once"],
}


@dataclass(frozen=True, kw_only=True)
class Story:
    """Everything that is decided beforehand."""

    program: str
    delivery: Delivery
    faults: Mapping[int, Fault] = field(default_factory=dict)
    cancels: Iterable[int] = ()
    rebalances: Iterable[int] = ()
    losses: Iterable[int] = ()

    @property
    def kind(self) -> str:
        return self.program.partition(" ")[0]

    @property
    def is_async(self) -> bool:
        return self.program.endswith("async")

    def __str__(self) -> str:
        parts = [self.program, self.delivery]
        parts += [f"call {number} {fault.name}" for number, fault in self.faults.items()]
        for name in ("cancels", "rebalances", "losses"):
            parts += [f"{name} {number}" for number in getattr(self, name)]
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Told:
    """How it went."""

    calls: list[str]
    waits: int
    fetches: int
    deliveries: int
    breaches: list[str]


def tell(story: Story) -> Told:
    kafka = Kafka({SOURCE: 2, SINK: 1}, story.rebalances, story.losses)
    kafka.feed(SOURCE, VALUES)
    recorder = Recorder(story.delivery)
    setting = Setting(
        servers="nowhere",
        source=SOURCE,
        sink=SINK,
        recorder=recorder,
        finished=lambda: kafka.is_silent,
    )
    # Reports come by a thread that polls all the time: its calls have no number.
    faults = Faults(story.faults, recorder.around, ["Producer.poll"] if story.is_async else [])
    cancels = Cancels(story.cancels)
    program = PROGRAMS[story.program](setting)
    judge = Judge(story, kafka, recorder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transactions, "PAUSE_SECONDS", 0.0)
        patch.setattr(processing, "PAUSE_SECONDS", 0.0)
        hook_clients(patch, faults.around, *clients_of(kafka))
        if story.is_async:
            asyncio.run(cancels.run(program.run_async()))
        else:
            program.run()
    return Told(
        calls=faults.calls,
        waits=cancels.waits,
        fetches=kafka.fetches,
        deliveries=kafka.deliveries,
        breaches=judge.breaches() + program.breaches(recorder.history.visible),
    )


class Judge:
    """The rules of the checker in the end, and of the delivery mode whenever an offset is committed.

    At that moment the program could be killed: what its mode promises has to hold without any further step.
    """

    def __init__(self, story: Story, kafka: Kafka, recorder: Recorder) -> None:
        self._story, self._kafka, self._recorder = story, kafka, recorder
        self._early: list[str] = []
        kafka.on_commit = self._committed

    def _committed(self, place: Place, offset: int) -> None:
        if self._story.delivery == "at-most-once":
            return
        passed = {entry.value for entry in self._kafka.logs[place][:offset] if entry.value is not None}
        missing = passed - self._done()
        if missing:
            self._early.append(
                f"{place[0]}-{place[1]}@{offset} was committed before {sorted(missing)} was done"
            )

    def _done(self) -> set[bytes | None]:
        if self._story.kind == "read":
            return {read.value for read in self._recorder.history.reads}
        return set(map(origin, self._kafka.content(committed_only=True)[SINK, 0].values()))

    def breaches(self) -> list[str]:
        history = self._recorder.history
        for ledger in self._kafka.ledgers.values():
            if ledger.outcome == "open":
                self._kafka.end(ledger, "aborted")  # by its timeout
        self._recorder.finish()
        history.stored = self._kafka.content(committed_only=False)
        history.visible = self._kafka.content(committed_only=True)
        _know_source(history)
        return self._early + check(history) + self._mode_breaches(history)

    def _mode_breaches(self, history: History) -> list[str]:
        if self._story.kind == "send":
            return []
        if self._story.delivery == "at-most-once":
            counts = Counter(read.value for read in history.reads)
            return [f"{value!r} was read {count} times" for value, count in counts.items() if count > 1]
        if self._story.kind == "read":
            return []
        found = transformed_once(history, SOURCE, SINK, origin)
        return (
            found if self._story.delivery == "exactly-once" else [each for each in found if "nothing" in each]
        )


def origin(copy: bytes) -> bytes:
    return copy.partition(b"|")[0]


def _know_source(history: History) -> None:
    """The messages that the program was fed with were sent by nobody in it."""
    for place, values in history.stored.items():
        if place[0] == SOURCE:
            for offset, value in values.items():
                history.sends[value] = Send("feeder", offset, place, exactly_once=False)
