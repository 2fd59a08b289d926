"""Leader epochs of a partition: the start offset of each. Replicas use them to find where they differ.

Kept in memory in order, and in `leader-epoch-checkpoint` beside the log. A new epoch is written to the file
by `datasync`, which waits for the device, in any thread: when a thousand partitions change their leader, the
event loop does not wait for a thousand syncs. It has to happen before the recovery point of the log moves
beyond the epoch's start. Until then a crash loses nothing: every batch carries its epoch, and those after the
recovery point are read again, and trusted instead of the file.

A log that is short and has a single epoch has no file: when it is opened, its epoch is read from its batches
(broker/partition/producer_replay.py). So the first message to a partition writes one file less.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from threading import Lock

from forebay.errors import StorageError
from forebay.storage.checkpoint import read_lines, write_lines
from forebay.storage.disk import Disk

LEADER_EPOCHS = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    def __init__(self, disk: Disk, directory: str, *, is_new: bool = False) -> None:
        """`is_new`: the directory was just made, and has no file."""
        self._disk = disk
        self._lock = Lock()
        self._path = f"{directory}/{LEADER_EPOCHS}"
        self._entries: list[tuple[int, int]] = []
        for line in () if is_new else read_lines(disk, self._path):
            try:
                epoch, start_offset = map(int, line.split(" "))
            except ValueError:
                raise StorageError(
                    f"{self._path} holds the line {line!r}: restore it, or delete it"
                ) from None
            self._entries.append((epoch, start_offset))
        self._entries.sort()
        self._saved = self._entries
        self._has_file = bool(self._entries)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending."""
        return list(self._entries)

    def is_last_unwritten(self) -> bool:
        """True if the last epoch is not in the file: no batch that may tell it must be deleted."""
        return bool(self._entries) and self._entries[-1] not in self._saved

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else UNDEFINED_EPOCH

    @property
    def first(self) -> int:
        return self._entries[0][0] if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that a leader begins at `start_offset`; an epoch already known changes nothing."""
        if epoch <= self.latest:
            return
        # Epochs that began at or after it wrote nothing that remains.
        kept = [entry for entry in self._entries if entry[1] < start_offset]
        self._entries = [*kept, (epoch, start_offset)]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above the requested one, and its end offset; (-1, -1) if not known."""
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        following = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        known = epoch if following == 0 else self._entries[following - 1][0]
        return known, self._entries[following][1]

    def epoch_at(self, offset: int) -> int:
        """The epoch in force at an offset; -1 if not known."""
        following = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[following - 1][0] if following else UNDEFINED_EPOCH

    def last_between(self, start_offset: int, end_offset: int) -> int:
        """The epoch of the last batch of a log that begins and ends here; -1 if there was none."""
        if start_offset == end_offset:
            return self.latest if end_offset else UNDEFINED_EPOCH
        return self.epoch_at(end_offset - 1)

    def forget_from(self, offset: int) -> None:
        """Forget epochs that began here or later, in memory: no synced batch proves them.

        Such an epoch may be that of a leader that wrote nothing; the next batches here may have an older
        epoch. The file follows with `datasync`; until then it is ignored beyond the recovery point.
        """
        if self._entries and self._entries[-1][1] >= offset:
            self._entries = [entry for entry in self._entries if entry[1] < offset]

    def forget_below(self, start_offset: int) -> None:
        """The log now begins here: forget epochs that were over before, in memory.

        The file follows with `datasync`; until then its extra entries do no harm. Of an epoch that begins
        just here there may be no batch, so the one before it may be that of the last batch.
        """
        following = bisect_left(self._entries, start_offset, key=lambda entry: entry[1])
        if following > 1:
            self._entries = self._entries[following - 1 :]

    def forget_all(self) -> None:
        """Forget every epoch, in the file too: the log is about to begin anew.

        After a crash the file would be believed below the new beginning, where another epoch may have begun
        that this log never had. Without a file the batches tell. Blocks; any thread.
        """
        with self._lock:
            none: list[tuple[int, int]] = []
            if self._has_file:
                self._saved = []  # if this fails, nobody knows what is in the file: the next sync writes it
                self._write(none, names_follow=False)
            self._entries = self._saved = none

    def datasync(self, *, names_follow: bool = False, told_from: int | None = None) -> None:
        """Write the state in memory to the file, if it has to tell it. Blocks; any thread.

        `names_follow`: the caller will sync the directory before it moves the recovery point. `told_from`:
        the log begins here, and is so short that its batches may be read whenever it is opened.
        """
        with self._lock:
            entries = self._entries
            if entries is self._saved:
                return
            if not self._has_file and len(entries) == 1 and entries[0][1] == told_from:
                return
            self._write(entries, names_follow)

    def _write(self, entries: list[tuple[int, int]], names_follow: bool) -> None:
        self._has_file = True  # also if this fails: there may be one then, which must not become old
        lines = (f"{epoch} {offset}" for epoch, offset in entries)
        write_lines(self._disk, self._path, lines, sync_name=not names_follow)
        self._saved = entries
