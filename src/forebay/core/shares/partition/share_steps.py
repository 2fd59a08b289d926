"""Changes of a share partition that several events use; share_partition.py has the events."""

from __future__ import annotations

from collections.abc import Iterable

from forebay.core.shares.partition.loading import loaded
from forebay.core.shares.partition.record_window import Span
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.state_transitions import (
    AVAILABLE,
    BURY,
    DROP,
    LOSE,
    RELEASE,
    SEND,
    UNDO,
    DeadLetterCause,
    Transition,
)
from forebay.core.shares.partition.writes import StateRange, Writes


class ShareSteps:
    def __init__(self, settings: ShareSettings, start_offset: int, ranges: Iterable[StateRange]) -> None:
        self.settings = settings
        self.window = loaded(start_offset, ranges, settings.delivery_count_limit)
        """Read-only for callers."""
        self.deadline_ms: int | None = None
        """When to call `expire`."""
        self._writes = Writes(start_offset)
        self._log_start = 0
        self._is_failing = False
        """True while the last read of some records has failed."""

    @property
    def written(self) -> int:
        """Number of the last write that is done."""
        return self._writes.written

    def _apply(self, transition: Transition, span: Span, *, until_ms: int = 0, member: str = "") -> bool:
        """Apply the transition; True if it has to be written."""
        assert span.state in transition.sources, f"{span.state.name} does not {transition.name}"
        self.window.change(span, transition.target, until_ms=until_ms, member=member)
        self._note_deadline(until_ms)
        if transition.is_written:
            self._writes.mark(span, can_wait=transition is SEND and span.count == 1)
        elif transition is LOSE:
            span.write = 0  # the start offset need not wait: a new leader sees the same log
        return transition.is_written

    def _pause(self, span: Span, until_ms: int) -> None:
        """Keep an AVAILABLE record from being acquired until then."""
        self.window.change(span, AVAILABLE, until_ms=until_ms)
        self._note_deadline(until_ms)

    def _note_deadline(self, until_ms: int) -> None:
        if until_ms and (self.deadline_ms is None or until_ms < self.deadline_ms):
            self.deadline_ms = until_ms

    def _release(self, span: Span, now_ms: int) -> bool:
        if not span.is_sent:
            return self._undo(span)
        if span.count >= self.settings.delivery_count_limit:
            return self._give_up(span, DeadLetterCause.DELIVERY_LIMIT)
        if span.last < self._log_start:
            return self._apply(LOSE, span)
        backoff_ms = self.settings.backoff_after(span.count)
        return self._apply(RELEASE, span, until_ms=now_ms + backoff_ms if backoff_ms else 0)

    def _undo(self, span: Span, until_ms: int = 0) -> bool:
        """Undo the acquisition of records that were not sent. They are available again from `until_ms` on."""
        if span.last < self._log_start:
            return self._apply(LOSE, span)
        return self._apply(UNDO, span, until_ms=until_ms)

    def _give_up(self, span: Span, cause: DeadLetterCause) -> bool:
        if not self.settings.has_dead_letters:
            return self._apply(DROP, span)
        span.cause = cause
        return self._apply(BURY, span)

    def _note_readable(self, first: int, last: int) -> None:
        """Note that the disk has returned this range. Its time of failing begins anew if it fails again."""
        first, last = max(first, self.window.start), min(last, self.window.end)
        if not self._is_failing or first > last:
            return
        for span in self.window.cut(first, last):
            span.failing_since_ms = None
        self.window.join(first, last, self.written)
        self._is_failing = any(span.failing_since_ms is not None for span in self.window.spans)

    def _lose(self, first: int, last: int) -> None:
        """Note that the log has nothing to deliver in this range."""
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
        """Move the start offset over finished records that are persisted, or that the log has lost."""
        self.window.advance(self.written)
        if not self.window.spans:
            self.window.skip_to(self._log_start)
        self._writes.note_start(self.window.start)
