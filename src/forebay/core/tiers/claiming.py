"""What a leader makes of the manifest that it finds at the beginning of its term.

Whatever a manifest does not list between its start and its end was never there, and what lies below its start
was deleted. Two things it must not be believed: that messages have gone which lie between its end and the
leader's log (it is an older one, or lacks segments), and, if it was made anew, that messages were deleted
which the leader's log still has.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.tiers.lineage import Epochs, lost_from
from forebay.core.tiers.manifest_changes import begun_anew, cut_off
from forebay.wire.tiers.manifest import LOSS_ACCEPTED, REBUILT, Manifest


class OwnHistory(NamedTuple):
    manifest: Manifest
    """Without what is not of the leader's history, or does not connect to its log."""
    losses: list[tuple[str, int]]
    """What is to be said of that, each with the offset where it begins."""


def lacks_segments(
    manifest: Manifest, epochs: Epochs, log_start_offset: int, log_end_offset: int, known_end: int = -1
) -> bool:
    """True if it is not the one that counts: it ends before the leader's log begins, although no history was
    lost, or before the one that the leader has known in its term (`known_end`)."""
    if manifest.writer == LOSS_ACCEPTED:
        return False
    lost = lost_from(manifest, epochs, log_start_offset, log_end_offset)
    if lost is not None:
        # One made anew may end with what was lost, because what came instead of it is missing as well.
        return lost < known_end or (manifest.writer == REBUILT and lost < log_start_offset)
    end = manifest.next_offset
    return end < known_end or (bool(manifest.segments) and end < log_start_offset)


def lists_too_little(manifest: Manifest, epochs: Epochs, log_start_offset: int, log_end_offset: int) -> bool:
    """True if it is not the one that counts, provided that there are segments which it does not name: it
    lists none, and ends before the leader's log begins. Another leader, whose log has more, has claimed one
    made anew, and has not copied yet what that lacked."""
    return (
        not manifest.segments
        and manifest.writer != LOSS_ACCEPTED
        and manifest.next_offset < log_start_offset
        and lost_from(manifest, epochs, log_start_offset, log_end_offset) is None
    )


def own_history(
    manifest: Manifest, epochs: Epochs, log_start_offset: int, log_end_offset: int, delete_at_ms: int
) -> OwnHistory:
    """`epochs`: those of the leader's log. What is taken out is deleted at that time."""
    losses = []
    lost = lost_from(manifest, epochs, log_start_offset, log_end_offset)
    if lost is not None:
        losses.append(("messages in the object store are of a lost history, and are not served", lost))
        manifest = cut_off(manifest, lost, delete_at_ms)
    if manifest.next_offset < log_start_offset:
        if manifest.segments or lost is not None:
            skipped = "messages between the object store and the local log are missing: they are skipped"
            losses.append((skipped, log_start_offset))
        manifest = begun_anew(manifest, log_start_offset, delete_at_ms)
    elif manifest.is_made_anew and manifest.first_offset > log_start_offset:
        # The log has all of it, and more, but those of other replicas may not: nothing is doomed.
        manifest = begun_anew(manifest, log_start_offset, delete_at_ms)._replace(doomed=manifest.doomed)
    return OwnHistory(manifest, losses)
