"""The changes of a share partition since the last write to the share coordinator.

At most one write is in flight. All changes meanwhile go into the next one. Each write has a number: `newest`
is that of the write which holds (or will hold) the newest change, `written` that of the last one that is
done. A request that made a change waits until `written` has reached the value that `newest` had then. A
change that no request waits for need not begin a write: the next one takes it along (`is_due`).

A write holds ranges, not offsets: those marked since the write before, sorted and joined, from the write's
own start offset on. The persisted state of a record only rises, first by count and then by state. The share
coordinator merges by the same order, so a write that arrives twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.core.shares.partition.record_window import Span, Walk, Window
from forebay.core.shares.partition.state_transitions import ACQUIRED, AVAILABLE, RecordState


class StateRange(NamedTuple):
    """Offsets with one persisted state."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class StateWrite(NamedTuple):
    """The contents of a WriteShareGroupState request."""

    number: int
    start_offset: int
    ranges: list[StateRange]
    """Only changed ranges; sorted, disjoint, none below the start offset."""
    delivery_complete_count: int
    """Finished records at or above the start offset."""


class Writes:
    def __init__(self, start_offset: int) -> None:
        self.newest = 0
        self.written = 0
        self._taken = 0
        self._start_offset = start_offset
        """The start offset in the newest write."""
        self._changed: list[tuple[int, int]] = []
        """Marked ranges; at most one per offset of the window, see `mark`."""
        self._in_flight: StateWrite | None = None
        self.is_due = False
        """True if the next write holds a change that should be persisted at once."""

    def note_start(self, start_offset: int) -> None:
        """A start offset that is in no write yet is a change."""
        if start_offset > self._start_offset:
            self._open()
            self.is_due = True

    def mark(self, span: Span, *, can_wait: bool = False) -> None:
        """Add this span, in its state at that time, to the next write. It is due now, unless it
        `can_wait`."""
        self._open()
        self.is_due = self.is_due or not can_wait
        if span.write != self.newest:  # else the range in which it was marked covers it
            span.write = self.newest
            self._changed.append((span.first, span.last))

    def next(self) -> int:
        """The number of the next write, which is due now. Without any change it is empty, and still proves
        that no other leader has read the state before it."""
        self._open()
        self.is_due = True
        return self.newest

    def _open(self) -> None:
        if self.newest == self._taken:
            self.newest += 1

    def take(self, window: Window) -> StateWrite | None:
        """The next write, None while one is in flight and when there is nothing to write."""
        if self._in_flight is not None or self.newest == self._taken:
            return None
        start = window.first_unfinished()
        ranges = list(_ranges(window, self._changed, start))
        complete = window.finished - (start - window.start)
        self._taken = self.newest
        self._start_offset = start
        self._changed = []
        self.is_due = False
        self._in_flight = StateWrite(self._taken, start, ranges, complete)
        return self._in_flight

    def done(self) -> StateWrite:
        """Note that the write in flight is persisted."""
        assert self._in_flight is not None, "no write is in flight"
        write, self._in_flight = self._in_flight, None
        self.written = write.number
        return write


def _ranges(window: Window, changed: list[tuple[int, int]], start: int) -> Iterator[StateRange]:
    """Yields the states of the marked ranges in the window, from `start` on."""
    open_range: StateRange | None = None
    position = start
    walk = Walk(window)
    for marked_first, last in sorted(changed):
        first = max(marked_first, position)
        if first > last:
            continue  # below the start, or covered by the range before
        position = last + 1
        for span in walk.between(first, last):
            state = AVAILABLE if span.state is ACQUIRED else span.state
            piece = StateRange(max(span.first, first), min(span.last, last), state, span.count)
            if open_range is None:
                open_range = piece
            elif open_range.last + 1 == piece.first and open_range[2:] == piece[2:]:
                open_range = open_range._replace(last=piece.last)
            else:
                yield open_range
                open_range = piece
    if open_range is not None:
        yield open_range
