"""The model of a topic whose messages wait, and the clocks that it goes by."""

from __future__ import annotations

import pytest

from forebay.sim.models.delays import TopicDelay
from forebay.sim.world.clock import SimClock
from forebay.sim.world.places import LATER_DELAY_MS
from forebay.sim.world.virtual_time import World
from forebay.wire.records import Record

SENT_MS = 1_700_000_000_000
DUE_MS = SENT_MS + LATER_DELAY_MS


@pytest.fixture
def breaches() -> list[str]:
    return []


@pytest.fixture
def model(breaches: list[str]) -> TopicDelay:
    return TopicDelay(breaches.append)


def record(offset: int) -> Record:
    return Record(offset, SENT_MS, None, b"later")


@pytest.mark.parametrize(("clock_ms", "is_early"), [(DUE_MS - 1, True), (DUE_MS, False), (DUE_MS + 1, False)])
def test_a_message_that_is_seen_early_is_a_breach(
    model: TopicDelay, breaches: list[str], clock_ms: int, is_early: bool
) -> None:
    model.read("reader", [record(0)], 1, clock_ms)
    assert bool(breaches) == is_early


def test_a_message_that_the_reader_has_passed_without_seeing_it_is_a_breach(
    model: TopicDelay, breaches: list[str]
) -> None:
    model.read("reader", [record(0), record(2)], 4, DUE_MS)
    model.finish([0, 2, 5])
    assert not breaches
    model.finish([0, 1, 2, 5])
    assert len(breaches) == 1


def test_the_reader_is_behind_until_it_has_passed_all_that_is_known(model: TopicDelay) -> None:
    assert model.has_passed([])
    assert not model.has_passed([0])
    model.read("reader", [record(0)], 2, DUE_MS)
    assert model.has_passed([0, 1])
    assert not model.has_passed([0, 1, 2])


def test_a_clock_that_is_set_back_has_shown_what_it_has_shown() -> None:
    clock = SimClock(World(7), 5_000)
    shown = clock.now_ms()
    clock.set(-5_000)
    assert clock.now_ms() == shown - 10_000
    assert clock.latest_ms() == shown
    clock.set(8_000)
    assert clock.latest_ms() == clock.now_ms() == shown + 3_000
