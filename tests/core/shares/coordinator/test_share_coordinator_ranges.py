"""Merging ranges is held against a dictionary with one entry per offset."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.shares.coordinator.ranges import NO_OFFSET, Ranges, merge
from forebay.core.shares.partition.state_transitions import RecordState
from forebay.core.shares.partition.writes import StateRange

STATES = sorted(frozenset(RecordState) - {RecordState.ACQUIRED})

OFFSETS = st.integers(0, 12)
PIECES = st.builds(
    lambda a, b, state, count: StateRange(min(a, b), max(a, b), state, count),
    OFFSETS,
    OFFSETS,
    st.sampled_from(STATES),
    st.integers(0, 3),
)
ACCOUNTS = st.lists(PIECES, max_size=6)
STARTS = st.integers(NO_OFFSET, 14)

Model = dict[int, tuple[int, int]]
"""The (delivery count, state) of each offset."""


def per_offset(*accounts: list[StateRange] | Ranges, start: int = NO_OFFSET) -> Model:
    model: Model = {}
    for account in accounts:
        for first, last, state, count in account:
            for offset in range(max(first, start), last + 1):
                model[offset] = max(model.get(offset, (-1, -1)), (count, state))
    return model


def check_form(ranges: Ranges, start: int = NO_OFFSET) -> None:
    assert all(each.first <= each.last for each in ranges)
    assert not ranges or ranges[0].first >= start
    for one, next_one in pairwise(ranges):
        assert one.last < next_one.first
        assert one.last + 1 < next_one.first or one[2:] != next_one[2:], "alike neighbours are joined"


@given(ACCOUNTS, ACCOUNTS, STARTS)
def test_each_offset_has_the_higher_count_then_the_higher_state(
    older: list[StateRange], newer: list[StateRange], start: int
) -> None:
    ranges = merge((), older, NO_OFFSET)
    check_form(ranges)
    assert per_offset(ranges) == per_offset(older)

    merged = merge(ranges, newer, start)
    check_form(merged, start)
    assert per_offset(merged) == per_offset(older, newer, start=start)


@given(ACCOUNTS, ACCOUNTS, ACCOUNTS, STARTS)
def test_order_and_repetition_do_not_matter(
    one: list[StateRange], two: list[StateRange], three: list[StateRange], start: int
) -> None:
    forward = merge(merge(merge((), one, NO_OFFSET), two, start), three, start)
    backward = merge(merge(merge((), three, NO_OFFSET), two, NO_OFFSET), one, start)
    assert forward == backward
    assert merge(forward, two, start) == forward
    assert merge((), [*three, *one, *two], start) == forward


def test_all_pairs_of_short_ranges() -> None:
    ranks = [(RecordState.AVAILABLE, 1), (RecordState.ACKNOWLEDGED, 1), (RecordState.AVAILABLE, 2)]
    spans = [(first, last) for first in range(4) for last in range(first, 4)]
    pieces = [StateRange(*span, *rank) for span, rank in product(spans, ranks)]
    for old, new, start in product(pieces, pieces, range(-1, 5)):
        merged = merge((old,), [new], start)
        check_form(merged, start)
        assert per_offset(merged) == per_offset([old], [new], start=start), (old, new, start)


def test_ranges_far_from_a_change_are_taken_over() -> None:
    ranges = tuple(StateRange(n * 10, n * 10 + 4, RecordState.ACKNOWLEDGED, 1) for n in range(1000))
    merged = merge(ranges, [StateRange(5005, 5006, RecordState.ACKNOWLEDGED, 1)], NO_OFFSET)
    assert merged[500] == StateRange(5000, 5006, RecordState.ACKNOWLEDGED, 1)
    assert all(one is other for one, other in zip(merged, ranges, strict=True) if one.first != 5000)


@pytest.mark.parametrize("seed", range(3))
def test_long_histories_of_small_writes(seed: int) -> None:
    """As a leader writes them: thousands of small accounts over a moving window."""
    random = Random(seed)
    ranges: Ranges = ()
    model: Model = {}
    start = 0
    for _ in range(800):
        start += random.randrange(3)
        pieces = []
        for _ in range(random.randrange(4)):
            first = start + random.randrange(-3, 200)
            length = random.choice((0, 0, 1, 20))
            pieces.append(StateRange(first, first + length, random.choice(STATES), random.randrange(4)))
        ranges = merge(ranges, pieces, start)
        for offset, rank in per_offset(pieces, start=start).items():
            model[offset] = max(model.get(offset, (-1, -1)), rank)
        model = {offset: rank for offset, rank in model.items() if offset >= start}
    check_form(ranges, start)
    assert per_offset(ranges) == model
