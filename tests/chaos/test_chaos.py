"""Random producers, transactions, groups and pipelines on a broker that is killed again and again.

`make test` runs it for a few seconds with one seed, `make chaos` for as long as CHAOS_SECONDS says,
with a seed of its own each time; CHAOS_SEED repeats one. A seed decides what each client does; when
the broker dies in between is up to the machine.
"""

from __future__ import annotations

import os
import random
import time
from functools import partial

import pytest

from support.brokers.broker_process import BrokerProcess, StartBroker
from support.brokers.replicated import until
from support.chaos.actors import PATIENCE_SECONDS, Stage
from support.chaos.cast import PARTITIONS, TOPICS, TRANSACTORS, breaches_of, enough_was_done, play
from support.chaos.history import History
from support.clients.kafka_clients import create_topic

DOWN_SECONDS_MAX = 0.5
SHORT_STORY_PAUSE_S_MAX = 0.2
"""Producers that rest a little leave the cores to others, who run their tests at the same time."""
NO_PROGRESS_SECONDS = 15.0
CHAOS_SECONDS = float(os.environ.get("CHAOS_SECONDS", "120"))
CHAOS_SEED = os.environ.get("CHAOS_SEED") or f"{random.SystemRandom().randrange(2**32)}"

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


def torment(broker: BrokerProcess, chance: random.Random, seconds: float, history: History) -> None:
    """Kill it, or stop it, and bring it back, for so long."""
    end = time.monotonic() + seconds
    progress = Progress(history)
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.3, 2.5))
        (broker.stop if chance.random() < 0.2 else broker.kill)()
        time.sleep(chance.uniform(0, DOWN_SECONDS_MAX))
        broker.start()
        progress.wait_if_none()


class Progress:
    """On a busy machine a broker may be killed before it has loaded its coordinators, again and again. So one
    on which a producer of transactions has not got on for long lives until it has."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._last: dict[str, tuple[int, float]] = {}

    def wait_if_none(self) -> None:
        for name in TRANSACTORS:
            ended, since = self._last.setdefault(name, (self._ended(name), time.monotonic()))
            if time.monotonic() - since > NO_PROGRESS_SECONDS:
                until(
                    partial(self._has_ended_more, name, ended),
                    f"{name} ends a transaction",
                    seconds=PATIENCE_SECONDS,
                )
            if self._has_ended_more(name, ended):
                self._last[name] = self._ended(name), time.monotonic()

    def _has_ended_more(self, name: str, before: int) -> bool:
        return self._ended(name) > before

    def _ended(self, name: str) -> int:
        transactions = list(self._history.transactions.items())
        own = [each for number, each in transactions if number.startswith(f"{name}.")]
        return sum(each.outcome in ("committed", "aborted") for each in own)


def run_chaos(broker: BrokerProcess, seed: str, seconds: float, **pace: float) -> None:
    for topic in TOPICS:
        create_topic(broker.bootstrap, topic, PARTITIONS)
    stage = Stage(broker.bootstrap, History(), seed, **pace)
    history = play(stage, lambda: torment(broker, random.Random(seed), seconds, stage.history))
    breaches = breaches_of(history)
    shown = "\n".join(breaches[:20])
    assert not breaches, f"seed {seed}: {len(breaches)} breaches\n{shown}\n{broker.log()[-2_000:]}"
    assert "Traceback" not in broker.log(), broker.log()[-4_000:]
    assert enough_was_done(history), "too little was done to prove anything"


def test_nothing_breaks_while_the_broker_is_killed(start_broker: StartBroker) -> None:
    run_chaos(start_broker(*QUICK_GROUPS), "a", 10.0, pause_s_max=SHORT_STORY_PAUSE_S_MAX)


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_nothing_breaks_for_long(start_broker: StartBroker, settings: tuple[str, ...]) -> None:
    run_chaos(start_broker(*QUICK_GROUPS, *settings), CHAOS_SEED, CHAOS_SECONDS)
