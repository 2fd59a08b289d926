"""Makes the names of new partitions' directories survive a loss of power: many with one sync.

A log that was just created is durable only when the data directory itself is synced. One such sync counts for
every directory that existed when it began, so the first messages of thousands of new partitions need a few,
not one each.
"""

from __future__ import annotations

import threading

from forebay.storage.disk import Disk


class NewDirectories:
    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._lock = threading.Lock()
        self._made = 1
        """A process before this one may have died between making a directory and syncing its name."""
        self._synced = 0

    def add(self) -> None:
        """A directory has been made. Any thread."""
        with self._lock:
            self._made += 1

    def sync(self) -> None:
        """Make all directories durable that were added before. Blocks; any thread. Raises OSError."""
        if self._synced >= self._made:
            return
        with self._lock:  # those who wait here need no sync of their own, unless it fails
            if self._synced < self._made:
                made = self._made
                self._disk.fsync_dir(self._path)
                self._synced = made
