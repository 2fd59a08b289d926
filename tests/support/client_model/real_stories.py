"""The same programs with the real client on a real broker: calls raise and waits are cancelled at random.

The seed decides which: what comes in between is up to the real threads and sockets.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import NamedTuple

import pytest

from forebay.client import Admin, Delivery, Producer, processing, transactions
from support.chaos.checker import check, transformed_once
from support.chaos.history import Send
from support.chaos.witness import witness
from support.client_model.async_programs import AsyncCopier
from support.client_model.faults import Cancels, Faults, at_random, numbers_at_random
from support.client_model.programs import Copier, Setting
from support.client_model.recorder import Recorder
from support.client_model.stories import origin
from support.clients.hooked_kafka import hook_clients

PARTITIONS = 2
QUICK = {"heartbeat.interval.ms": 100}


class Survived(NamedTuple):
    struck: list[str]
    """The faults that were met."""
    breaches: list[str]


class Copying:
    """Messages of one topic, to be copied to another."""

    def __init__(self, servers: str, name: str, delivery: Delivery) -> None:
        self._servers, self._source, self._sink = servers, f"{name}-source", f"{name}-sink"
        self._admin = Admin(servers)
        self._admin.create_topic(self._source, partitions=PARTITIONS)
        self._admin.create_topic(self._sink, partitions=1)
        self._fed = 0
        self._recorder = Recorder(delivery)
        self._setting = Setting(
            servers=servers,
            source=self._source,
            sink=self._sink,
            recorder=self._recorder,
            finished=self._is_finished,
            settings=QUICK,
        )

    def feed(self, count: int) -> None:
        """The program does not send these, so the history is told of them here."""
        with Producer(self._servers, delivery="at-most-once", acks=1, profile="latency") as producer:
            self._fed += count
            for number in range(count):
                place, value = (self._source, number % PARTITIONS), b"value-%d" % number
                producer.send(*place[:1], value, partition=place[1])
                self._recorder.history.sends[value] = Send("feeder", number, place, exactly_once=False)

    def _is_finished(self) -> bool:
        if not self._recorder.silent:
            return False
        return sum(self._admin.committed(self._source).values()) == self._fed

    def survive(self, seed: str, count: int, gap_max: int, *, is_async: bool) -> Survived:
        chance = random.Random(seed)
        faults = Faults(at_random(chance, count, gap_max), self._recorder.around, ["Producer.poll"])
        cancels = Cancels(numbers_at_random(chance, count if is_async else 0, gap_max))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transactions, "PAUSE_SECONDS", 0.0)
            patch.setattr(processing, "PAUSE_SECONDS", 0.0)
            hook_clients(patch, faults.around)
            if is_async:
                asyncio.run(cancels.run(AsyncCopier(self._setting).run_async()))
            else:
                Copier(self._setting).run()
        return Survived(faults.struck, self._breaches())

    def _breaches(self) -> list[str]:
        history, delivery = self._recorder.history, self._recorder.delivery
        self._recorder.finish()
        places = [(self._source, number) for number in range(PARTITIONS)]
        witness(self._servers, [*places, (self._sink, 0)], history)
        copied = transformed_once(history, self._source, self._sink, origin)
        if delivery == "at-least-once":
            copied = [each for each in copied if each.startswith("nothing")]
        elif delivery == "at-most-once":
            counts = Counter(read.value for read in history.reads)
            copied = [f"{value!r} was read {count} times" for value, count in counts.items() if count > 1]
        return check(history) + copied
