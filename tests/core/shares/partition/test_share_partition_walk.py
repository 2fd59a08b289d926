"""Random members, late and lost writes, and leaders that die, against a model with one entry per offset.

The share coordinator is the only thing that survives a leader. At every step each offset has the state that
the model gives it. Over all leaders: an accepted record whose write was done is never acquired again, a count
is never above the number of deliveries that were sent, a count that a member has seen comes back only from a
new leader and none below it at all, and the persisted start offset never goes back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.core.shares.partition.acquired_ranges import Demand, LogRead
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.share_partition import Acquisition, SharePartition
from forebay.core.shares.partition.state_transitions import ACQUIRED, AVAILABLE, FINISHED, RecordState
from forebay.core.shares.partition.writes import StateWrite
from forebay.errors import ErrorCode
from forebay.wire.messages.share_fetch import AcknowledgementBatch
from support.machines.share_leader import ACCEPT, REJECT, RELEASE, RENEW, StoredShare
from support.machines.share_model import ShareModel
from support.machines.walks import walks

BATCH_MAX = 5
WINDOW_MAX = 16
members = st.sampled_from(["a", "b", "c"])
types = st.sampled_from([ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, 0, RENEW])


def batch_of(first: int, last: int, kinds: list[int]) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)


class Walk(RuleBasedStateMachine):
    @initialize(
        limit=st.sampled_from([2, 2, 3, 5, 10]),
        backoff_ms=st.sampled_from([0, 0, 40]),
        has_dead_letters=st.booleans(),
        start=st.sampled_from([0, 7]),
    )
    def begin(self, limit: int, backoff_ms: int, has_dead_letters: bool, start: int) -> None:
        self.settings = ShareSettings(
            lock_ms=100,
            delivery_count_limit=limit,
            record_locks_max=WINDOW_MAX,
            backoff_ms=backoff_ms,
            backoff_ms_max=100,
            has_dead_letters=has_dead_letters,
        )
        self.now_ms = 1
        self.batches: list[tuple[int, int]] = []
        self.log_end = 0
        self.log_start = 0
        self.stored = StoredShare(start)
        self.old_read: LogRead | None = None
        self.write: StateWrite | None = None
        """The one in flight."""
        self.replies: list[tuple[int, set[int]]] = []
        """Accepted offsets whose reply waits, by the number of the write."""
        self.deliveries: list[tuple[str, Acquisition]] = []
        """What was acquired and not yet sent."""
        self.accepted: set[int] = set()
        self.counts_seen: dict[int, tuple[int, int]] = {}
        """The highest count that a member was told, and by the how-manieth leader."""
        self.leaders = 0
        self.sends: Counter[int] = Counter()
        """How often each offset was sent."""
        self.append([5, 3, 4, 1], 0)
        self.load()

    def load(self) -> None:
        self.leaders += 1
        self.shares = SharePartition(
            self.settings,
            start_offset=self.stored.start_offset,
            ranges=self.stored.ranges(),
            leader_epoch=1,
            state_epoch=1,
        )
        self.model = ShareModel(self.settings, self.stored)
        self.start_seen = self.stored.start_offset
        self.shares.log_start(self.log_start)
        self.model.move_log_start(self.log_start)

    # The log

    @rule(sizes=st.lists(st.integers(1, BATCH_MAX), min_size=1, max_size=6), gap=st.integers(0, 3))
    def append(self, sizes: list[int], gap: int) -> None:
        """Batches, and then control batches or what compaction has left out."""
        for size in sizes:
            self.batches.append((self.log_end, self.log_end + size - 1))
            self.log_end += size
        self.log_end += gap

    def compact(self, place: float) -> None:
        if len(self.batches) > 2:
            del self.batches[int(place * (len(self.batches) - 1))]

    def delete_records(self, step: int) -> None:
        self.log_start = min(self.log_start + step, self.log_end)
        self.shares.log_start(self.log_start)
        self.model.move_log_start(self.log_start)

    # Members

    @rule(member=members)
    def fetch_all(self, member: str) -> None:
        self.fetch(member, 100, 500, False, 6, False, False)

    @rule(
        member=members,
        records_max=st.sampled_from([0, 1, 2, 5, 10, 100]),
        batch_size=st.sampled_from([1, 4, 10, 500]),
        is_record_limit=st.booleans(),
        batch_count=st.integers(0, 6),
        is_old=st.sampled_from([False, False, False, True]),
        is_slow=st.sampled_from([False, False, False, True]),
    )
    def fetch(
        self,
        member: str,
        records_max: int,
        batch_size: int,
        is_record_limit: bool,
        batch_count: int,
        is_old: bool,
        is_slow: bool,
    ) -> None:
        """A slow one waits for the disk until something else is sent."""
        read = self.old_read if is_old else self.read(batch_count)
        if read is None:
            return
        self.old_read = read
        demand = Demand(records_max, batch_size, is_record_limit)
        acquired = self.shares.acquire(member, read, demand, now_ms=self.now_ms)
        ranges = acquired.ranges
        offsets = {offset for first, last, _ in ranges for offset in range(first, last + 1)}
        assert not offsets & self.accepted
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                assert (count, self.leaders) > self.counts_seen.get(offset, (0, 0))
                assert count <= self.sends[offset] + 1
        assert (acquired.write > self.shares.written) == any(count > 1 for _, _, count in ranges)
        assert self.shares.is_write_due or not acquired.write
        self.model.acquire(member, read, demand, ranges, self.shares.window.end, self.now_ms)
        self.deliveries.append((member, acquired))
        if not is_slow:
            self.send()

    def read(self, batch_count: int) -> LogRead | None:
        first = self.shares.next_fetch_offset()
        if first is None or first >= self.log_end:
            return None
        batches = [batch for batch in self.batches if batch[1] >= first]
        if batch_count < len(batches):
            batches = batches[: batch_count + 1]
            return LogRead(first, batches[-1][1], batches)
        return LogRead(first, self.log_end - 1, batches)

    def send(self) -> None:
        """Send deliveries and replies whose write is done."""
        for member, (ranges, write, hold) in self.deliveries:
            if write <= self.shares.written:
                held = self.shares.still_held(hold, ranges)
                for first, last, count in held:
                    for offset in range(first, last + 1):
                        entry = self.model.entries[offset]
                        assert (entry.state, entry.member) == (ACQUIRED, member)
                        self.counts_seen[offset] = count, self.leaders
                        self.sends[offset] += 1
                self.shares.sent(hold, held, now_ms=self.now_ms)
                self.model.sent(held, self.now_ms)
        self.deliveries = [each for each in self.deliveries if each[1].write > self.shares.written]
        for write, offsets in self.replies:
            if write <= self.shares.written:
                self.accepted |= offsets
        self.replies = [each for each in self.replies if each[0] > self.shares.written]

    @rule(
        member=members,
        offset=st.integers(-4, WINDOW_MAX + 6),
        sizes=st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 9)), min_size=1, max_size=3),
        kinds=st.lists(st.integers(-1, 5), min_size=1, max_size=10),
        is_each=st.booleans(),
        is_renew=st.booleans(),
    )
    def acknowledge_anything(
        self,
        member: str,
        offset: int,
        sizes: list[tuple[int, int]],
        kinds: list[int],
        is_each: bool,
        is_renew: bool,
    ) -> None:
        batches = []
        first = self.shares.start_offset + offset
        for skip, size in sizes:
            first += skip
            given = [kinds[n % len(kinds)] for n in range(size)] if is_each else kinds[:1]
            batches.append(
                AcknowledgementBatch(
                    first_offset=first, last_offset=first + size - 1, acknowledge_types=given
                )
            )
            first += size
        self.acknowledge(member, batches, is_renew)

    @rule(
        member=members,
        kinds=st.one_of(st.just([ACCEPT]), st.lists(types, min_size=1, max_size=12)),
        first=st.integers(0, 3),
        size=st.integers(1, 12),
        is_twice=st.sampled_from([False, False, False, True]),
    )
    def acknowledge_what_is_held(
        self, member: str, kinds: list[int], first: int, size: int, is_twice: bool
    ) -> None:
        held = [n for n, entry in self.model.entries.items() if entry.member == member][first:][:size]
        held += held[-1:] if is_twice else []
        batches = [batch_of(offset, offset, [kinds[n % len(kinds)]]) for n, offset in enumerate(held)]
        self.acknowledge(member, batches, True)

    @rule(
        member=members,
        place=st.floats(0, 0.99),
        first=st.integers(-1, 1),
        last=st.integers(-1, 1),
        kind=types,
    )
    def acknowledge_near_a_span(self, member: str, place: float, first: int, last: int, kind: int) -> None:
        """Of whatever state, held by whomever, a bit more or less than all of it."""
        spans = self.shares.window.spans
        if spans:
            span = spans[int(place * len(spans))]
            self.acknowledge(member, [batch_of(span.first + first, span.last + last, [kind])], True)

    @rule(member=members, before=st.integers(1, 4), meanwhile=st.integers(1, 4))
    def accept_around_a_write(self, member: str, before: int, meanwhile: int) -> None:
        self.acknowledge_what_is_held(member, [ACCEPT], 0, before, False)
        self.take_write()
        self.acknowledge_what_is_held(member, [ACCEPT], 0, meanwhile, False)
        if self.write is not None:
            self.finish_write()

    @rule(member=members, kind=types)
    def acknowledge_spans(self, member: str, kind: int) -> None:
        spans = [span for span in self.shares.window.spans if span.member == member]
        self.acknowledge(member, [batch_of(span.first, span.last, [kind]) for span in spans], True)

    def acknowledge(self, member: str, batches: list[AcknowledgementBatch], is_renew: bool) -> None:
        before = {n for n, entry in self.model.entries.items() if entry.state is RecordState.ACKNOWLEDGED}
        expected = self.model.acknowledge(member, batches, is_renew, self.now_ms)
        error, write = self.shares.acknowledge(member, batches, is_renew_request=is_renew, now_ms=self.now_ms)
        assert error == expected
        after = {n for n, entry in self.model.entries.items() if entry.state is RecordState.ACKNOWLEDGED}
        if error is ErrorCode.NONE:
            assert write > self.shares.written or after == before
            self.replies.append((write, after - before))

    @rule(pause_ms=st.sampled_from([0, 50]))
    def give_back(self, pause_ms: int) -> None:
        """The oldest delivery that waits took too long, or its disk failed."""
        if self.deliveries:
            _, (ranges, _, hold) = self.deliveries.pop(0)
            held = self.shares.still_held(hold, ranges)
            until_ms = self.now_ms + pause_ms if pause_ms else 0
            self.shares.take_back(hold, ranges, until_ms=until_ms)
            self.model.take_back(held, until_ms)

    @rule(size=st.integers(1, 8), patience_ms=st.sampled_from([None, 0, 50, 100]))
    def fail_to_read(self, size: int, patience_ms: int | None) -> None:
        first = self.shares.next_fetch_offset()
        if first is None or first >= self.log_end:
            return
        last = min(first + size, self.log_end) - 1
        given_up = self.shares.unreadable(
            first, last, patience_ms=patience_ms, retry_ms=30, now_ms=self.now_ms
        )
        assert given_up == self.model.unreadable(first, last, patience_ms, 30, self.now_ms)

    @rule(member=members)
    def end_session(self, member: str) -> None:
        self.shares.release(member, self.now_ms)
        self.model.release(member, self.now_ms)

    @rule(ms=st.sampled_from([1, 30, 50, 100, 200]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.shares.expire(self.now_ms)
        self.model.expire(self.now_ms)

    # Settings and dead letters

    def configure(self, limit: int, has_dead_letters: bool, may_renew: bool) -> None:
        self.settings = replace(
            self.settings,
            delivery_count_limit=limit,
            has_dead_letters=has_dead_letters,
            may_renew=may_renew,
        )
        self.shares.configure(self.settings)
        self.model.configure(self.settings)

    @rule(part=st.floats(0, 1))
    def move_dead_letters(self, part: float) -> None:
        for first, last, _, _ in self.shares.dead_letters():
            assert not set(range(first, last + 1)) & (self.model.changed | self.model.in_flight)
            last = first + int(part * (last - first))
            self.shares.dead_lettered([(first, last)])
            self.model.dead_lettered(range(first, last + 1))

    # Writes and leaders

    @rule()
    def take_write(self) -> None:
        if self.write is not None:
            assert self.shares.take_write() is None, "one write is in flight"
            return
        self.write = self.shares.take_write()
        if self.write is None:
            assert not self.model.changed
        else:
            self.model.take(self.write)

    @precondition(lambda self: self.write is not None)
    @rule()
    def finish_write(self) -> None:
        assert self.write is not None
        self.store(self.write)
        self.write = None
        self.shares.write_done()
        self.model.write_done()
        self.send()

    def store(self, write: StateWrite) -> None:
        assert write.start_offset >= self.stored.start_offset
        self.stored.write(write)

    def change_leader(self, is_stored: bool) -> None:
        """The write in flight may have arrived."""
        if self.write is not None and is_stored:
            self.store(self.write)
        self.write = None
        self.replies, self.deliveries, self.old_read = [], [], None
        self.load()

    @rule(
        kind=st.sampled_from(["new leader", "new leader", "settings", "log start", "compaction"]),
        number=st.integers(1, 9),
        is_on=st.booleans(),
    )
    def disturb(self, kind: str, number: int, is_on: bool) -> None:
        """What happens rarely is one rule, so that members get to do more between."""
        if kind == "new leader":
            self.change_leader(is_on)
        elif kind == "settings":
            self.configure(2 + number // 2, is_on, number != 1)
        elif kind == "log start":
            self.delete_records(number)
        else:
            self.compact(number / 10)

    # At every step

    @invariant()
    def every_offset_has_the_state_of_the_model(self) -> None:
        window = self.shares.window
        assert (window.start, window.end) == (self.model.start, self.model.end)
        position = window.start
        for span in window.spans:
            assert span.first == position <= span.last
            position = span.last + 1
            for offset in range(span.first, span.last + 1):
                entry = self.model.entries[offset]
                assert (span.state, span.count) == (entry.state, entry.count)
                assert (span.member, span.until_ms) == (entry.member, entry.until_ms)
                assert span.count <= self.sends[offset], "what was not sent does not count"
        assert position == window.end + 1

    @invariant()
    def what_is_counted_is_true(self) -> None:
        entries, seen = self.model.entries.values(), self.shares.describe(self.now_ms)
        assert seen.available == sum(each.state is AVAILABLE and not each.until_ms for each in entries)
        assert seen.waiting == sum(each.state is AVAILABLE and each.until_ms > 0 for each in entries)
        assert seen.acquired == sum(each.state is ACQUIRED for each in entries)
        assert seen.finished == sum(each.state in FINISHED for each in entries)
        assert self.shares.window.held == Counter(each.member for each in entries if each.state is ACQUIRED)
        first = min(
            (n for n, each in self.model.entries.items() if each.state is AVAILABLE and not each.until_ms),
            default=None,
        )
        if first is not None:
            assert self.shares.next_fetch_offset() == first

    @invariant()
    def limits_hold(self) -> None:
        window = self.shares.window
        assert window.end + 1 - window.first_unfinished() <= WINDOW_MAX + BATCH_MAX
        assert window.size <= 2 * WINDOW_MAX + BATCH_MAX
        assert self.shares.start_offset >= self.start_seen
        self.start_seen = self.shares.start_offset
        for offset in self.accepted & self.model.entries.keys():
            assert self.model.entries[offset].state is RecordState.ACKNOWLEDGED

    @invariant()
    def no_deadline_is_missed(self) -> None:
        until = min((each.until_ms for each in self.model.entries.values() if each.until_ms), default=None)
        if until is not None:
            assert self.shares.deadline_ms is not None
            assert self.shares.deadline_ms <= until

    def teardown(self) -> None:
        """With nothing in the way, every record is delivered and accepted, and the window is empty."""
        if not hasattr(self, "shares"):
            return
        self.finish_writes()
        for _ in range(10 * (WINDOW_MAX + self.log_end)):
            self.wait(200)
            self.fetch("a", 100, 500, False, 6, False, False)
            self.acknowledge_spans("a", ACCEPT)
            self.finish_writes()
            self.move_dead_letters(1.0)
            self.finish_writes()
            if self.shares.start_offset >= self.log_end:
                return
        raise AssertionError(f"stuck at {self.shares.start_offset} of {self.log_end}")

    def finish_writes(self) -> None:
        for _ in range(3):
            if self.write is None:
                self.take_write()
            if self.write is not None:
                self.finish_write()


TestWalk, TestManyWalks = walks(Walk, few=40, many=250, steps=80)
