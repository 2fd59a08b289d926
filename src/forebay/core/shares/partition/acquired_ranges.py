"""Decides which of the records that were read a member gets: how many, in which ranges.

Two modes. Batch-optimized: whole batches as the log has them, so that ranges stay coarse; `records_max` is a
soft limit, the batch with the last record of it is given whole. Record-limit: never more than `records_max`.
In both modes a range with more than `batch_size` records is cut where a batch begins.

Throttled redelivery protects the good neighbours of a record that makes its consumers fail. From a certain
delivery count on (`throttle_from`), a delivery has half as many records as were acquired together before,
then a quarter, and so on, and nothing else goes into that fetch. The last attempt has one record alone. After
a change of the leader it is unknown which records were acquired together. Then a run of records with the same
count is treated as such a group.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from forebay.core.shares.partition.record_window import Window

Offsets = tuple[int, int]
"""First and last offset of a range."""

_base_of = itemgetter(0)


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


class LogRead(NamedTuple):
    """The result of reading the log for a fetch. Only batch headers were read."""

    first: int
    """The offset where the read began."""
    last: int
    """The last offset that was read, up to the high watermark or the last stable offset."""
    batches: Sequence[Offsets]
    """Base and last offset of each batch with records for consumers. What the read covers beside them is
    empty: compacted away, control batches, and with read_committed the batches of aborted transactions."""

    def empty_ranges(self) -> Iterator[Offsets]:
        position = self.first
        for base, last in self.batches:
            if base > position:
                yield position, base - 1
            position = max(position, last + 1)
        if position <= self.last:
            yield position, self.last

    def batch_end(self, offset: int) -> int:
        """The last offset of the batch with this offset; the offset itself when it is in none."""
        i = bisect_right(self.batches, offset, key=_base_of) - 1
        return max(self.batches[i][1], offset) if i >= 0 else offset

    def cut(self, first: int, last: int, batch_size: int) -> Iterator[Offsets]:
        """The range in pieces that begin with a batch, each with `batch_size` records or a little more."""
        if last - first >= batch_size:
            for i in range(bisect_right(self.batches, first, key=_base_of), len(self.batches)):
                base = self.batches[i][0]
                if base > last:
                    break
                if base - first >= batch_size:
                    yield first, base - 1
                    first = base
        yield first, last


class Demand(NamedTuple):
    """The limits that a member sets in its fetch."""

    records_max: int
    batch_size: int
    is_record_limit: bool = False
    """Acquire mode 1; else whole batches."""

    def last_of(self, read: LogRead, first: int, last: int, room: int) -> int:
        """The last offset of a range that has room for this many records."""
        if last - first < room:
            return last
        wanted = first + room - 1
        return wanted if self.is_record_limit else min(read.batch_end(wanted), last)


def throttle_from(delivery_count_limit: int) -> int:
    """The delivery count from which on deliveries get smaller."""
    return max(2, (delivery_count_limit + 1) // 2)


def throttled_size(size: int, count: int, delivery_count_limit: int) -> int:
    """How many of `size` records, delivered `count` times, the next delivery may have."""
    threshold = throttle_from(delivery_count_limit)
    if count < threshold:
        return size
    if count >= delivery_count_limit - 1:
        return 1
    return max(1, size >> (count - threshold + 1))


def choose(window: Window, read: LogRead, demand: Demand, delivery_count_limit: int) -> list[Offsets]:
    """The acquirable ranges of the window that the member gets, each inside one span."""
    position = window.first_acquirable()
    if position is None or demand.records_max <= 0:
        return []
    position = max(position, read.first)
    threshold = throttle_from(delivery_count_limit)
    chosen: list[Offsets] = []
    room = demand.records_max
    spans = window.spans
    for i in range(max(window.index(position), 0), len(spans)):
        span = spans[i]
        if room <= 0 or span.first > read.last:
            break
        if not span.is_acquirable or span.last < position:
            continue
        first, last = max(span.first, position), min(span.last, read.last)
        if span.count >= threshold:
            if not chosen:
                together = max(span.acquired_together, last - first + 1)
                size = min(throttled_size(together, span.count, delivery_count_limit), room)
                chosen.append((first, min(first + size - 1, last)))
            break
        last = demand.last_of(read, first, last, room)
        chosen.append((first, last))
        room -= last - first + 1
    return chosen
