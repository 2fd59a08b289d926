"""A share partition: what the leader of a topic partition knows of one share group's deliveries from it.

The window (window.py) has a state for every offset from the start offset (everything below is finished) to
the end offset (nothing above was ever acquired). The ways from state to state are a table (record_states.py).

What is persisted, and when (writes.py):

| event | the write says | who waits for the write |
|---|---|---|
| acquire, first delivery | AVAILABLE, count 1 | nobody; it waits for the next write: `is_write_due` |
| acquire, redelivery | AVAILABLE, count | the delivery itself: `Acquisition.write` |
| accept | ACKNOWLEDGED | the reply |
| gap, reject | ARCHIVED, or ARCHIVING with a dead-letter topic | the reply |
| release, lock timeout, end of a session | nothing, it says AVAILABLE with this count already | nobody |
| the same with the count at the limit | ARCHIVED or ARCHIVING | the reply to a release |
| in the dead-letter topic | ARCHIVED | nobody |
| renew; records that the log has lost, or the disk did not give | nothing | nobody |

Each write carries the start offset too; a start offset that moved by itself is written alone. One write is in
flight. Until it is done, a record whose acknowledgement it holds is in nobody's hands: it cannot be acquired,
a second acknowledgement is refused, and the start offset does not pass it. A write is never rolled back: the
runtime repeats it until it is done, or drops the whole object because another leader has taken over. Then the
new leader's state decides, and holds every acknowledgement whose reply was sent.

So delivery counts survive a change of the leader from the second delivery on. An acquired record is persisted
as AVAILABLE, and a new leader treats it like a released one: it delivers it again, or, with the count at the
limit, archives it.

A released record can have to wait (backoff) before it is acquired again. Locks and backoffs are in memory, in
monotonic time. `deadline_ms` is no later than the first of them; `expire` looks at all spans and sets it
anew. So a lock costs nothing when it is acknowledged in time, and one look at the window per lock duration.

A record is ARCHIVING until it is in the dead-letter topic. It is handed out as a dead letter only once that
state is persisted, so it cannot be delivered after it was dead-lettered.

The caller looks at `is_write_due`, `deadline_ms` and `next_fetch_offset` after each operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forebay.core.shares.partition.acknowledgements import AcknowledgeType, checked
from forebay.core.shares.partition.acquired_ranges import Acquired, Demand, LogRead, choose
from forebay.core.shares.partition.description import Description, describe
from forebay.core.shares.partition.loading import loaded
from forebay.core.shares.partition.record_states import (
    ACCEPT,
    ACQUIRE,
    ACQUIRED,
    ARCHIVING,
    AVAILABLE,
    BURY,
    BURY_DONE,
    DROP,
    GAP,
    LOSE,
    RELEASE,
    RENEW,
    UNDO,
    DeadLetterCause,
    Transition,
)
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.window import Span
from forebay.core.shares.partition.writes import StateRange, StateWrite, Writes
from forebay.errors import ErrorCode
from forebay.wire.messages.share_fetch import AcknowledgementBatch


class Acquisition(NamedTuple):
    ranges: list[Acquired]
    write: int
    """The records may be sent once `written` has reached this; then ask `still_held`."""


class Acknowledgement(NamedTuple):
    error: ErrorCode
    write: int
    """The reply may be sent once `written` has reached this."""


class DeadLetters(NamedTuple):
    """Records to copy to the dead-letter topic."""

    first: int
    last: int
    delivery_count: int
    cause: DeadLetterCause


class SharePartition:
    def __init__(
        self,
        settings: ShareSettings,
        *,
        start_offset: int,
        ranges: Iterable[StateRange] = (),
        leader_epoch: int,
        state_epoch: int,
    ) -> None:
        """`start_offset` (known: an open one is chosen and persisted before) and `ranges` are the persisted
        state, in order; else KafkaError is raised.
        """
        self.leader_epoch = leader_epoch
        self.state_epoch = state_epoch
        """Both go into every write: they fence the leader that was before, and state that was reset."""
        self.window = loaded(start_offset, ranges, settings.delivery_count_limit)
        """To be looked at, not to be changed."""
        self.deadline_ms: int | None = None
        """When to call `expire`."""
        self._writes = Writes(start_offset)
        self._log_start = 0
        self.configure(settings)
        self._advance()

    # What the runtime looks at

    @property
    def start_offset(self) -> int:
        return self.window.start

    @property
    def changes(self) -> int:
        """Number of the write that holds, or will hold, the newest change."""
        return self._writes.newest

    @property
    def written(self) -> int:
        """Number of the last write that is done."""
        return self._writes.written

    @property
    def is_write_due(self) -> bool:
        """Whether `take_write` should be called as soon as no write is in flight.

        A first delivery can wait a little: its acknowledgement comes soon, and replaces what there is to say.
        """
        return self._writes.is_due

    def next_fetch_offset(self) -> int | None:
        """Where the next read begins; None while nothing may be acquired."""
        first = self.window.first_acquirable()
        if first is not None:
            return first
        if self.window.room(self.settings.record_locks_max) <= 0:
            return None
        return max(self.window.end + 1, self._log_start)

    def describe(self, now_ms: int) -> Description:
        return describe(self.window, self.settings.record_locks_max, now_ms)

    # Deliveries

    def acquire(self, member_id: str, read: LogRead, demand: Demand, *, now_ms: int) -> Acquisition:
        """Lock records of a read that began at `next_fetch_offset` for a member.

        The read may be older than the last change: only what can be acquired now is. An acquisition without
        records that has moved `next_fetch_offset` asks for another read.
        """
        if demand.records_max <= 0:
            return Acquisition([], 0)
        end = self.window.end
        self._extend(read, demand)
        for first, last in read.empty_ranges():
            self._lose(first, last)
        acquired: list[Acquired] = []
        for first, last in choose(self.window, read, demand, self.settings.delivery_count_limit):
            for piece in read.cut(first, last, demand.batch_size):
                (span,) = self.window.cut(*piece)
                acquired.append(self._lock(span, member_id, now_ms))
        self._forget_undelivered(end)
        self._advance()
        is_redelivery = any(each.delivery_count > 1 for each in acquired)
        return Acquisition(acquired, self.changes if is_redelivery else 0)

    def _extend(self, read: LogRead, demand: Demand) -> None:
        """Take what was read after the end offset into the window, as far as there is room."""
        window = self.window
        first = window.end + 1
        if read.first > max(first, self._log_start) or read.last < first:
            return  # the end offset was another one when the read began; or nothing is new
        if not window.spans:
            window.skip_to(read.batches[0][0] if read.batches else read.last + 1)
            first = window.start
        room = window.room(self.settings.record_locks_max)
        if room <= 0 or read.last < first:
            return
        window.append(Span(first, demand.last_of(read, first, read.last, room)))
        self._lose(first, self._log_start - 1)

    def _forget_undelivered(self, end: int) -> None:
        """Leave records that came into the window in vain to the next fetch."""
        first = max(end + 1, self.window.start)
        if first > self.window.end:
            return
        for span in self.window.between(first, self.window.end):
            if span.state is AVAILABLE:
                self.window.truncate(max(first, span.first) - 1)
                break

    def _lock(self, span: Span, member_id: str, now_ms: int) -> Acquired:
        span.count += 1
        span.since_ms = now_ms
        until_ms = now_ms + self.settings.lock_ms
        self._apply(ACQUIRE, span, until_ms=until_ms, member=member_id)
        return Acquired(span.first, span.last, span.count)

    def still_held(self, member_id: str, ranges: Iterable[Acquired]) -> list[Acquired]:
        """What of a delivery that had to wait for its write the member still holds."""
        held: list[Acquired] = []
        for first, last, count in ranges:
            first, last = max(first, self.window.start), min(last, self.window.end)
            if first > last:
                continue
            held += (
                Acquired(max(first, span.first), min(last, span.last), count)
                for span in self.window.between(first, last)
                if span.state is ACQUIRED and span.member == member_id and span.count == count
            )
        return held

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], *, is_renew_request: bool, now_ms: int
    ) -> Acknowledgement:
        """Apply all acknowledgements of a request, or none."""
        runs = checked(
            self.window,
            member_id,
            batches,
            is_renew_request=is_renew_request,
            may_renew=self.settings.may_renew,
        )
        if isinstance(runs, ErrorCode):
            return Acknowledgement(runs, 0)
        is_written = False
        for first, last, kind in runs:
            for span in self.window.cut(first, last):
                is_written |= self._acknowledge(span, kind, now_ms)
            self.window.join(first, last, self.written)
        self._advance()
        return Acknowledgement(ErrorCode.NONE, self.changes if is_written else 0)

    def _acknowledge(self, span: Span, kind: AcknowledgeType, now_ms: int) -> bool:
        """Whether the change is to be written."""
        match kind:
            case AcknowledgeType.ACCEPT:
                return self._apply(ACCEPT, span)
            case AcknowledgeType.GAP:
                return self._apply(GAP, span)
            case AcknowledgeType.REJECT:
                return self._give_up(span, DeadLetterCause.REJECTED)
            case AcknowledgeType.RELEASE:
                return self._release(span, now_ms)
            case AcknowledgeType.RENEW:
                until_ms = now_ms + self.settings.lock_ms
                return self._apply(RENEW, span, until_ms=until_ms, member=span.member)

    def release(self, member_id: str, now_ms: int) -> None:
        """Give back all that a member holds: its session has ended."""
        for span in self.window.spans:
            if span.state is ACQUIRED and span.member == member_id:
                self._release(span, now_ms)
        self._join_all()

    def take_back(self, member_id: str, ranges: Iterable[Acquired], *, until_ms: int) -> None:
        """Undo deliveries that were not made. They do not count, and are tried again from `until_ms` on."""
        for first, last, _ in self.still_held(member_id, ranges):
            for span in self.window.cut(first, last):
                span.count -= 1
                is_there = span.last >= self._log_start
                self._apply(UNDO if is_there else LOSE, span, until_ms=until_ms if is_there else 0)
            self.window.join(first, last, self.written)
        self._advance()

    def expire(self, now_ms: int) -> None:
        """End the locks and backoffs whose time has come."""
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return
        for span in self.window.spans:
            if not 0 < span.until_ms <= now_ms:
                continue
            if span.state is ACQUIRED:
                self._release(span, now_ms)
            else:
                self.window.change(span, AVAILABLE)
        self._join_all()
        self.deadline_ms = min((span.until_ms for span in self.window.spans if span.until_ms), default=None)

    # What else changes

    def configure(self, settings: ShareSettings) -> None:
        """Follow other settings. Locks and backoffs that run are not changed.

        Records that were delivered as often as is allowed now are given up.
        """
        self.settings = settings
        for span in self.window.spans:
            if span.state is AVAILABLE and span.count >= settings.delivery_count_limit:
                self._give_up(span, DeadLetterCause.DELIVERY_LIMIT)
        self._join_all()

    def log_start(self, offset: int) -> None:
        """The log begins here now. Acquired records below it stay with their members."""
        if offset <= self._log_start:
            return
        self._log_start = offset
        window = self.window
        if window.start < offset <= window.end:
            window.cut(window.start, offset - 1)  # so that each lock is on one side
        self._lose(window.start, offset - 1)
        self._advance()

    def dead_letters(self) -> list[DeadLetters]:
        """What has to go to the dead-letter topic, in order, until `dead_lettered` says that it is there."""
        if not self.window.totals[ARCHIVING]:
            return []
        return [
            DeadLetters(span.first, span.last, span.count, span.cause)
            for span in self.window.spans
            if span.state is ARCHIVING and span.write <= self.written and span.cause is not None
        ]

    def dead_lettered(self, first: int, last: int) -> None:
        """These records are in the dead-letter topic; a part of what `dead_letters` gave will do."""
        for span in self.window.cut(first, last):
            span.cause = None
            self._apply(BURY_DONE, span)
        self.window.join(first, last, self.written)

    # Writes

    def take_write(self) -> StateWrite | None:
        """The next write; None while one is in flight, and when nothing has changed."""
        return self._writes.take(self.window)

    def write_done(self) -> None:
        """The write that was taken is persisted."""
        for first, last, _, _ in self._writes.done().ranges:
            self.window.join(first, last, self.written)
        self._advance()

    # Steps that several events have in common

    def _apply(self, transition: Transition, span: Span, *, until_ms: int = 0, member: str = "") -> bool:
        """Take the transition; whether it is to be written."""
        assert span.state in transition.sources, f"{span.state.name} does not {transition.name}"
        self.window.change(span, transition.target, until_ms=until_ms, member=member)
        if until_ms and (self.deadline_ms is None or until_ms < self.deadline_ms):
            self.deadline_ms = until_ms
        if transition.is_written:
            self._writes.mark(span, can_wait=transition is ACQUIRE and span.count == 1)
        elif transition is LOSE:
            span.write = 0  # the start offset need not wait: a new leader sees the same log
        return transition.is_written

    def _release(self, span: Span, now_ms: int) -> bool:
        if span.count >= self.settings.delivery_count_limit:
            return self._give_up(span, DeadLetterCause.DELIVERY_LIMIT)
        if span.last < self._log_start:
            return self._apply(LOSE, span)
        backoff_ms = self.settings.backoff_after(span.count)
        return self._apply(RELEASE, span, until_ms=now_ms + backoff_ms if backoff_ms else 0)

    def _give_up(self, span: Span, cause: DeadLetterCause) -> bool:
        if not self.settings.has_dead_letters:
            return self._apply(DROP, span)
        span.cause = cause
        return self._apply(BURY, span)

    def _lose(self, first: int, last: int) -> None:
        """The log has nothing to deliver in this range."""
        first, last = max(first, self.window.start), min(last, self.window.end)
        if first > last or not any(span.state is AVAILABLE for span in self.window.between(first, last)):
            return
        for span in self.window.cut(first, last):
            if span.state is AVAILABLE:
                self._apply(LOSE, span)
        self.window.join(first, last, self.written)

    def _join_all(self) -> None:
        if self.window.spans:
            self.window.join(self.window.start, self.window.end, self.written)
        self._advance()

    def _advance(self) -> None:
        """Move the start offset as far as what is persisted, or is told by the log, allows."""
        self.window.advance(self.written)
        if not self.window.spans:
            self.window.skip_to(self._log_start)
        self._writes.note_start(self.window.start)
