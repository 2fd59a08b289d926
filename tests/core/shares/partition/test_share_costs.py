"""The work for a request grows with the request, not with its square: counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, SupportsIndex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.shares.partition.acquired_ranges import Demand, LogRead
from forebay.core.shares.partition.dead_letter_headers import overlap
from forebay.core.shares.partition.record_window import Span, Walk, Window
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.share_partition import DeadLetters, SharePartition
from forebay.core.shares.partition.state_transitions import DeadLetterCause
from forebay.wire.messages.share_fetch import AcknowledgementBatch

ACCEPT, RELEASE, REJECT = 1, 2, 3
PER_RECORD_MAX = 20


class CountingSpans(list[Span]):
    """Counts the elements that are moved to make or fill a gap."""

    moved = 0

    def insert(self, index: SupportsIndex, value: Span, /) -> None:
        self.moved += len(self) - int(index)
        super().insert(index, value)

    def __setitem__(self, index: Any, value: Any, /) -> None:
        if isinstance(index, slice):
            self.moved += len(self) - index.start
        super().__setitem__(index, value)


def machine_with(count: int, *, has_dead_letters: bool = False) -> SharePartition:
    """One member holds two batches of that many records."""
    settings = ShareSettings(record_locks_max=2 * count, has_dead_letters=has_dead_letters)
    machine = SharePartition(settings, start_offset=0, leader_epoch=0, state_epoch=0)
    read = LogRead(0, 2 * count - 1, [(0, count - 1), (count, 2 * count - 1)])
    machine.acquire("member", read, Demand(2 * count, 1), now_ms=0)
    machine.window.spans = CountingSpans(machine.window.spans)
    return machine


def moved(machine: SharePartition) -> int:
    spans = machine.window.spans
    assert isinstance(spans, CountingSpans)
    return spans.moved


def each_offset(first: int, count: int, *types: int) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(
            first_offset=first + n, last_offset=first + n, acknowledge_types=[types[n % len(types)]]
        )
        for n in range(count)
    ]


def acknowledge(machine: SharePartition, batches: list[AcknowledgementBatch]) -> None:
    assert machine.acknowledge("member", batches, is_renew_request=False, now_ms=1).error == 0
    assert machine.take_write() is not None
    machine.write_done()


@pytest.mark.parametrize("count", [200, 2_000])
def test_acknowledging_offset_by_offset_in_front_of_many_spans(count: int) -> None:
    machine = machine_with(count)
    acknowledge(machine, each_offset(count, count, RELEASE, ACCEPT))
    before = moved(machine)
    acknowledge(machine, each_offset(0, count, RELEASE, ACCEPT))
    assert len(machine.window.spans) >= 2 * count - 1
    assert moved(machine) - before <= PER_RECORD_MAX * count


@pytest.mark.parametrize("count", [200, 2_000])
def test_dead_letters_are_done_in_one_pass(count: int) -> None:
    machine = machine_with(count, has_dead_letters=True)
    for first in (count, 0):
        acknowledge(machine, each_offset(first, count, RELEASE, REJECT))
    before = moved(machine)
    machine.dead_lettered([(each.first, each.last) for each in machine.dead_letters()])
    assert machine.dead_letters() == []
    assert moved(machine) - before <= PER_RECORD_MAX * count


def test_neighbours_that_are_acknowledged_alike_are_one_span() -> None:
    machine = machine_with(1_000)
    machine.acknowledge("member", each_offset(0, 900, ACCEPT), is_renew_request=False, now_ms=1)
    assert moved(machine) <= 10


def calls_of(function: Callable[[], object]) -> int:
    """How many functions it calls, those of C too."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_asking_for_a_member_that_holds_nothing_looks_at_no_span() -> None:
    machine = machine_with(1_000)
    acknowledge(machine, each_offset(0, 1_000, RELEASE, ACCEPT))
    assert machine.holds("member")
    assert calls_of(lambda: machine.holds("other")) <= PER_RECORD_MAX
    assert calls_of(lambda: machine.release("other", 1)) <= PER_RECORD_MAX


def letters(count: int) -> list[DeadLetters]:
    return [DeadLetters(2 * n, 2 * n, 1, DeadLetterCause.REJECTED) for n in range(count)]


@pytest.mark.parametrize("count", [50, 500])
def test_letters_are_found_among_those_that_wait_in_one_pass(count: int) -> None:
    assert calls_of(lambda: list(overlap(letters(count), letters(count)))) <= PER_RECORD_MAX * count


# -- the same as one by one --------------------------------------------------------------------------------

ranges = st.lists(st.integers(0, 199), max_size=40, unique=True).map(
    lambda ends: list(zip(*[iter(sorted(ends)[: len(ends) // 2 * 2])] * 2, strict=True))
)


def window_of(cuts: Iterable[int]) -> Window:
    window = Window(0)
    window.append(Span(0, 199))
    for offset in cuts:
        window.cut(offset, offset)
    return window


def shape(spans: Iterable[Span]) -> Iterator[tuple[int, int]]:
    return ((span.first, span.last) for span in spans)


@given(cuts=st.sets(st.integers(0, 199), max_size=60), wanted=ranges)
def test_many_ranges_are_cut_and_found_as_one_by_one(cuts: set[int], wanted: list[tuple[int, int]]) -> None:
    together, one_by_one = window_of(cuts), window_of(cuts)
    walk = Walk(together)
    for first, last in wanted:
        assert walk.between(first, last) == together.between(first, last)
    found = [list(shape(spans)) for spans in together.cut_each(wanted)]
    assert found == [list(shape(one_by_one.cut(first, last))) for first, last in wanted]
    assert list(shape(together.spans)) == list(shape(one_by_one.spans))
    together.join_each(wanted, written=0)
    assert all(len(together.between(first, last)) == 1 for first, last in wanted)
    assert sum(span.size for span in together.spans) == 200
