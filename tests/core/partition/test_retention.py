"""Retention by size, by time and by log start offset."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.partition.retention import RetentionPlan, RetentionPolicy, plan_retention

NOW = 1_000_000


class Span(NamedTuple):
    next_offset: int
    size: int
    largest_timestamp: int


def spans(*rows: tuple[int, int]) -> list[Span]:
    """Segments of ten messages each, given as (size, age of the newest message)."""
    return [Span((i + 1) * 10, size, NOW - age) for i, (size, age) in enumerate(rows)]


def planned(
    segments: list[Span], policy: RetentionPolicy, *, start: int = 0, high_watermark: int = 10**9
) -> tuple[int, bool]:
    return plan_retention(segments, policy, now_ms=NOW, log_start_offset=start, high_watermark=high_watermark)


FOUR = spans((100, 400), (100, 300), (100, 200), (50, 100))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RetentionPolicy(), (0, False)),
        (RetentionPolicy(retention_ms=300), (1, False)),  # exactly as old as allowed stays
        (RetentionPolicy(retention_ms=299), (2, False)),
        (RetentionPolicy(retention_ms=100), (3, False)),
        (RetentionPolicy(retention_ms=99), (4, True)),
        (RetentionPolicy(retention_ms=0), (4, True)),
        (RetentionPolicy(retention_bytes=350), (0, False)),
        (RetentionPolicy(retention_bytes=251), (0, False)),
        (RetentionPolicy(retention_bytes=250), (1, False)),
        (RetentionPolicy(retention_bytes=60), (2, False)),
        (RetentionPolicy(retention_bytes=0), (4, True)),
        (RetentionPolicy(retention_bytes=250, retention_ms=200), (2, False)),
        (RetentionPolicy(retention_bytes=0, retention_ms=0, deletes=False), (0, False)),
        (RetentionPolicy(retention_ms=99, delay_ms=200), (2, False)),  # counted from when it becomes visible
        (RetentionPolicy(retention_bytes=0, retention_ms=0, delay_ms=250), (2, False)),
    ],
)
def test_size_and_time(policy: RetentionPolicy, expected: tuple[int, bool]) -> None:
    assert planned(FOUR, policy) == expected


@pytest.mark.parametrize(("start", "expected"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3), (40, 3)])
def test_segments_before_the_log_start_go_whatever_the_policy(start: int, expected: int) -> None:
    assert planned(FOUR, RetentionPolicy(deletes=False), start=start) == (expected, False)


def test_what_is_not_committed_stays() -> None:
    policy = RetentionPolicy(retention_ms=0)
    assert planned(FOUR, policy, high_watermark=29) == (2, False)
    assert planned(FOUR, policy, high_watermark=39) == (3, False)
    assert planned(FOUR, policy, high_watermark=40) == (4, True)


def test_an_empty_active_segment_is_kept() -> None:
    policy = RetentionPolicy(retention_ms=0, retention_bytes=0)
    assert planned(spans((100, 5), (0, 5)), policy) == (1, False)
    assert planned(spans((0, 5)), policy) == (0, False)
    assert planned([], policy) == (0, False)


def test_a_young_segment_protects_the_old_ones_behind_it() -> None:
    assert planned(spans((100, 1), (100, 900), (100, 1)), RetentionPolicy(retention_ms=100)) == (0, False)


def test_messages_without_timestamps_do_not_age() -> None:
    assert planned([Span(10, 100, -1), Span(20, 100, -1)], RetentionPolicy(retention_ms=100)) == (0, False)


rows = st.lists(st.tuples(st.integers(0, 100), st.integers(-50, 500)), max_size=8)
limits = st.integers(-1, 500)


@given(
    rows=rows, retention_ms=limits, retention_bytes=limits, start=st.integers(0, 90), mark=st.integers(0, 90)
)
def test_what_must_hold_of_every_plan(
    rows: list[tuple[int, int]], retention_ms: int, retention_bytes: int, start: int, mark: int
) -> None:
    segments = spans(*rows)
    policy = RetentionPolicy(retention_ms=retention_ms, retention_bytes=retention_bytes)
    delete_count, roll_first = plan_retention(
        segments, policy, now_ms=NOW, log_start_offset=start, high_watermark=mark
    )
    gone, kept = segments[:delete_count], segments[delete_count:]
    assert roll_first == (bool(segments) and not kept)
    assert all(segment.next_offset <= mark for segment in gone)
    if retention_ms < 0 and retention_bytes < 0:
        assert all(segment.next_offset <= start for segment in gone)
    for segment in gone:
        young = retention_ms < 0 or segment.largest_timestamp >= NOW - retention_ms
        if young and segment.next_offset > start:
            assert 0 <= retention_bytes <= sum(s.size for s in segments[segments.index(segment) + 1 :])
    # Nothing is left to do after it: the plan is complete.
    after = plan_retention(
        kept or [Span(len(rows) * 10, 0, -1)], policy, now_ms=NOW, log_start_offset=start, high_watermark=mark
    )
    assert after == RetentionPlan(0, False)
