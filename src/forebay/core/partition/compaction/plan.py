"""Decides which logs to compact, how far, and in which pieces. Times and sizes are passed in.

A compacted log has a clean part, in which each key occurs once, followed by a dirty part. Cleaning reads the
dirty part for the latest offset of each key, and then rewrites the log from its start, without messages that
have a later message of the same key.

Not everything may be cleaned: the active segment stays as it is, and so do uncommitted messages, open
transactions, and everything from the first message that is younger than min.compaction.lag.ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from forebay.lazy import dataclass

OFFSET_RANGE_MAX = 2**31 - 1
"""Offsets in a segment are stored relative to its base."""


class CleanableSpan(Protocol):
    """The properties of a segment that the plan needs."""

    @property
    def base_offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def largest_timestamp(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    min_dirty_ratio: float = 0.5
    min_lag_ms: int = 0
    max_lag_ms: int = 2**63 - 1


class CompactionPlan(NamedTuple):
    first_dirty_offset: int
    end_offset: int
    """Whole segments below this offset may be cleaned."""
    dirty_ratio: float
    overdue: bool
    """A message is older than max.compaction.lag.ms, so the dirty ratio does not count."""

    @property
    def urgency(self) -> tuple[bool, float]:
        """The log with the highest urgency is compacted first."""
        return self.overdue, self.dirty_ratio


def plan_compaction(
    segments: Sequence[CleanableSpan],
    policy: CompactionPolicy,
    *,
    now_ms: int,
    log_start_offset: int,
    first_dirty_offset: int,
    last_stable_offset: int,
    first_dirty_timestamp: int | None = None,
) -> CompactionPlan | None:
    """The part of these segments to clean, or None. They are given oldest first, the active one last.

    `first_dirty_offset`: the end of the last cleaning; an impossible one is ignored.
    """
    end_of_log = segments[-1].next_offset
    first_dirty = max(first_dirty_offset, log_start_offset)
    if first_dirty > end_of_log:
        first_dirty = log_start_offset
    end = _first_uncleanable(segments, policy, now_ms, first_dirty, last_stable_offset)
    clean_bytes = sum(s.size for s in segments if s.next_offset <= first_dirty)
    dirty_bytes = sum(s.size for s in segments if s.next_offset > first_dirty and s.next_offset <= end)
    if not dirty_bytes or end <= first_dirty:
        return None
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    overdue = first_dirty_timestamp is not None and 0 <= first_dirty_timestamp < now_ms - policy.max_lag_ms
    if not overdue and ratio <= policy.min_dirty_ratio:
        return None
    return CompactionPlan(first_dirty, end, ratio, overdue)


def _first_uncleanable(
    segments: Sequence[CleanableSpan],
    policy: CompactionPolicy,
    now_ms: int,
    first_dirty: int,
    last_stable_offset: int,
) -> int:
    """The base offset of the first segment that has to stay as it is."""
    for segment in segments[:-1]:
        too_young = (
            policy.min_lag_ms > 0
            and segment.next_offset > first_dirty
            and segment.largest_timestamp > now_ms - policy.min_lag_ms
        )
        if too_young or segment.next_offset > last_stable_offset:
            return segment.base_offset
    return segments[-1].base_offset


class GroupableSegment(Protocol):
    """A segment and the sizes that limit merging."""

    @property
    def base_offset(self) -> int: ...

    @property
    def next_base(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def index_bytes(self) -> int: ...


G = TypeVar("G", bound=GroupableSegment)


def group_segments(segments: Sequence[G], *, segment_bytes: int, index_bytes: int) -> list[list[G]]:
    """Groups of neighbours to merge into one segment each: small ones left by cleaning are joined."""
    groups: list[list[G]] = []
    size = index_size = 0
    for segment in segments:
        size += segment.size
        index_size += segment.index_bytes
        fits = (
            bool(groups)
            and size <= segment_bytes
            and index_size <= index_bytes
            and segment.next_base - 1 - groups[-1][0].base_offset <= OFFSET_RANGE_MAX
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index_size = segment.size, segment.index_bytes
    return groups
