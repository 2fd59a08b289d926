"""Files of deleted segments that have to keep their names for now: emptied, they make room on a full disk.

Where a log begins is written down before such a file is removed. Until then its name tells that what is
missing was deleted (recovery/log_recovery.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from forebay.storage.disk import Disk


def empty_files(disk: Disk, directory: str, paths: Iterable[str]) -> None:
    """Leave the names of these files in a directory, and nothing in them. Blocks; any thread.

    The names are synced first: a power failure must not leave an empty segment at the start of a log.
    """
    disk.fsync_dir(directory)
    for path in paths:
        file = disk.open(path)
        try:
            if file.size():
                file.truncate(0)
        finally:
            file.close()
