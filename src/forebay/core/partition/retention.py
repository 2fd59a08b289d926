"""Decides which of a log's oldest segments have expired.

Whole segments are deleted, from the front, as long as one of three conditions holds for the next: all of it
lies before the log start offset; the log without it is still at least retention.bytes; its newest message is
older than retention.ms. Uncommitted messages stay, and so do messages that a topic's delay hides from
consumers: their retention begins when they become visible. Every log keeps an active segment, so if even that
one has expired the log must be rolled first, and then it is deleted with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from forebay.lazy import dataclass

NO_LIMIT = -1


class SegmentSpan(Protocol):
    """The properties of a segment that the decision needs."""

    @property
    def next_offset(self) -> int:
        """The base offset of the next segment; for the active segment the log end offset."""

    @property
    def size(self) -> int: ...

    @property
    def largest_timestamp(self) -> int:
        """The largest of any message in it; negative if none has one, and then the segment does not age."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RetentionPolicy:
    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    delay_ms: int = 0
    """The age at which messages become visible."""
    deletes: bool = True
    """True if cleanup.policy has `delete`; without it only the log start offset counts."""


class RetentionPlan(NamedTuple):
    delete_count: int
    """The number of segments to delete from the front, after rolling."""
    roll_first: bool
    """True if the active segment is among them."""


def plan_retention(
    segments: Sequence[SegmentSpan],
    policy: RetentionPolicy,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> RetentionPlan:
    """The segments to delete. They are given oldest first, the active one last."""
    excess_bytes = _excess(segments, policy)
    last = len(segments) - 1
    count = 0
    for number, segment in enumerate(segments):
        is_active = number == last
        before_start = not is_active and segment.next_offset <= log_start_offset
        outlived = policy.deletes and _outlived(segment, policy, excess_bytes, now_ms)
        if not (before_start or outlived) or segment.next_offset > high_watermark:
            break
        if is_active and not segment.size:
            break
        excess_bytes -= segment.size
        count += 1
    return RetentionPlan(count, roll_first=count > 0 and count > last)


def _excess(segments: Sequence[SegmentSpan], policy: RetentionPolicy) -> int:
    """Bytes to delete until the log is as small as retention.bytes; negative for none."""
    if policy.retention_bytes < 0:
        return -1
    return sum(segment.size for segment in segments) - policy.retention_bytes


def _outlived(segment: SegmentSpan, policy: RetentionPolicy, excess_bytes: int, now_ms: int) -> bool:
    newest = segment.largest_timestamp
    visible_ms = now_ms - newest - policy.delay_ms
    if policy.delay_ms and newest >= 0 and visible_ms < 0:
        return False
    return excess_bytes >= segment.size or (newest >= 0 and 0 <= policy.retention_ms < visible_ms)
