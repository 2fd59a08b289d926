"""The checkpoints of a data directory's logs: files that are read once, and written for all logs together.

Entries of directories whose logs are not open stay as they are.

A recovery point on disk must never be larger than its log, or the log would look damaged. So it is written
after the data is synced, dropped before a directory of the same name is created again, and lowered
(`lowered`) before a log is truncated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Protocol

from forebay.core.topic_partition import TopicPartition
from forebay.storage.checkpoint import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from forebay.storage.disk import Disk
from forebay.storage.log.log import Log


class Checkpointed(Protocol):
    """A partition, as far as checkpoints are concerned."""

    @property
    def log(self) -> Log: ...
    @property
    def high_watermark(self) -> int: ...


class Checkpoints:
    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._write_lock = threading.Lock()
        self._doubtful: set[str] = set()
        """Checkpoints whose last write failed: their files say what `_points` does, or more."""
        self._points = {
            name: read_offsets(disk, f"{path}/{name}")
            for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANED_OFFSETS)
        }

    def of(self, name: str, key: TopicPartition) -> int | None:
        """The checkpoint of a log; None if there is none."""
        return self._points[name].get(key)

    def knows(self, key: TopicPartition) -> bool:
        """True if there was a log of this name when checkpoints were last written or read."""
        return key in self._points[RECOVERY_POINTS]

    def are_current(self, partitions: Mapping[TopicPartition, Checkpointed]) -> bool:
        """True if the files say just this, so that nothing has to be written. Makes nothing, as it is asked
        all the time, mostly while nothing happens. Any thread."""
        with self._write_lock:
            recovery_points = self._points[RECOVERY_POINTS]
            starts, committed = self._points[LOG_START_OFFSETS], self._points[HIGH_WATERMARKS]
            if self._doubtful or not len(recovery_points) == len(starts) == len(committed) == len(partitions):
                return False
            for key, partition in partitions.items():
                log = partition.log
                if (
                    recovery_points.get(key) != log.recovery_point
                    or starts.get(key) != log.start_offset
                    or committed.get(key) != partition.high_watermark
                    or log.discarded
                ):
                    return False
            return True

    def write(
        self, logs: Mapping[TopicPartition, Log], high_watermarks: Mapping[TopicPartition, int]
    ) -> None:
        """Write the checkpoints of all logs. Blocks; any thread, also while logs are deleted.

        Entries of logs that are on the disk and not open stay: they may be opened another time.
        """
        with self._write_lock:
            # If a log is deleted meanwhile, nothing of it may be left to a new log of the same name
            # (`forget`).
            here = {key: log for key, log in logs.items() if not log.discarded}
            away = self._known_and_away(logs)
            self._write_known(RECOVERY_POINTS, away, {key: log.recovery_point for key, log in here.items()})
            self._write_known(LOG_START_OFFSETS, away, {key: log.start_offset for key, log in here.items()})
            # A log may have been truncated since its high watermark was read.
            committed = {
                key: min(high_watermarks[key], log.end_offset)
                for key, log in here.items()
                if key in high_watermarks
            }
            self._write_known(HIGH_WATERMARKS, away, committed)
            self._write_known(CLEANED_OFFSETS, away | here.keys(), {})

    @contextmanager
    def lowered(self, topic: str, partition: int, offset: int, *, start: bool = False) -> Iterator[None]:
        """Lower the checkpoints during the truncation of a log to what will be left. Blocks.

        Meanwhile none is written: the log itself still claims more. `start`: also where it begins.
        """
        key = (topic, partition)
        names = (RECOVERY_POINTS, HIGH_WATERMARKS, CLEANED_OFFSETS)
        with self._write_lock:
            for name in (*names, LOG_START_OFFSETS) if start else names:
                points = dict(self._points[name])
                if points.get(key, 0) > offset:
                    points[key] = offset
                self._write(name, points)
            yield

    def note_start(self, topic: str, partition: int, offset: int) -> None:
        """Record the start of a log that has just begun anew. Blocks.

        Without it, a log that begins above its checkpoint looks as if its beginning was lost.
        """
        with self._write_lock:
            self._write(LOG_START_OFFSETS, {**self._points[LOG_START_OFFSETS], (topic, partition): offset})

    def write_first_dirty(
        self, topic: str, partition: int, log: Log, offset: int, *, generation: int
    ) -> None:
        """Record the progress of a log's compaction, unless the log was truncated since that generation.

        Blocks; any thread, also while the log is truncated or deleted.
        """
        with self._write_lock:
            if not log.discarded and log.generation == generation:
                self._write(CLEANED_OFFSETS, {**self._points[CLEANED_OFFSETS], (topic, partition): offset})

    def has(self, key: TopicPartition) -> bool:
        """True if any checkpoint has an entry of a log, or of an earlier one of its name. Waits for a write
        that is under way: it may add one."""
        with self._write_lock:
            return any(key in offsets for offsets in self._points.values())

    def forget(self, key: TopicPartition) -> None:
        """A directory of this name is about to be created: drop the entries of an earlier one."""
        with self._write_lock:
            for name, offsets in self._points.items():
                if key in offsets:
                    self._write(name, {other: offset for other, offset in offsets.items() if other != key})

    def _known_and_away(self, logs: Mapping[TopicPartition, Log]) -> Set[TopicPartition]:
        """The partitions that have checkpoints and a directory, but no log among these."""
        known: set[TopicPartition] = set().union(*self._points.values())
        return {key for key in known - logs.keys() if self._disk.exists(f"{self._path}/{key[0]}-{key[1]}")}

    def _write_known(self, name: str, away: Set[TopicPartition], offsets: dict[TopicPartition, int]) -> None:
        """Write a checkpoint of these offsets, and of the known ones of the logs in `away`."""
        known = {key: offset for key, offset in self._points[name].items() if key in away}
        self._write(name, known | offsets)

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if offsets != self._points[name] or name in self._doubtful:
            self._doubtful.add(name)
            write_offsets(self._disk, f"{self._path}/{name}", offsets)
            self._doubtful.discard(name)
            self._points[name] = offsets
