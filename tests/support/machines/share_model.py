"""A share partition as simple as can be: one entry per offset, sets instead of numbers, nothing in ranges.

It says what each event must lead to. Which records a fetch acquires is not predicted: the model judges the
choice and then follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from forebay.core.shares.partition.acquired_ranges import Acquired, Demand, LogRead
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.state_transitions import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FINISHED,
    RecordState,
)
from forebay.core.shares.partition.writes import StateWrite
from forebay.errors import ErrorCode
from forebay.wire.messages.share_fetch import AcknowledgementBatch
from support.machines.share_leader import ACCEPT, GAP, REJECT, RELEASE, RENEW, StoredShare


@dataclass
class Entry:
    state: RecordState = AVAILABLE
    count: int = 0
    member: str = ""
    until_ms: int = 0
    is_sent: bool = False
    """Whether the member has it, while it is ACQUIRED."""
    together: int = 0
    """How many were acquired with it, when that was not throttled."""
    failing_since_ms: int | None = None
    is_lost: bool = False
    """The log has nothing here: the start offset passes it without a write."""


class ShareModel:
    def __init__(self, settings: ShareSettings, stored: StoredShare) -> None:
        self.settings = settings
        self.log_start = 0
        self.start = stored.start_offset
        self.entries: dict[int, Entry] = {}
        self.changed: set[int] = set()
        self.in_flight: set[int] = set()
        for offset in range(self.start, max(stored.states, default=-1) + 1):
            count, state = stored.states.get(offset, (0, AVAILABLE))
            self.entries[offset] = Entry(state, count)
        self.configure(settings)

    @property
    def end(self) -> int:
        return max(self.entries, default=self.start - 1)

    def settle(self) -> None:
        """Move the start offset."""
        waiting = self.changed | self.in_flight
        while self.start in self.entries:
            entry = self.entries[self.start]
            if entry.state not in FINISHED or (self.start in waiting and not entry.is_lost):
                return
            del self.entries[self.start]
            self.start += 1
        self.start = max(self.start, self.log_start)

    def _give_up(self, offset: int) -> None:
        target = ARCHIVING if self.settings.has_dead_letters else ARCHIVED
        self._become(offset, target, is_changed=True)

    def _become(self, offset: int, state: RecordState, *, is_changed: bool = False) -> None:
        entry = self.entries[offset]
        entry.state, entry.member, entry.until_ms = state, "", 0
        if is_changed:
            self.changed.add(offset)

    def _release(self, offset: int, now_ms: int) -> None:
        entry = self.entries[offset]
        if not entry.is_sent:
            self._undo(offset, 0)
        elif entry.count >= self.settings.delivery_count_limit:
            self._give_up(offset)
        elif offset < self.log_start:
            self._lose(offset)
        else:
            self._become(offset, AVAILABLE)
            pause_ms = min(self.settings.backoff_ms * 2 ** (entry.count - 1), self.settings.backoff_ms_max)
            entry.until_ms = now_ms + pause_ms if pause_ms else 0

    def _undo(self, offset: int, until_ms: int) -> None:
        if offset < self.log_start:
            self._lose(offset)
        else:
            self._become(offset, AVAILABLE)
            self.entries[offset].until_ms = until_ms

    def _lose(self, offset: int) -> None:
        self._become(offset, ARCHIVED)
        self.entries[offset].is_lost = True

    # Events

    def configure(self, settings: ShareSettings) -> None:
        self.settings = settings
        for offset, entry in self.entries.items():
            if entry.state is AVAILABLE and entry.count >= settings.delivery_count_limit:
                self._give_up(offset)
        self.settle()

    def move_log_start(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)
        for each, entry in self.entries.items():
            if entry.state is AVAILABLE and each < self.log_start:
                self._lose(each)
        self.settle()

    def release(self, member: str, now_ms: int) -> None:
        for offset, entry in self.entries.items():
            if entry.state is ACQUIRED and entry.member == member:
                self._release(offset, now_ms)
        self.settle()

    def expire(self, now_ms: int) -> None:
        for offset, entry in self.entries.items():
            if 0 < entry.until_ms <= now_ms:
                if entry.state is ACQUIRED:
                    self._release(offset, now_ms)
                else:
                    entry.until_ms = 0
        self.settle()

    def dead_lettered(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._become(offset, ARCHIVED, is_changed=True)
        self.settle()

    def acknowledge(
        self, member: str, batches: Sequence[AcknowledgementBatch], is_renew_request: bool, now_ms: int
    ) -> ErrorCode:
        before = -1
        for batch in batches:
            given, size = batch.acknowledge_types, batch.last_offset - batch.first_offset + 1
            known = range(5) if is_renew_request else range(4)
            if size < 1 or batch.first_offset < before or len(given) not in (1, size):
                return ErrorCode.INVALID_REQUEST
            if any(each not in known for each in given):
                return ErrorCode.INVALID_REQUEST
            before = batch.last_offset
        types: dict[int, int] = {}
        for batch in batches:
            if batch.last_offset < self.start:
                continue
            if batch.last_offset > self.end:
                return ErrorCode.INVALID_REQUEST if self.entries else ErrorCode.INVALID_RECORD_STATE
            for offset in range(max(batch.first_offset, self.start), batch.last_offset + 1):
                kind = batch.acknowledge_types[(offset - batch.first_offset) % len(batch.acknowledge_types)]
                entry = self.entries[offset]
                is_forbidden = kind == RENEW and not self.settings.may_renew
                if entry.state is not ACQUIRED or entry.member != member or offset in types or is_forbidden:
                    return ErrorCode.INVALID_RECORD_STATE
                types[offset] = kind
        for offset, kind in types.items():
            self._acknowledge_one(offset, kind, now_ms)
        self.settle()
        return ErrorCode.NONE

    def _acknowledge_one(self, offset: int, kind: int, now_ms: int) -> None:
        if kind == ACCEPT:
            self._become(offset, ACKNOWLEDGED, is_changed=True)
        elif kind == GAP:
            self._become(offset, ARCHIVED, is_changed=True)
        elif kind == REJECT:
            self._give_up(offset)
        elif kind == RELEASE:
            self._release(offset, now_ms)
        else:
            self.entries[offset].until_ms = now_ms + self.settings.lock_ms

    # Writes

    def take(self, write: StateWrite) -> None:
        """Judge a write: it tells all changes, and nothing else."""
        ranges = [(first, last) for first, last, _, _ in write.ranges]
        assert all(first <= last for first, last in ranges)
        assert all(before[1] < after[0] for before, after in pairwise(ranges)), "sorted, disjoint"
        start = self.start
        while start in self.entries and self.entries[start].state in FINISHED:
            start += 1
        told = {n: (state, c) for first, last, state, c in write.ranges for n in range(first, last + 1)}
        assert write.start_offset == start
        assert told == {
            offset: (AVAILABLE if entry.state is ACQUIRED else entry.state, entry.count)
            for offset, entry in self.entries.items()
            if offset in self.changed and offset >= start
        }
        finished = sum(entry.state in FINISHED for offset, entry in self.entries.items() if offset >= start)
        assert write.delivery_complete_count == finished
        self.in_flight, self.changed = self.changed, set()

    def write_done(self) -> None:
        self.in_flight = set()
        self.settle()

    # Deliveries

    def candidates(self, read: LogRead) -> list[int]:
        """What a fetch could acquire if it asked for everything and the window had room."""
        held = [
            offset for offset, each in self.entries.items() if each.state is not AVAILABLE or each.until_ms
        ]
        first = self.start
        last = read.last if read.first <= max(self.end + 1, self.log_start) else self.end
        return [
            offset
            for base, batch_last in read.batches
            for offset in range(max(base, first, read.first, self.log_start), min(batch_last, last) + 1)
            if offset not in held
        ]

    def acquire(
        self, member: str, read: LogRead, demand: Demand, ranges: Sequence[Acquired], end: int, now_ms: int
    ) -> None:
        """Judge what a fetch got, and follow it; `end` is that of the machine's window."""
        candidates = self.candidates(read)
        acquired = [offset for first, last, _ in ranges for offset in range(first, last + 1)]
        assert acquired == candidates[: len(acquired)], "the first ones that can be acquired, in order"
        self._judge_amount(acquired, candidates, read, demand)
        self._judge_cuts(ranges, read, demand)
        empty = {o for first, last in read.empty_ranges() for o in range(first, last + 1)}
        if demand.records_max > 0:
            self._follow_end(set(acquired), empty, end)
            for offset in range(read.first, read.last + 1):
                if offset in self.entries:
                    self.entries[offset].failing_since_ms = None
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                entry = self.entries[offset]
                assert count == entry.count + 1 <= self.settings.delivery_count_limit
                entry.state, entry.member, entry.is_sent = ACQUIRED, member, False
                entry.until_ms = now_ms + self.settings.lock_ms
                if entry.count < self._threshold:
                    entry.together = last - first + 1
        self.settle()

    def sent(self, ranges: Sequence[Acquired], now_ms: int) -> None:
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                entry = self.entries[offset]
                assert (entry.state, entry.is_sent, entry.count) == (ACQUIRED, False, count - 1)
                entry.count, entry.is_sent = count, True
                entry.until_ms = now_ms + self.settings.lock_ms
                self.changed.add(offset)

    def take_back(self, ranges: Sequence[Acquired], until_ms: int) -> None:
        for first, last, _ in ranges:
            for offset in range(first, last + 1):
                self._undo(offset, until_ms)
        self.settle()

    def unreadable(self, first: int, last: int, patience_ms: int | None, retry_ms: int, now_ms: int) -> int:
        """How many are given up."""
        given_up = 0
        if not self.entries:
            self.start = max(self.start, first)
        for offset in range(self.end + 1, min(last, self.end + max(self._room(), 0)) + 1):
            self.entries[offset] = Entry()
        for offset in range(max(first, self.start), min(last, self.end) + 1):
            entry = self.entries[offset]
            if entry.state is not AVAILABLE or entry.until_ms:
                continue
            if patience_ms is None:
                entry.failing_since_ms = None
            elif entry.failing_since_ms is None:
                entry.failing_since_ms = now_ms
            since_ms = entry.failing_since_ms
            if patience_ms is not None and since_ms is not None and now_ms - since_ms >= patience_ms:
                self._give_up(offset)
                given_up += 1
            else:
                entry.until_ms = now_ms + retry_ms
        self.settle()
        return given_up

    @property
    def _threshold(self) -> int:
        return max(2, -(-self.settings.delivery_count_limit // 2))

    def _judge_amount(
        self, acquired: list[int], candidates: list[int], read: LogRead, demand: Demand
    ) -> None:
        limit = self.settings.delivery_count_limit
        threshold = self._threshold
        counts = [self.entries[each].count if each in self.entries else 0 for each in candidates]
        room = max(self._room(), 0)
        if not self.entries:
            room += max(candidates[0] - self.start, 0) if candidates else 0
        sure = [each for each in candidates if each <= self.end + room]
        if demand.records_max <= 0 or not sure:
            assert not acquired
        elif counts[0] >= threshold:
            run = 0
            while run < len(counts) and counts[run] == counts[0] and candidates[run] == candidates[0] + run:
                run += 1
            together = max(run, *(self.entries[each].together for each in candidates[:run]))
            most = 1 if counts[0] == limit - 1 else max(1, together >> (counts[0] - threshold + 1))
            assert 1 <= len(acquired) <= min(most, demand.records_max)
        else:
            plain = next((n for n, count in enumerate(counts) if count >= threshold), len(counts))
            assert min(plain, len(sure), demand.records_max) <= len(acquired) <= plain
            if demand.is_record_limit:
                assert len(acquired) <= min(demand.records_max, len(sure))
            else:
                base = next(first for first, last in read.batches if first <= acquired[-1] <= last)
                whole = [each for each in acquired if each < base]
                assert len(whole) < min(demand.records_max, len(sure)), "only the last batch may exceed it"

    def _room(self) -> int:
        """What is finished at the front takes none, up to twice the limit with what is to be written."""
        limit = self.settings.record_locks_max
        unfinished = [n for n, each in self.entries.items() if each.state not in FINISHED]
        first = min(unfinished, default=self.end + 1)
        return min(limit - (self.end + 1 - first), 2 * limit - (self.end + 1 - self.start))

    def _judge_cuts(self, ranges: Sequence[Acquired], read: LogRead, demand: Demand) -> None:
        bases = {base for base, _ in read.batches}
        for first, last, _ in ranges:
            assert all(base - first < demand.batch_size for base in bases if first < base <= last)
        for before, after in pairwise(ranges):
            if before.first > self.end and before.last + 1 == after.first:
                assert after.first in bases
                assert before.last - before.first + 1 >= demand.batch_size

    def _follow_end(self, acquired: set[int], empty: set[int], end: int) -> None:
        for offset in empty & self.entries.keys():
            if self.entries[offset].state is AVAILABLE:
                self._lose(offset)
        for offset in range(self.end + 1, end + 1):
            is_gone = offset in empty or offset < self.log_start
            assert offset in acquired or is_gone, "what is not acquired stays outside of the window"
            if not self.entries and is_gone:
                self.start = offset + 1
                continue
            self.entries[offset] = Entry()
            if is_gone:
                self._lose(offset)
