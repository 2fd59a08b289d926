"""One page of messages of a topic, newest first or oldest first, as far as a person's patience goes.

Each partition is read in windows, from its end backwards or from a place forwards; the partitions are merged
by time. A search that finds little stops after a while, and its cursor says where to go on: an offset for
each partition, up to which (or from which) everything was examined.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from forebay.console.messages.fetching import TopicReader, batches_of
from forebay.console.messages.filters import Filter
from forebay.wire.records import Record

SECONDS_MAX = 1.2
"""A search answers after this time, with what it has found."""
RECORDS_EXAMINED_MAX = 400_000
BYTES_FETCHED_MAX = 128 << 20
_WINDOW_RECORDS_MAX = 20_000
_WINDOW_BYTES = 1 << 20

Show = Callable[[int, Record], dict[str, Any]]


class Found(NamedTuple):
    rows: list[dict[str, Any]]
    cursor: str
    """The cursor of the next page; empty at the end."""
    examined: int
    bytes: int
    complete: bool
    """False if it stopped because of its limits, before the page was full."""


class Effort:
    """Counts the work of a search so far."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until = now() + SECONDS_MAX
        self.examined = 0
        self.bytes = 0

    @property
    def spent(self) -> bool:
        return (
            self._now() > self._until
            or self.examined >= RECORDS_EXAMINED_MAX
            or self.bytes >= BYTES_FETCHED_MAX
        )


class _Partition:
    """One partition of a search: what was found and not taken yet, and how far it was examined."""

    def __init__(
        self, reader: TopicReader, partition: int, low: int, high: int, window: int, backwards: bool
    ) -> None:
        self._reader = reader
        self.index = partition
        self._low, self._high = low, high
        self._window = window
        self._backwards = backwards
        self.waiting: deque[tuple[int, int, dict[str, Any]]] = deque()
        """Offset, time, and the row: only that is kept of a message."""
        self.place = high if backwards else low
        """The offsets at which the next page goes on, if it begins now."""

    @property
    def at_end(self) -> bool:
        return self._low >= self._high

    def examine(self, wanted: Filter, show: Show, effort: Effort) -> None:
        """Read the next window."""
        if self._backwards:
            first, last = max(self._low, self._high - self._window), self._high
            self._high = first
        else:
            first, last = self._low, min(self._high, self._low + self._window)
            self._low = last
        found = self._read(first, last, wanted, show, effort)
        self.waiting.extend(reversed(found) if self._backwards else found)
        self._window = min(self._window * 2, _WINDOW_RECORDS_MAX)

    def _read(
        self, first: int, last: int, wanted: Filter, show: Show, effort: Effort
    ) -> list[tuple[int, int, dict[str, Any]]]:
        found = []
        offset, now_ms = first, time.time_ns() // 1_000_000
        while offset < last:
            fetched = self._reader.fetch_one(self.index, offset)
            effort.bytes += len(fetched.data)
            batches = batches_of(fetched, offset)
            for batch in batches.visible:
                found += [
                    (record.offset, record.timestamp, show(self.index, record))
                    for record in wanted.matching(batch, self._reader.topic, self.index, now_ms)
                    if first <= record.offset < last
                ]
            if batches.next_offset == offset:
                break  # nothing more is visible
            effort.examined += min(batches.next_offset, last) - offset
            offset = batches.next_offset
        return found

    def take(self) -> dict[str, Any]:
        offset, _, row = self.waiting.popleft()
        self.place = offset if self._backwards else offset + 1
        return row

    def settle(self) -> None:
        """Everything that was examined has been taken."""
        self.place = self._high if self._backwards else self._low


def search(
    reader: TopicReader,
    bounds: Mapping[int, tuple[int, int]],
    *,
    wanted: Filter,
    limit: int,
    backwards: bool,
    show: Show,
    bytes_per_record: float = 1000.0,
    effort: Effort | None = None,
) -> Found:
    """Up to `limit` messages between these offsets of each partition."""
    effort = effort or Effort()
    affordable = int(_WINDOW_BYTES / max(1.0, bytes_per_record))
    share = limit if len(bounds) == 1 else max(4, 2 * limit // len(bounds))
    window = max(1, min(affordable, share if wanted.is_empty else 1000))
    partitions = [
        _Partition(reader, index, low, high, window, backwards) for index, (low, high) in bounds.items()
    ]
    rows: list[dict[str, Any]] = []
    complete = True
    while len(rows) < limit:
        if not _fill(partitions, wanted, show, effort):
            complete = False
            rows += _leftovers(partitions, backwards)
            break
        ready = [each for each in partitions if each.waiting]
        if not ready:
            break
        choose = max if backwards else min
        rows.append(choose(ready, key=lambda each: each.waiting[0][1]).take())
    for each in partitions:
        if not each.waiting:
            each.settle()
    open_ends = [each for each in partitions if each.waiting or not each.at_end]
    cursor = ",".join(f"{each.index}:{each.place}" for each in partitions) if open_ends else ""
    return Found(rows, cursor, effort.examined, effort.bytes, complete)


def _fill(partitions: list[_Partition], wanted: Filter, show: Show, effort: Effort) -> bool:
    """Have each partition know its next message; False if that took too much."""
    hungry = [each for each in partitions if not each.waiting and not each.at_end]
    while hungry:
        for each in hungry:
            if effort.spent:
                return False
            each.examine(wanted, show, effort)
        hungry = [each for each in hungry if not each.waiting and not each.at_end]
    return True


def _leftovers(partitions: list[_Partition], backwards: bool) -> list[dict[str, Any]]:
    """All that was found and not taken: the next page begins behind it."""
    rows: list[dict[str, Any]] = []
    while ready := [each for each in partitions if each.waiting]:
        choose = max if backwards else min
        rows.append(choose(ready, key=lambda each: each.waiting[0][1]).take())
    return rows


def parse_cursor(text: str) -> dict[int, int] | None:
    """The places of a cursor; None if it is none."""
    found = {}
    for part in text.split(","):
        index, colon, offset = part.partition(":")
        if not colon or not (index.isascii() and index.isdigit() and offset.isascii() and offset.isdigit()):
            return None
        found[int(index)] = int(offset)
    return found
