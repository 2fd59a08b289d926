"""The written parts of a log that may not be synced: recorded by its owner, taken by the syncing thread."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from forebay.storage.log.segment.segment import Segment


class Unsynced:
    """The lock guards every field. It is also held while another segment becomes the active one, and while
    segments are cut off or replaced: the state that a sync reads under the lock is consistent.
    """

    __slots__ = ("generation", "lock", "new_names", "segments")

    def __init__(self, segments: Sequence[Segment], *, new_names: bool) -> None:
        self.lock = Lock()
        self.segments = list(segments)
        """The sealed segments. The active segment always counts as unsynced."""
        self.new_names = new_names
        """True if files were created or renamed, so that the directory has to be synced too."""
        self.generation = 0
        """Changes whenever the end of the log is cut."""

    def forget(self, gone: Sequence[Segment]) -> None:
        """Under the lock: these segments are no longer part of the log."""
        self.segments = [segment for segment in self.segments if segment not in gone]
