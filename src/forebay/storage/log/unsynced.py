"""The written parts of a log that may not be synced: recorded by its owner, taken by the syncing thread."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from forebay.storage.log.segment.segment import Segment


class Unsynced:
    """The lock guards every field. It is also held while another segment becomes the active one, and while
    segments are cut off or replaced: the state that a sync reads under the lock is consistent.
    """

    __slots__ = (
        "failed_snapshot",
        "failed_snapshots",
        "found_snapshot",
        "generation",
        "lock",
        "new_names",
        "segments",
        "snapshot",
        "synced_snapshot",
    )

    def __init__(self, segments: Sequence[Segment], *, new_names: bool) -> None:
        self.lock = Lock()
        self.segments = list(segments)
        """The sealed segments. The active segment always counts as unsynced."""
        self.new_names = new_names
        """True if files were created or renamed, so that the directory has to be synced too."""
        self.snapshot: int | None = None
        """The offset of the last snapshot of producers, if it was not synced."""
        self.synced_snapshot: int | None = None
        """The offset of the last one that is known to be synced."""
        self.found_snapshot = -1
        """The offset of one that the process before may have synced; -1 if there was none."""
        self.failed_snapshot = -1
        """The offset of the last one that could not be synced; -1 for none."""
        self.failed_snapshots = 0
        """The number of those since one was synced."""
        self.generation = 0
        """Changes whenever the end of the log is cut."""

    def snapshot_up_to(self, end: int) -> int | None:
        """Under the lock: the snapshot that is to be synced with what the log has up to this offset."""
        return self.snapshot if self.snapshot is not None and self.snapshot <= end else None

    def snapshot_tried(self, snapshot: int | None, *, synced: bool) -> None:
        """Under the lock: a newer one may have been written meanwhile.

        One that could not be synced is not tried again, as an error may be reported once only: another one is
        written when batches are to be deleted.
        """
        if snapshot is not None and synced:
            self.synced_snapshot, self.failed_snapshots = snapshot, 0
        elif snapshot is not None:
            self.failed_snapshot, self.failed_snapshots = snapshot, self.failed_snapshots + 1
        if self.snapshot == snapshot:
            self.snapshot = None

    def note_snapshot(self, snapshot: int) -> None:
        """Under the lock: there is a whole one, which may not be synced."""
        self.found_snapshot = snapshot
        self.snapshot = snapshot if snapshot != self.synced_snapshot else None

    def forget_snapshots_beyond(self, end: int) -> None:
        """Under the lock: the log ends here now."""
        if self.snapshot is not None and self.snapshot > end:
            self.snapshot = None
        if self.synced_snapshot is not None and self.synced_snapshot > end:
            self.synced_snapshot = None
        if self.failed_snapshot > end:
            self.failed_snapshot = -1

    @property
    def never_synced(self) -> range:
        """Under the lock: the offsets of snapshots that nothing relies on. None of them was synced, nor could
        a later one be."""
        synced = -1 if self.synced_snapshot is None else self.synced_snapshot
        return range(max(synced, self.found_snapshot) + 1, self.failed_snapshot)

    def tells_producers_before(self, offset: int) -> bool:
        """True if a synced snapshot tells of all producers of batches before the offset."""
        return self.synced_snapshot is not None and self.synced_snapshot >= offset

    def forget(self, gone: Sequence[Segment]) -> None:
        """Under the lock: these segments are no longer part of the log."""
        self.segments = [segment for segment in self.segments if segment not in gone]
