"""The description of a share partition for administrators."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from forebay.core.shares.partition.record_window import Window
from forebay.core.shares.partition.state_transitions import ACQUIRED, ARCHIVING, FINISHED

_SPANS_MAX = 200


class Holder(NamedTuple):
    """A member that has acquired records."""

    member_id: str
    records: int
    oldest_lock_ms: int
    """The age of its oldest lock."""


class Delivered(NamedTuple):
    """Neighbouring records that were delivered at least once and are not finished."""

    first_offset: int
    last_offset: int
    state: int
    deliveries: int
    member_id: str
    """Empty unless they are acquired."""
    left_ms: int | None
    """Until the lock or the backoff ends."""


class Description(NamedTuple):
    """Counts are numbers of offsets."""

    start_offset: int
    end_offset: int
    """The last offset of the window; one less than the start when it is empty."""
    window_max: int
    available: int
    """Records that can be acquired now."""
    waiting: int
    """Released records that can be acquired after their backoff."""
    acquired: int
    archiving: int
    """Records that wait for the dead-letter topic."""
    finished: int
    """Finished records behind an unfinished one."""
    holders: list[Holder]
    """The member with the oldest lock comes first."""
    spans: list[Delivered]
    """The first ones, up to a limit."""

    @property
    def window_size(self) -> int:
        return self.end_offset - self.start_offset + 1


def describe(window: Window, window_max: int, now_ms: int) -> Description:
    return Description(
        window.start,
        window.end,
        window_max,
        window.acquirable,
        window.waiting,
        window.totals[ACQUIRED],
        window.totals[ARCHIVING],
        window.finished,
        _holders(window, now_ms),
        _delivered(window, now_ms),
    )


def _delivered(window: Window, now_ms: int) -> list[Delivered]:
    found = (
        Delivered(
            span.first,
            span.last,
            int(span.state),
            span.count,
            span.member if span.state is ACQUIRED else "",
            max(0, span.until_ms - now_ms) if span.until_ms else None,
        )
        for span in window.spans
        if span.state not in FINISHED and (span.count or span.state is ACQUIRED)
    )
    return list(islice(found, _SPANS_MAX))


def _holders(window: Window, now_ms: int) -> list[Holder]:
    records: dict[str, int] = {}
    since_ms: dict[str, int] = {}
    for span in window.spans:
        if span.state is ACQUIRED:
            records[span.member] = records.get(span.member, 0) + span.size
            since_ms[span.member] = min(since_ms.get(span.member, now_ms), span.since_ms)
    return [
        Holder(member, records[member], now_ms - since_ms[member])
        for member in sorted(records, key=lambda member: (since_ms[member], member))
    ]
