"""The settings of storage."""

from __future__ import annotations

from pathlib import PurePath
from zlib import crc32

from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    """Segments close up to this much earlier, so that the logs of a topic do not all roll at once."""
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    file_delete_delay_ms: int = 60_000
    deleted_bytes_max: int | None = None
    """The most that files of deleted segments may take that somebody still reads; the last waits in any case.
    Those that nobody reads do not wait. None means no limit, and that all wait."""
    keeps_snapshots: bool = False
    """The producers as of the end of a segment are kept as long as it is: they are copied with it."""
    decompress_max_bytes: int = 64 << 20
    """The maximum size to which a batch may unpack, for all code that reads the records of a log."""

    def age_max_ms(self, directory: str, base_offset: int) -> int:
        """How long a segment stays open: the same on every replica, and after a restart."""
        spread = min(self.segment_jitter_ms, self.segment_ms)
        if not spread:
            return self.segment_ms
        return self.segment_ms - crc32(f"{PurePath(directory).name}/{base_offset}".encode()) % spread
