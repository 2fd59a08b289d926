"""Plans the copying of segments, and the deletions in the object store and on the local disk.

From the local disk goes only what the manifest has, or what retention deletes everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from forebay.core.partition.retention import RetentionPolicy, SegmentSpan, plan_retention
from forebay.wire.tiers.manifest import Manifest


class LocalSpan(SegmentSpan, Protocol):
    @property
    def base_offset(self) -> int: ...


class Copy(NamedTuple):
    """The part of a closed local segment that is not in the object store yet."""

    base_offset: int
    next_offset: int


class RetainedFrom(NamedTuple):
    start_offset: int
    """Everything below has expired."""
    roll_first: bool
    """True if the active segment has expired, too."""


def segments_to_copy(
    closed: Sequence[LocalSpan], remote_end: int, *, stable_offset: int, count_max: int
) -> list[Copy]:
    """The next segments to copy, oldest first. `closed` are all local segments but the active one.

    `stable_offset`: everything below is committed, durable here, and part of no open transaction.
    """
    copies: list[Copy] = []
    for segment in closed:
        base_offset = max(segment.base_offset, remote_end)
        if segment.next_offset > stable_offset or len(copies) == count_max:
            break
        if segment.next_offset > base_offset and segment.size:
            copies.append(Copy(base_offset, segment.next_offset))
    return copies


def copy_lag(local: Sequence[LocalSpan], remote_end: int) -> tuple[int, int]:
    """(segments, bytes) of closed local segments that are not in the object store."""
    waiting = [segment for segment in local[:-1] if segment.next_offset > remote_end]
    return len(waiting), sum(segment.size for segment in waiting)


def retained_from(
    manifest: Manifest | None,
    local: Sequence[LocalSpan],
    policy: RetentionPolicy,
    *,
    now_ms: int,
    start_offset: int,
    high_watermark: int,
) -> RetainedFrom:
    """Where the messages begin that retention keeps, counting both parts of the partition.

    `local`: the active segment last.
    """
    remote = () if manifest is None else manifest.segments
    remote_end = manifest.next_offset if remote and manifest is not None else -1
    rest = [segment for segment in local if segment.next_offset > remote_end or segment is local[-1]]
    spans: list[SegmentSpan] = [*remote, *rest]
    plan = plan_retention(
        spans, policy, now_ms=now_ms, log_start_offset=start_offset, high_watermark=high_watermark
    )
    if not plan.delete_count:
        return RetainedFrom(start_offset, False)
    return RetainedFrom(max(spans[plan.delete_count - 1].next_offset, start_offset), plan.roll_first)


class LocalDeletion(NamedTuple):
    segments: int
    """How many to delete from the front of the local log."""
    roll_first: bool
    """True if the active segment should be closed, so that it can be copied and deleted."""
    next_at_bytes: int | None
    """How large the local log is when the next segment may go for its size; None if that is not what keeps
    it."""


def local_deletion(
    local: Sequence[LocalSpan],
    policy: RetentionPolicy,
    *,
    now_ms: int,
    copied_to: int,
    log_start_offset: int,
    high_watermark: int,
) -> LocalDeletion:
    """Which local segments may go: they are past local retention, and the manifest has them.

    `policy` is the local one. `copied_to`: the manifest has everything below this offset, or retention has
    deleted it. A new leader may know of a lower high watermark than the one before, which has copied more.
    """
    plan = plan_retention(
        local, policy, now_ms=now_ms, log_start_offset=log_start_offset, high_watermark=high_watermark
    )
    count = 0
    for segment in local[: min(plan.delete_count, len(local) - 1)]:
        if segment.next_offset > copied_to:
            break
        count += 1
    return LocalDeletion(count, plan.roll_first, _next_at_bytes(local[count:], policy, copied_to))


def _next_at_bytes(left: Sequence[LocalSpan], policy: RetentionPolicy, copied_to: int) -> int | None:
    is_copied = len(left) > 1 and left[0].next_offset <= copied_to
    if not is_copied or policy.retention_bytes < 0 or not policy.deletes:
        return None
    at_bytes = policy.retention_bytes + left[0].size
    is_held_by_size = at_bytes > sum(segment.size for segment in left)
    return at_bytes if is_held_by_size else None  # something else keeps it, which time changes
