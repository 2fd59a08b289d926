"""The model of views."""

from __future__ import annotations

import pytest

from forebay.sim.models.views import Views
from forebay.sim.world.places import SHOWN_EVERY

AT, SOURCE = ("shown-plain", 0), ("plain", 0)
CONTENT = {SOURCE: {offset: b"%d" % offset for offset in range(10)}}
SHOWN = [(offset, b"%d" % offset) for offset in range(0, 10, SHOWN_EVERY)]


@pytest.fixture
def breaches() -> list[str]:
    return []


@pytest.fixture
def model(breaches: list[str]) -> Views:
    return Views(breaches.append)


def test_a_view_that_is_its_source_filtered_is_fine_as_far_as_it_was_read(
    model: Views, breaches: list[str]
) -> None:
    model.read("reader", AT, SHOWN[:2], 5, committed=False)
    model.finish(CONTENT, {})
    model.read("reader", AT, SHOWN[2:], 10, committed=False)
    model.finish(CONTENT, {})
    assert not breaches


def test_a_message_that_was_passed_over_is_a_breach(model: Views, breaches: list[str]) -> None:
    model.read("reader", AT, [SHOWN[0], SHOWN[2]], 10, committed=False)
    model.finish(CONTENT, {})
    assert len(breaches) == 2


def test_a_message_that_does_not_match_is_a_breach(model: Views, breaches: list[str]) -> None:
    model.read("reader", AT, [(1, b"1")], 2, committed=False)
    assert len(breaches) == 1


def test_committed_readers_are_compared_with_what_is_visible(model: Views, breaches: list[str]) -> None:
    model.read("reader", AT, SHOWN[1:], 10, committed=True)
    model.finish(CONTENT, {SOURCE: {offset: b"%d" % offset for offset in range(1, 10)}})
    assert not breaches
