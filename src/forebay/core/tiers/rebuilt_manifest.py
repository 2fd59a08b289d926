"""Which segments a lost manifest has listed, as far as their objects tell.

The objects may be more than it listed: uploads that were given up, what retention has let go and is to be
deleted, and what an unclean election has lost. An offset may be in several of them, then. The leader of the
highest epoch has copied last: what it has counts, and what others have below that. (A leader that copies
offsets again which another has copied had cut these off.) Epochs never go back within a history.

Nothing tells which messages were deleted by DeleteRecords, or by retention a moment ago. They are listed
again until retention lets them go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forebay.core.tiers.manifest_changes import clipped
from forebay.wire.tiers.manifest import RemoteSegment


class FoundSegment(NamedTuple):
    leader_epoch: int
    """Of the leader that copied it."""
    segment: RemoteSegment


def listed_segments(found: Sequence[FoundSegment]) -> tuple[RemoteSegment, ...]:
    """The longest run without gaps through the last segment of the last leader, oldest first.

    Behind it there may be segments of earlier leaders, if the last one had to copy again what lies before
    them. Whether they are of its history, the next leader finds out when it claims the manifest.
    """
    if not found:
        return ()
    last = max(found, key=lambda each: (each.leader_epoch, each.segment.next_offset))
    run, epoch = [last.segment], last.leader_epoch
    while (before := _before(found, run[-1], epoch)) is not None:
        epoch, segment = before
        run.append(segment)
    run.reverse()
    while (behind := _behind(found, run[-1])) is not None:
        run.append(behind)
    return tuple(run)


def runs_of_segments(found: Sequence[FoundSegment]) -> list[tuple[RemoteSegment, ...]]:
    """The run of the last leader first, then what lies before it and before each gap."""
    runs = []
    while run := listed_segments(found):
        runs.append(run)
        first, first_epoch = run[0].base_offset, run[0].epochs[0][0]
        found = [
            each
            for each in found
            if each.segment.next_offset < first and each.segment.last_epoch <= first_epoch
        ]
    return runs


def _behind(found: Sequence[FoundSegment], before: RemoteSegment) -> RemoteSegment | None:
    """The segment that begins where another ends. Of several that one whose leader came last."""
    fitting = [
        each
        for each in found
        if each.segment.base_offset == before.next_offset and each.segment.epochs[0][0] >= before.last_epoch
    ]
    last = max(fitting, key=lambda each: (each.leader_epoch, each.segment.next_offset), default=None)
    return None if last is None else last.segment


def _before(found: Sequence[FoundSegment], after: RemoteSegment, epoch_max: int) -> FoundSegment | None:
    """The segment that ends where another begins, or its part before that. Of several that one whose leader
    came last, though not after the other's, and of its segments the longest.

    Only in a manifest that was made anew before, a leader may have copied what lies before segments of an
    earlier one.
    """
    offset = after.base_offset
    fitting = [
        FoundSegment(epoch, clipped(segment, offset))
        for epoch, segment in found
        if segment.base_offset < offset <= segment.next_offset
    ]
    own = [each for each in fitting if 0 <= each.segment.last_epoch <= after.epochs[0][0]]
    return max(
        own,
        key=lambda each: (each.leader_epoch <= epoch_max, each.leader_epoch, -each.segment.base_offset),
        default=None,
    )
