"""Producer snapshots: files `<offset>.snapshot` with the state of the log's producers at that offset.

Storage does not interpret them. They are written without waiting for the device, and synced with the log: the
reader must detect a broken snapshot, and then uses an older one or reads the log, which may have been deleted
up to the newest one that was synced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from forebay.storage.disk import Disk
from forebay.storage.log.segment.segment import segment_name

_SUFFIX = ".snapshot"
_KEPT = 2


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among the files of a log, ascending."""
    stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


class Snapshots:
    def __init__(self, disk: Disk, directory: str, known: list[int] | None = None) -> None:
        """`known`: their offsets, if the directory was listed already."""
        self._disk = disk
        self._directory = directory
        self._known = known
        """Their offsets, ascending, once the directory was listed. No roll has to list it again."""
        self._damaged: set[int] = set()

    def write(
        self,
        offset: int,
        data: bytes,
        *,
        sync: bool,
        needed: int,
        useless: range = range(0),
        kept_from: int | None = None,
    ) -> None:
        """Write a snapshot. Older ones are removed, except one at or before the offset `needed`.

        `useless`: those at these offsets are removed, too. `kept_from`: none from this offset on is removed.
        """
        offsets, self._known = self._offsets(), None  # after a failure the directory has to be listed again
        self._disk.write_atomic(self._path(offset), data, sync=sync)
        self._damaged.discard(offset)
        offsets = sorted({*offsets, offset})
        whole = [each for each in offsets if each not in self._damaged]
        below = sum(taken_at <= needed for taken_at in whole)
        first_kept = whole[min(max(below - 1, 0), max(len(whole) - _KEPT, 0))]
        older = [each for each in offsets if each < first_kept or each in useless]
        self._remove(offsets, [each for each in older if kept_from is None or each < kept_from])

    def sync(self, offset: int) -> bool:
        """Sync the content of a snapshot, unless it was removed; the caller syncs its name. Any thread.

        False if that fails: the log itself is safe.
        """
        path = self._path(offset)
        with suppress(OSError):
            if self._disk.exists(path):
                file = self._disk.open(path)
                try:
                    file.datasync()
                finally:
                    file.close()
                return True
        return False

    def note_damaged(self, offset: int) -> None:
        """It was read, and is no snapshot: it does not count."""
        self._damaged.add(offset)

    def newest_first(self, end_offset: int) -> Iterator[tuple[int, bytes]]:
        """Those up to an offset. Later ones are not read: the disk may not give them."""
        for offset in reversed(self._offsets()):
            if offset <= end_offset:
                yield offset, self._disk.read_bytes(self._path(offset))

    def remove_beyond(self, end_offset: int) -> None:
        """Remove snapshots beyond the end durably: the log will grow again, with other batches. Blocks."""
        offsets, self._known = self._offsets(), None
        beyond = [offset for offset in offsets if offset > end_offset]
        self._remove(offsets, beyond)
        if beyond:
            self._disk.fsync_dir(self._directory)

    def _remove(self, offsets: list[int], some: list[int]) -> None:
        for offset in some:
            self._disk.remove(self._path(offset))
        self._known = [offset for offset in offsets if offset not in some]

    def _offsets(self) -> list[int]:
        """The offsets of the snapshots, ascending."""
        if self._known is None:
            self._known = snapshot_offsets(self._disk.list(self._directory))
        return self._known

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{segment_name(offset)}{_SUFFIX}"
