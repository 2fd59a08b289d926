"""What a leader makes of the manifest that it finds at the beginning of its term."""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.tiers.lineage import Epochs, lost_from
from forebay.core.tiers.manifest_changes import begun_anew, cut_off
from forebay.wire.tiers.manifest import Manifest


class OwnHistory(NamedTuple):
    manifest: Manifest
    """Without what is not of the leader's history, or does not connect to its log."""
    losses: list[tuple[str, int]]
    """What is to be said of that, each with the offset where it begins."""


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
    return OwnHistory(manifest, losses)
