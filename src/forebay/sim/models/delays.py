"""The model of a topic with delayed messages: none is seen before it is due, none is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forebay.sim.models.facts import name_of
from forebay.sim.world.places import LATER, LATER_DELAY_MS
from forebay.wire.records import Record


class TopicDelay:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._seen: set[int] = set()
        self._position = 0

    def read(self, reader: str, records: Iterable[Record], next_offset: int, clock_ms: int) -> None:
        """Note that a reader has got these, in this order. `clock_ms`: the latest time that the leader's
        clock has shown so far. A message that was due once stays visible when the clock is set back."""
        for record in records:
            early_ms = record.timestamp + LATER_DELAY_MS - clock_ms
            if early_ms > 0:
                place = name_of(LATER, record.offset)
                self._fail(f"{reader} read {record.value!r} at {place} {early_ms} ms before it was due")
            self._seen.add(record.offset)
        self._position = max(self._position, next_offset)

    def has_passed(self, offsets: Iterable[int]) -> bool:
        return all(offset < self._position for offset in offsets)

    def finish(self, stored: Iterable[int]) -> None:
        """`stored`: the offsets of all messages at the end. The reader has seen those up to its position."""
        for offset in stored:
            if offset < self._position and offset not in self._seen:
                self._fail(f"what is at {name_of(LATER, offset)} was passed over before it was due")
