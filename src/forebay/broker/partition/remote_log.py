"""The part of a partition that is in an object store, as its leader knows it.

The event loop owns it. `broker/tiers/` reads and writes the manifest; everybody else only asks. Until the
manifest has been read in this term, nothing is known, and nothing local is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from forebay.core.tiers.lineage import end_of_epoch
from forebay.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from forebay.wire.tiers.manifest import Manifest


class RemoteLog:
    __slots__ = ("failure", "known", "manifest", "on_segment_closed")

    def __init__(self) -> None:
        self.known = False
        """True if the manifest was read, and claimed, in the present term."""
        self.manifest: Manifest | None = None
        """None if it is not known, or nothing was ever copied."""
        self.failure: str | None = None
        """Why the last work on it failed; None if it did not."""
        self.on_segment_closed: Callable[[Any], None] | None = None
        """Called with the partition when there is another segment to copy."""

    def forget(self) -> None:
        """The term is over: another leader may change the manifest."""
        self.known, self.manifest, self.failure = False, None, None

    def start_offset(self, local_start_offset: int) -> int:
        """Where the partition begins, given where its local log does."""
        manifest = self.manifest
        if manifest is None:
            return local_start_offset
        if manifest.segments:
            return manifest.first_offset
        return max(local_start_offset, manifest.start_offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The last leader epoch up to this one, and its end, if a later one begins in the object store; None
        if not. Raises KafkaError while that is not known."""
        if not self.known:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"it is not known yet where leader epoch {epoch} ends in the object store; ask again",
            )
        return None if self.manifest is None else end_of_epoch(self.manifest, epoch)

    @property
    def copied_to(self) -> int:
        """Everything below is in the object store, or deleted; -1 if that is not known."""
        return -1 if self.manifest is None else self.manifest.next_offset
