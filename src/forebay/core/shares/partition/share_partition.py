"""A share partition: the deliveries of one share group from one partition, at the leader of the partition.

The window (record_window.py) has a state for every offset from the start offset (everything below is
finished) to the end offset (nothing above was ever acquired). The transitions are a table
(state_transitions.py).

Each event and its write (writes.py):

| event | the write says | who waits for the write |
|---|---|---|
| acquire, first delivery | nothing | nobody |
| acquire, redelivery | nothing, it proves that no other leader has taken over | the delivery |
| sent | AVAILABLE, count | the next delivery; of a first one nobody, see `is_write_due` |
| accept | ACKNOWLEDGED | the reply |
| gap, reject | ARCHIVED, or ARCHIVING with a dead-letter topic | the reply |
| release, lock timeout, end of a session | nothing more than `sent` has said | nobody |
| the same with the count at the limit | ARCHIVED or ARCHIVING | the reply to a release |
| in the dead-letter topic | ARCHIVED | nobody |
| the disk has not returned it intact for too long | ARCHIVED or ARCHIVING | nobody |
| renew; what was acquired and not sent; records that the log has lost | nothing | nobody |

Each write carries the start offset too; a start offset that moved by itself is written alone. At most one
write is in flight. Until it is done, no member has a record whose acknowledgement it holds: the record cannot
be acquired, a second acknowledgement is refused, and the start offset does not pass it. A write is never
rolled back: the runtime repeats it until it is done, or drops the whole object because another leader has
taken over. Then the new leader's state decides, and holds every acknowledgement whose reply was sent.

A delivery counts when it is sent, in memory at once and in the next write, and its lock begins then. A record
is sent again only after a write that was taken after its acquisition. So all its earlier deliveries are
persisted by then, and a leader that was replaced does not send it. A persisted count is never above the
number of deliveries; if a leader dies, only the last delivery can be forgotten. A record that was acquired
and cannot be sent (a write or a disk takes too long, the member is gone) was not delivered, and nothing has
to be corrected. An acquired record is persisted as AVAILABLE, and a new leader treats it like a released one:
it delivers it again, or, with the count at the limit, archives it.

A released record may have to wait (backoff) before it is acquired again. Locks and backoffs are in memory, in
monotonic time. `deadline_ms` is no later than the first of them; `expire` looks at all spans and sets it
anew. So a lock that is acknowledged in time costs nothing, and the window is scanned once per lock duration.

A record is ARCHIVING until it is in the dead-letter topic. It is handed out as a dead letter only once that
state is persisted, so it cannot be delivered after it was dead-lettered.

The caller looks at `is_write_due`, `deadline_ms` and `next_fetch_offset` after each operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forebay.core.shares.partition.acknowledgements import AcknowledgeType, checked
from forebay.core.shares.partition.acquired_ranges import Acquired, Demand, LogRead, choose, throttle_from
from forebay.core.shares.partition.description import Description, describe
from forebay.core.shares.partition.record_window import Range, Span
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.share_steps import ShareSteps
from forebay.core.shares.partition.state_transitions import (
    ACCEPT,
    ACQUIRE,
    ACQUIRED,
    ARCHIVING,
    AVAILABLE,
    BURY_DONE,
    GAP,
    RENEW,
    SEND,
    DeadLetterCause,
)
from forebay.core.shares.partition.writes import StateRange, StateWrite
from forebay.errors import ErrorCode
from forebay.wire.messages.share_fetch import AcknowledgementBatch


class Acquisition(NamedTuple):
    ranges: list[Acquired]
    write: int
    """The records may be sent once `written` has reached this; then ask `still_held`."""
    hold: int = 0
    """The number of the acquisition, for `still_held`, `sent` and `take_back`."""


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


class SharePartition(ShareSteps):
    def __init__(
        self,
        settings: ShareSettings,
        *,
        start_offset: int,
        ranges: Iterable[StateRange] = (),
        leader_epoch: int,
        state_epoch: int,
    ) -> None:
        """`start_offset` and `ranges` are the persisted state; the start offset is resolved. Raises
        KafkaError if the ranges are not in order.
        """
        super().__init__(settings, start_offset, ranges)
        self.leader_epoch = leader_epoch
        self.state_epoch = state_epoch
        """Both epochs go into every write. They fence the previous leader, and writes to a state that was
        reset."""
        self._holds = 0
        """Number of the last acquisition."""
        self.configure(settings)
        self._advance()

    # For the runtime

    @property
    def start_offset(self) -> int:
        return self.window.start

    @property
    def changes(self) -> int:
        """Number of the write that holds, or will hold, the newest change."""
        return self._writes.newest

    @property
    def is_write_due(self) -> bool:
        """True if `take_write` should be called as soon as no write is in flight.

        A first delivery can wait a little: its acknowledgement comes soon and replaces it in the write.
        """
        return self._writes.is_due

    def next_fetch_offset(self) -> int | None:
        """The offset where the next read begins; None while nothing may be acquired."""
        first = self.window.first_acquirable()
        if first is not None:
            return first
        if self.window.room(self.settings.record_locks_max) <= 0:
            return None
        return max(self.window.end + 1, self._log_start)

    def holds(self, member_id: str) -> bool:
        """True while a member has a lock here."""
        return member_id in self.window.held

    def describe(self, now_ms: int) -> Description:
        return describe(self.window, self.settings.record_locks_max, now_ms)

    # Deliveries

    def acquire(self, member_id: str, read: LogRead, demand: Demand, *, now_ms: int) -> Acquisition:
        """Acquire records of a read that began at `next_fetch_offset` for a member, until they are `sent`.

        The read may be older than the last change: only records that are available now are acquired. An
        acquisition without records that has moved `next_fetch_offset` needs another read.
        """
        if demand.records_max <= 0:
            return Acquisition([], 0)
        end = self.window.end
        self._extend(read, demand)
        self._note_readable(read.first, read.last)
        for first, last in read.empty_ranges():
            self._lose(first, last)
        acquired: list[Acquired] = []
        self._holds += 1
        for first, last in choose(self.window, read, demand, self.settings.delivery_count_limit):
            for piece in read.cut(first, last, demand.batch_size):
                (span,) = self.window.cut(*piece)
                acquired.append(self._hold(span, member_id, now_ms))
        self._forget_undelivered(end)
        self._advance()
        is_redelivery = any(each.delivery_count > 1 for each in acquired)
        return Acquisition(acquired, self._writes.next() if is_redelivery else 0, self._holds)

    def _extend(self, read: LogRead, demand: Demand) -> None:
        """Extend the window by the records that were read after its end, while it has room."""
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
        """Remove never delivered records from the end of the window; the next fetch takes them."""
        first = max(end + 1, self.window.start)
        if first > self.window.end:
            return
        for span in self.window.between(first, self.window.end):
            if span.state is AVAILABLE:
                self.window.truncate(max(first, span.first) - 1)
                break

    def _hold(self, span: Span, member_id: str, now_ms: int) -> Acquired:
        span.hold, span.is_sent = self._holds, False
        span.since_ms = now_ms
        if span.count < throttle_from(self.settings.delivery_count_limit):
            span.acquired_together = span.size
        until_ms = now_ms + self.settings.lock_ms
        self._apply(ACQUIRE, span, until_ms=until_ms, member=member_id)
        return Acquired(span.first, span.last, span.count + 1)

    def still_held(self, hold: int, ranges: Iterable[Acquired]) -> list[Acquired]:
        """The ranges of an acquisition that its member still holds."""
        held: list[Acquired] = []
        for first, last, count in ranges:
            first, last = max(first, self.window.start), min(last, self.window.end)
            if first > last:
                continue
            held += (
                Acquired(max(first, span.first), min(last, span.last), count)
                for span in self.window.between(first, last)
                if span.state is ACQUIRED and span.hold == hold
            )
        return held

    def sent(self, hold: int, ranges: Iterable[Acquired], *, now_ms: int) -> None:
        """Note that these records, all of them `still_held`, are sent to their member: the lock begins."""
        until_ms = now_ms + self.settings.lock_ms
        for first, last, count in ranges:
            for span in self.window.cut(first, last):
                assert span.hold == hold, "only what is held is sent"
                assert not span.is_sent, "what is held is sent once"
                span.count, span.is_sent = count, True
                span.since_ms = now_ms
                self._apply(SEND, span, until_ms=until_ms, member=span.member)

    def take_back(self, hold: int, ranges: Iterable[Acquired], *, until_ms: int = 0) -> None:
        """Undo an acquisition that was not sent. It does not count; the records are available from `until_ms`
        on."""
        for first, last, _ in self.still_held(hold, ranges):
            for span in self.window.cut(first, last):
                if not span.is_sent:
                    self._undo(span, until_ms)
            self.window.join(first, last, self.written)
        self._advance()

    def unreadable(
        self, first: int, last: int, *, patience_ms: int | None, retry_ms: int, now_ms: int
    ) -> int:
        """Note that the disk does not return these records, from `next_fetch_offset` on; how many were given
        up.

        They are read again after a pause, and given up after `patience_ms`. None: the disk as a whole fails,
        and nothing is given up.
        """
        self._extend(LogRead(first, last, [(first, last)]), Demand(last - first + 1, 1, True))
        first, last = max(first, self.window.start), min(last, self.window.end)
        given_up = 0
        for span in self.window.cut(first, last) if first <= last else ():
            if span.is_acquirable:
                if patience_ms is None:
                    span.failing_since_ms = None
                elif span.failing_since_ms is None:
                    span.failing_since_ms, self._is_failing = now_ms, True
                since_ms = span.failing_since_ms
                if patience_ms is not None and since_ms is not None and now_ms - since_ms >= patience_ms:
                    span.failing_since_ms = None
                    self._give_up(span, DeadLetterCause.UNREADABLE)
                    given_up += span.size
                else:
                    self._pause(span, now_ms + retry_ms)
        self._join_all()
        return given_up

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
        ranges = [(run.first, run.last) for run in runs]
        for run, spans in zip(runs, self.window.cut_each(ranges), strict=True):
            for span in spans:
                is_written |= self._acknowledge(span, run.type, now_ms)
        self.window.join_each(ranges, self.written)
        self._advance()
        return Acknowledgement(ErrorCode.NONE, self.changes if is_written else 0)

    def _acknowledge(self, span: Span, kind: AcknowledgeType, now_ms: int) -> bool:
        """True if the change has to be written."""
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
        """Release all records that a member holds: its session has ended."""
        if not self.holds(member_id):
            return
        for span in self.window.spans:
            if span.state is ACQUIRED and span.member == member_id:
                self._release(span, now_ms)
        self._join_all()

    def expire(self, now_ms: int) -> None:
        """End the locks and backoffs whose time is over."""
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

    # Other changes

    def configure(self, settings: ShareSettings) -> None:
        """Apply other settings. Running locks and backoffs are not changed.

        Records that have reached the new delivery limit are given up.
        """
        self.settings = settings
        for span in self.window.spans:
            if span.state is AVAILABLE and span.count >= settings.delivery_count_limit:
                self._give_up(span, DeadLetterCause.DELIVERY_LIMIT)
        self._join_all()

    def log_start(self, offset: int) -> None:
        """Note that the log begins here now. Acquired records below it stay with their members."""
        if offset <= self._log_start:
            return
        self._log_start = offset
        window = self.window
        if window.start < offset <= window.end:
            window.cut(window.start, offset - 1)  # so that each lock is on one side
        self._lose(window.start, offset - 1)
        self._advance()

    def dead_letters(self) -> list[DeadLetters]:
        """The records to copy to the dead-letter topic, in order, until `dead_lettered` is called for
        them."""
        if not self.window.totals[ARCHIVING]:
            return []
        return [
            DeadLetters(span.first, span.last, span.count, span.cause)
            for span in self.window.spans
            if span.state is ARCHIVING and span.write <= self.written and span.cause is not None
        ]

    def dead_lettered(self, ranges: Sequence[Range]) -> None:
        """Note that records from `dead_letters`, in order, are in the dead-letter topic."""
        for spans in self.window.cut_each(ranges):
            for span in spans:
                span.cause = None
                self._apply(BURY_DONE, span)
        self.window.join_each(ranges, self.written)

    # Writes

    def take_write(self) -> StateWrite | None:
        """The next write; None while one is in flight, and when nothing has changed."""
        return self._writes.take(self.window)

    def write_done(self) -> None:
        """Note that the write in flight is persisted."""
        ranges = [(first, last) for first, last, _, _ in self._writes.done().ranges]
        self.window.join_each(ranges, self.written)
        self._advance()
