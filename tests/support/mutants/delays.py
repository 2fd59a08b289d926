"""Mistakes with messages that wait; see brokers.py."""

from __future__ import annotations

import pytest

from forebay.core.partition.topic_due_offset import DueOffset


def show_delayed_messages_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DueOffset, "newest_due_ms", lambda _self, now_ms: now_ms)


def forget_delayed_messages(patch: pytest.MonkeyPatch) -> None:
    """They are looked for once, and no more when they are due."""
    search_in_ms = DueOffset.search_in_ms

    def once(self: DueOffset, high_watermark: int, now_ms: int) -> int | None:
        return None if self.offset else search_in_ms(self, high_watermark, now_ms)

    patch.setattr(DueOffset, "search_in_ms", once)


def hide_messages_until_the_clock_is_as_late_again(patch: pytest.MonkeyPatch) -> None:
    def by_the_clock(self: DueOffset, high_watermark: int, now_ms: int) -> int | None:
        return None if self.offset >= high_watermark else max(self._next_ms - now_ms, 0)

    patch.setattr(DueOffset, "search_in_ms", by_the_clock)
