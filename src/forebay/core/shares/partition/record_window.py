"""The window of a share partition: the state of every offset from the start offset to the end offset.

The window is a sorted list of *spans*. A span is a range of offsets with one state, one delivery count and
one holder. Spans touch: each offset of the window is in exactly one. A span is split only when a part of it
changes, and neighbours that have become equal are joined again. So a batch that is acquired and accepted
whole is one span all the time, and the worst case is one span per offset, bounded by the size of the window.

Offsets below the window are finished. An offset that was never acquired, although later ones were, is in the
window as AVAILABLE with a count of 0.

A change is *pending* until the write that persists it is done; `Span.write` is the number of that write. The
start offset passes over finished spans whose write is done. Only neighbours that wait for the same write, or
for none, are joined.

Requests name many ranges at once, in rising order. They are applied in one pass over the spans between the
first and the last (`cut_each`, `join_each`). A lookup continues from the one before (`Walk`). A search and an
insertion for each range would take quadratic time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from forebay.core.shares.partition.state_transitions import (
    ACQUIRED,
    AVAILABLE,
    FINISHED,
    DeadLetterCause,
    RecordState,
)

_first_of = attrgetter("first")

_SPANS_PER_RANGE = 64
"""Ranges with more spans than this between them, on average, are searched one by one."""

Range = tuple[int, int]
"""First and last offset."""


class Span:
    """A range of offsets that have everything in common."""

    __slots__ = (
        "acquired_together",
        "cause",
        "count",
        "failing_since_ms",
        "first",
        "hold",
        "is_sent",
        "last",
        "member",
        "since_ms",
        "state",
        "until_ms",
        "write",
    )

    def __init__(self, first: int, last: int, state: RecordState = AVAILABLE, count: int = 0) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """The number of deliveries to members."""
        self.member = ""
        """The member that holds it, while it is ACQUIRED."""
        self.hold = 0
        """Number of the acquisition, while it is ACQUIRED."""
        self.is_sent = False
        """True once it was sent to the member, while it is ACQUIRED."""
        self.since_ms = 0
        """When it was acquired, or sent."""
        self.until_ms = 0
        """ACQUIRED: the end of the lock, or of the wait before it is sent. AVAILABLE: the end of the backoff,
        0 if it may be acquired."""
        self.failing_since_ms: int | None = None
        """The time since which the disk does not return it intact."""
        self.acquired_together = 0
        """The number of offsets acquired together in the last delivery that was not throttled."""
        self.write = 0
        """Number of the write that persists its newest change."""
        self.cause: DeadLetterCause | None = None
        """The cause of an ARCHIVING span."""

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_acquirable(self) -> bool:
        return self.state is AVAILABLE and not self.until_ms

    def split(self, offset: int) -> Span:
        """End before `offset`, and return the rest."""
        rest = Span(offset, self.last, self.state, self.count)
        rest.member = self.member
        rest.hold = self.hold
        rest.is_sent = self.is_sent
        rest.failing_since_ms = self.failing_since_ms
        rest.acquired_together = self.acquired_together
        rest.since_ms = self.since_ms
        rest.until_ms = self.until_ms
        rest.write = self.write
        rest.cause = self.cause
        self.last = offset - 1
        return rest

    def equals(self, other: Span, written: int) -> bool:
        """True if the two may be joined. Acquired ranges stay as the member got them."""
        return (
            self.state is other.state
            and self.state is not ACQUIRED
            and self.count == other.count
            and self.until_ms == other.until_ms
            and self.failing_since_ms == other.failing_since_ms
            and self.cause is other.cause
            and (self.write == other.write or (self.write <= written and other.write <= written))
        )


class Window:
    def __init__(self, start: int) -> None:
        self.start = start
        """First offset that is not finished and persisted."""
        self.spans: list[Span] = []
        self.totals = [0] * len(RecordState)
        """Offsets in the window, by state."""
        self.waiting = 0
        """The number of AVAILABLE offsets whose backoff is not over."""
        self.held: dict[str, int] = {}
        """The number of ACQUIRED offsets of each member."""
        self._none_acquirable_below = start
        self._finished_below = start

    @property
    def end(self) -> int:
        """The last offset of the window; one less than the start when it is empty."""
        return self.spans[-1].last if self.spans else self.start - 1

    @property
    def size(self) -> int:
        return self.end - self.start + 1

    @property
    def finished(self) -> int:
        return sum(self.totals[state] for state in FINISHED)

    @property
    def acquirable(self) -> int:
        return self.totals[AVAILABLE] - self.waiting

    # Looking things up

    def index(self, offset: int) -> int:
        """The index of the span with this offset, which must be in the window."""
        spans = self.spans
        if spans and spans[-1].first <= offset:
            return len(spans) - 1
        return bisect_right(spans, offset, key=_first_of) - 1

    def between(self, first: int, last: int) -> list[Span]:
        """The spans that have an offset of this range, which must be in the window."""
        low = self.index(first)
        if self.spans[low].last >= last:
            return [self.spans[low]]
        return self.spans[low : self.index(last) + 1]

    def first_acquirable(self) -> int | None:
        if not self.acquirable:
            return None
        spans = self.spans
        i = max(self.index(self._none_acquirable_below), 0)
        while not spans[i].is_acquirable:
            i += 1
        self._none_acquirable_below = spans[i].first
        return self._none_acquirable_below

    def first_unfinished(self) -> int:
        """The start offset after all changes are persisted."""
        spans = self.spans
        if not spans or spans[0].state not in FINISHED:
            return self.start
        for i in range(max(self.index(self._finished_below), 0), len(spans)):
            if spans[i].state not in FINISHED:
                self._finished_below = spans[i].first
                break
        else:
            self._finished_below = spans[-1].last + 1
        return self._finished_below

    def room(self, limit: int) -> int:
        """The number of offsets that the window may still take.

        Finished offsets at its front make room at once. Otherwise a request that acknowledges and fetches
        would have to wait for its own write before it could acquire. With changes that are not written yet,
        the window has at most twice the limit.
        """
        after = self.spans[-1].last + 1 if self.spans else self.start
        return min(limit - after + self.first_unfinished(), 2 * limit - after + self.start)

    # Changes

    def cut(self, first: int, last: int) -> list[Span]:
        """The spans of exactly this range, which must be in the window; those at its ends are split."""
        spans = self.spans
        low = self.index(first)
        if spans[low].first < first:
            spans.insert(low + 1, spans[low].split(first))
            low += 1
        if spans[low].last == last:
            return [spans[low]]
        high = self.index(last)
        if spans[high].last > last:
            spans.insert(high + 1, spans[high].split(last + 1))
        return spans[low : high + 1]

    def cut_each(self, ranges: Sequence[Range]) -> list[list[Span]]:
        """Like `cut` for several ranges, sorted by offset."""
        if len(ranges) < 2 or not self._is_close(ranges):
            return [self.cut(first, last) for first, last in ranges]
        low, high = self.index(ranges[0][0]), self.index(ranges[-1][1]) + 1
        rest = self.spans[low:high]
        rest.reverse()
        passed: list[Span] = []
        found: list[list[Span]] = []
        for first, last in ranges:
            while rest[-1].last < first:
                passed.append(rest.pop())
            if rest[-1].first < first:
                span = rest.pop()
                rest.append(span.split(first))
                passed.append(span)
            begin = len(passed)
            while rest and rest[-1].first <= last:
                span = rest.pop()
                if span.last > last:
                    rest.append(span.split(last + 1))
                passed.append(span)
            found.append(passed[begin:])
        rest.reverse()
        self.spans[low:high] = passed + rest
        return found

    def _is_close(self, ranges: Sequence[Range]) -> bool:
        return self.index(ranges[-1][1]) - self.index(ranges[0][0]) <= _SPANS_PER_RANGE * len(ranges)

    def change(self, span: Span, state: RecordState, *, until_ms: int = 0, member: str = "") -> None:
        """The only place where a span's state changes; the meaning of `until_ms` depends on the state."""
        size = span.last - span.first + 1
        self._uncount(span, size)
        span.state = state
        span.until_ms = until_ms
        span.member = member
        self._count(span, size)

    def append(self, span: Span) -> None:
        """Extend the window; the span must begin after its end."""
        assert span.first == self.end + 1, "the spans of a window touch"
        self.spans.append(span)
        self._count(span, span.size)

    def truncate(self, end: int) -> None:
        """Shorten the window, so that it ends with this offset."""
        if end >= self.end:
            return
        i = self.index(end + 1)
        if self.spans[i].first <= end:
            self.cut(end + 1, self.spans[i].last)
            i += 1
        for span in self.spans[i:]:
            self._uncount(span, span.size)
        del self.spans[i:]

    def advance(self, written: int) -> None:
        """Move the start offset over finished spans whose write is done."""
        passed = 0
        for span in self.spans:
            if span.state not in FINISHED or span.write > written:
                break
            self._uncount(span, span.size)
            self.start = span.last + 1
            passed += 1
        if passed:
            del self.spans[:passed]
        assert sum(self.totals) == self.size, "every offset of the window has one state"
        assert 0 <= self.waiting <= self.totals[AVAILABLE]

    def skip_to(self, offset: int) -> None:
        """Move the start offset of an empty window forward."""
        assert not self.spans, "offsets in the window have a state to keep"
        self.start = max(self.start, offset)

    def join(self, first: int, last: int, written: int) -> None:
        """Join equal neighbours in this range and at its ends."""
        spans = self.spans
        low = max(self.index(first) - 1, 0)
        high = self.index(last) + 2
        joined: list[Span] = []
        for span in spans[low:high]:
            if joined and joined[-1].equals(span, written):
                joined[-1].last = span.last
                joined[-1].write = max(joined[-1].write, span.write)
                joined[-1].acquired_together = max(joined[-1].acquired_together, span.acquired_together)
            else:
                joined.append(span)
        spans[low:high] = joined

    def join_each(self, ranges: Sequence[Range], written: int) -> None:
        """Like `join` for several ranges, sorted by offset."""
        if len(ranges) > 1 and self._is_close(ranges):
            ranges = [(ranges[0][0], ranges[-1][1])]
        for first, last in ranges:
            self.join(first, last, written)

    def _count(self, span: Span, size: int) -> None:
        self.totals[span.state] += size
        if span.state is ACQUIRED:
            self.held[span.member] = self.held.get(span.member, 0) + size
        elif span.state is AVAILABLE:
            if span.until_ms:
                self.waiting += size
            else:
                self._none_acquirable_below = min(self._none_acquirable_below, span.first)

    def _uncount(self, span: Span, size: int) -> None:
        self.totals[span.state] -= size
        if span.state is ACQUIRED:
            left = self.held[span.member] - size
            if left:
                self.held[span.member] = left
            else:
                del self.held[span.member]
        elif span.state is AVAILABLE and span.until_ms:
            self.waiting -= size


class Walk:
    """Looks up ranges sorted by offset. A range close to the one before is found without a search."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._spans = window.spans
        self._at: int | None = None

    def between(self, first: int, last: int) -> list[Span]:
        """Like `Window.between`. The window must not change during the walk."""
        low = self._window.index(first) if self._at is None else self._from(self._at, first)
        if self._spans[low].last >= last:
            self._at = low
            return [self._spans[low]]
        self._at = self._from(low, last)
        return self._spans[low : self._at + 1]

    def _from(self, low: int, offset: int) -> int:
        """The index of the span with this offset, which is that of `low` or a later one."""
        spans = self._spans
        if spans[low].last >= offset:
            return low
        if spans[low + 1].last >= offset:
            return low + 1
        return bisect_right(spans, offset, low, key=_first_of) - 1
