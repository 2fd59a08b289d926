"""Tells which messages in an object store belong to the history of the leader's log.

After an unclean election they may not: the new leader lacks messages that were committed and copied, and
gives their offsets to others. Leader epochs tell: an epoch has one leader, so two logs agree on all offsets
that both have in the same epoch. The leader knows where epochs begin beyond the start of its local log. Of
what lies below it can only say that epochs never go back: an epoch that its log begins with may be older.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from forebay.wire.tiers.manifest import Manifest, RemoteSegment

Epochs = Sequence[tuple[int, int]]
"""(epoch, start offset), ascending."""


def lost_from(manifest: Manifest, epochs: Epochs, log_start_offset: int, log_end_offset: int) -> int | None:
    """The first offset in the manifest that is not of the leader's history; None if all of it is.

    The manifest may begin beyond the history that its writer and the leader share: then what was deleted
    there was lost as well, and the leader has other messages at these offsets.
    """
    shared_end = next((start for epoch, start in epochs if epoch > manifest.leader_epoch), log_end_offset)
    if manifest.start_offset > shared_end:
        return shared_end
    for segment in manifest.segments:
        for epoch, start, end in _spans(segment):
            valid_to = _valid_to(epoch, start, epochs, log_start_offset, log_end_offset)
            if valid_to < end:
                return max(valid_to, segment.base_offset, manifest.segments[0].base_offset)
    return None


def end_of_epoch(manifest: Manifest, epoch: int) -> tuple[int, int] | None:
    """The last epoch up to this one, and its end, if a later one begins in the object store; None if not."""
    segments = manifest.segments
    number = bisect_right(segments, epoch, key=lambda segment: segment.last_epoch)
    if number == len(segments):
        return None
    before = [segments[number - 1].last_epoch] if number else [epoch]
    for each, start in segments[number].epochs:
        if each > epoch:
            return before[-1], max(start, segments[number].base_offset)
        before.append(each)
    return None


def _spans(segment: RemoteSegment) -> list[tuple[int, int, int]]:
    """(epoch, first offset, end) of each epoch in a segment."""
    starts = [max(start, segment.base_offset) for _, start in segment.epochs]
    ends = [*starts[1:], segment.next_offset]
    return [(epoch, start, end) for (epoch, _), start, end in zip(segment.epochs, starts, ends, strict=True)]


def _valid_to(epoch: int, start: int, epochs: Epochs, log_start: int, log_end: int) -> int:
    """How far messages of an epoch, from an offset on, are those of the leader's log."""
    if not epochs:
        return log_start  # an empty log that begins here
    first_epoch, first_start = epochs[0]
    if epoch < first_epoch:
        return max(first_start, start)
    for number, (known, known_start) in enumerate(epochs):
        if known == epoch:
            if number and log_start < known_start and start < known_start:
                return start
            return epochs[number + 1][1] if number + 1 < len(epochs) else log_end
    return start
