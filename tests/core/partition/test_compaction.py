"""Which logs are compacted, how far, and in which pieces."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.partition.compaction.offset_map import ENTRY_BYTES, OffsetMap
from forebay.core.partition.compaction.plan import (
    CompactionPlan,
    CompactionPolicy,
    group_segments,
    plan_compaction,
)

NOW = 1_000_000


class Span(NamedTuple):
    base_offset: int
    next_offset: int
    size: int = 100
    largest_timestamp: int = 0


LOG = [Span(0, 10), Span(10, 20), Span(20, 30), Span(30, 35)]


def plan(
    segments: list[Span] = LOG,
    *,
    first_dirty: int = 0,
    stable: int = 35,
    start: int = 0,
    first_timestamp: int | None = None,
    ratio: float = 0.5,
    min_lag_ms: int = 0,
    max_lag_ms: int = 2**63 - 1,
) -> CompactionPlan | None:
    return plan_compaction(
        segments,
        CompactionPolicy(min_dirty_ratio=ratio, min_lag_ms=min_lag_ms, max_lag_ms=max_lag_ms),
        now_ms=NOW,
        log_start_offset=start,
        first_dirty_offset=first_dirty,
        last_stable_offset=stable,
        first_dirty_timestamp=first_timestamp,
    )


def test_everything_but_the_active_segment() -> None:
    assert plan() == CompactionPlan(0, 30, 1.0, False)


def test_only_whole_segments_below_the_last_stable_offset() -> None:
    found = plan(stable=29)
    assert found is not None
    assert found.end_offset == 20
    assert plan(stable=9) is None


def test_the_ratio_of_what_is_dirty() -> None:
    found = plan(first_dirty=10)
    assert found is not None
    assert found.dirty_ratio == pytest.approx(2 / 3)
    assert plan(first_dirty=20) is None
    assert plan(first_dirty=20, ratio=0.3) is not None
    assert plan(first_dirty=30, ratio=0) is None


def test_what_is_young_stays() -> None:
    segments = [Span(0, 10, largest_timestamp=NOW - 50), Span(10, 20, largest_timestamp=NOW - 5), *LOG[2:]]
    assert plan(segments, min_lag_ms=10) == CompactionPlan(0, 10, 1.0, False)
    assert plan(segments, min_lag_ms=100) is None
    assert plan(segments, min_lag_ms=5) == CompactionPlan(0, 30, 1.0, False)
    # What is clean already does not hold anything up, however young.
    found = plan(segments, min_lag_ms=10, first_dirty=20, ratio=0)
    assert found is not None
    assert found.end_offset == 30


def test_what_has_waited_too_long_does_not_wait_for_the_ratio() -> None:
    options = {"first_dirty": 20, "max_lag_ms": 1000}
    assert plan(first_timestamp=NOW - 1000, **options) is None  # type: ignore[arg-type]
    found = plan(first_timestamp=NOW - 1001, **options)  # type: ignore[arg-type]
    assert found is not None
    assert found.overdue
    dirtier = plan()
    assert dirtier is not None
    assert found.urgency > dirtier.urgency


def test_a_checkpoint_that_does_not_fit_the_log() -> None:
    found = plan(first_dirty=5, start=12)
    assert found is not None
    assert found.first_dirty_offset == 12
    found = plan(first_dirty=99)
    assert found is not None
    assert found.first_dirty_offset == 0


def test_a_log_of_one_segment_has_nothing_to_clean() -> None:
    assert plan([Span(0, 50)]) is None


class Piece(NamedTuple):
    base_offset: int
    next_base: int
    size: int
    index_bytes: int = 0


def sizes(groups: list[list[Piece]]) -> list[list[int]]:
    return [[piece.size for piece in group] for group in groups]


def pieces(*given_sizes: int) -> list[Piece]:
    return [Piece(number * 10, number * 10 + 10, size) for number, size in enumerate(given_sizes)]


def test_neighbours_that_fit_become_one() -> None:
    assert sizes(group_segments(pieces(40, 50, 20, 90, 150, 1), segment_bytes=100, index_bytes=99)) == [
        [40, 50],
        [20],
        [90],
        [150],
        [1],
    ]


def test_indexes_and_offsets_have_to_fit_too() -> None:
    wide = [Piece(0, 2**31 - 1, 1), Piece(2**31 - 1, 2**31, 1), Piece(2**31, 2**31 + 1, 1)]
    assert sizes(group_segments(wide, segment_bytes=100, index_bytes=100)) == [[1, 1], [1]]
    indexed = [piece._replace(index_bytes=60) for piece in pieces(1, 1)]
    assert sizes(group_segments(indexed, segment_bytes=100, index_bytes=100)) == [[1], [1]]


@given(st.lists(st.integers(0, 120), max_size=20))
def test_groups_are_the_segments_in_order(given_sizes: list[int]) -> None:
    segments = pieces(*given_sizes)
    groups = group_segments(segments, segment_bytes=100, index_bytes=100)
    assert [piece for group in groups for piece in group] == segments
    assert all(len(group) == 1 or sum(piece.size for piece in group) <= 100 for group in groups)


@given(st.lists(st.binary(max_size=40), max_size=60), st.integers(1, 20))
def test_the_offset_map_is_a_dict_up_to_its_bound(keys: list[bytes], keys_max: int) -> None:
    offsets = OffsetMap(100, keys_max * ENTRY_BYTES)
    model: dict[bytes, int] = {}
    for offset, key in enumerate(keys, 100):
        if not offsets.add(key, offset):
            assert len(model) == keys_max
            assert key not in model
            break
        model[key] = offset
        assert offsets.end_offset == offset + 1
    assert len(offsets) == len(model) <= keys_max
    for key in keys:
        assert offsets.latest(key) == model.get(key, -1)
