"""Trouble that lasts is looked at ever less often, and new trouble soon again."""

from __future__ import annotations

from forebay.core.delays.backoff import Backoff


def test_pauses_grow_while_trouble_lasts() -> None:
    backoff = Backoff()
    assert [backoff.pause_s(0.1) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert backoff.pause_s(59) == 60, "a moment without trouble is no cure"
    assert backoff.pause_s(61) == 1
    assert backoff.pause_s(5) == 1, "it works most of the time"
    assert backoff.pause_s(0.1) == 2
