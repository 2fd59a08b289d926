"""A broker's data directory: its lock, the node it belongs to, the logs in it, and their checkpoints.

- `.lock` is held by the one process that uses the directory and names its pid.
- `meta.properties` names the cluster and the node that the data belongs to, and the directory itself.
- `boot-id` says since which boot of the machine it is used: an unclean stop within the same boot has lost
  nothing that was written, because the system still had it.
- `.kafka_cleanshutdown` exists only between a clean stop and the next start: its absence means that logs
  are checked.
- `.unchecked` in a partition's directory says that the log was not opened since an unclean stop, or could
  not be: a clean stop of the others says nothing about it (`distrust`). It says whether power was lost.
- The checkpoint files are read once and written by `write_checkpoints`, for all logs together. Entries of
  directories whose logs are not open stay as they are.

A recovery point on disk must never be larger than its log, or the log would be taken for damaged. So it
is written after the data is synced, dropped before a directory of the same name is made again, and
lowered (`lowered`) before a log is truncated.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial

from forebay.clock import Clock
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ConfigError, StorageError
from forebay.storage.checkpoint import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    read_properties,
    read_topic_id,
    write_offsets,
    write_topic_id,
)
from forebay.storage.disk import Disk, Lock, Locked
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
META = "meta.properties"
BOOT_ID = "boot-id"
UNCHECKED = ".unchecked"
VIEW_CACHE = "view-cache"

_PARTITION_NAME = re.compile(r"(.+)-(\d+)")
_DELETED_SUFFIX = "-delete"
_STRAY_SUFFIX = "-stray"
_NAME_CHARS_KEPT = 200
_POWER_LOST = b"power lost\n"
_PROCESS_ENDED = b"process ended\n"


class DataDirLocked(StorageError):
    """Another process uses the data directory."""

    def __init__(self, path: str, pid: str) -> None:
        super().__init__(
            f"{path} is in use by another process (pid {pid or 'unknown'}): stop it, or use another directory"
        )
        self.pid = pid


class DataDir:
    def __init__(self, disk: Disk, path: str, lock: Lock, entropy: Callable[[int], bytes]) -> None:
        self._disk = disk
        self._entropy = entropy
        self._lock = lock
        self._write_lock = threading.Lock()
        self.path = path
        self._meta = _read_meta(disk, path)
        self.clean = disk.exists(f"{path}/{CLEAN_SHUTDOWN}")
        self.power_lost = bool(self._meta) and not self.clean and self._booted_since()
        """Whether writes that were not synced may be gone."""
        self._began_without_power = self.power_lost
        """The same, of logs that have not been opened since: the loss lasts until they are checked."""
        self._vouches = True
        """Whether every log that is not in order is known to be so by its directory."""
        self.made: set[TopicPartition] = set()
        """Partitions of which there was nothing here when they were opened."""
        self._doubtful: set[str] = set()
        """Checkpoints whose last writing failed: their files say what `_points` does, or more."""
        self._points = {
            name: read_offsets(disk, f"{path}/{name}")
            for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANED_OFFSETS)
        }

    @classmethod
    def open(cls, disk: Disk, path: str, entropy: Callable[[int], bytes] = os.urandom) -> DataDir:
        """Lock the directory, made if need be, and read what it says. Blocks. Raises DataDirLocked."""
        disk.mkdirs(path)
        try:
            lock = disk.lock(f"{path}/{LOCK}", str(os.getpid()))
        except Locked as locked:
            raise DataDirLocked(path, locked.holder) from None
        try:
            found = cls(disk, path, lock, entropy)
            found._begin()
        except BaseException:
            lock.release()
            raise
        return found

    def _begin(self) -> None:
        """From now on a stop is unclean until `close` says otherwise."""
        if self.clean:
            self._disk.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
            self._disk.fsync_dir(self.path)
        if self._disk.exists(self.view_cache):
            self._disk.remove_tree(self.view_cache)
        for name in self._disk.list(self.path):
            if name.endswith(_DELETED_SUFFIX):
                self.remove_deleted(f"{self.path}/{name}")

    def _booted_since(self) -> bool:
        path, boot_id = f"{self.path}/{BOOT_ID}", self._disk.boot_id()
        before = self._disk.read_bytes(path).decode("utf-8", "replace") if self._disk.exists(path) else ""
        return not boot_id or before != boot_id

    @property
    def node_id(self) -> int | None:
        """The node that the data belongs to; None for a new directory."""
        text = self._meta.get("node.id")
        return int(text) if text is not None and text.isdigit() else None

    @property
    def directory_id(self) -> str:
        """What tells this directory from any other of the same node, once it is claimed."""
        return self._meta["directory.id"]

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the data belongs to; None for a new directory."""
        return self._meta.get("cluster.id")

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Make a new directory this node's; raises ConfigError if it is another's."""
        mine = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id)}
        for key, value in mine.items():
            if self._meta and self._meta.get(key) != value:
                raise ConfigError(
                    f"{self.path}/{META} says {key}={self._meta.get(key)}, not {value}: "
                    "this is another node's data, choose another directory"
                )
        if "directory.id" not in self._meta:
            self._meta = {**mine, "directory.id": urlsafe_b64encode(self._entropy(16)).decode().rstrip("=")}
            text = "".join(f"{key}={value}\n" for key, value in self._meta.items())
            self._disk.write_atomic(f"{self.path}/{META}", text.encode())

    def accept_power_loss(self) -> None:
        """Whatever a loss of power has taken has been seen to: do not count it again."""
        if self._booted_since():
            self._disk.write_atomic(f"{self.path}/{BOOT_ID}", self._disk.boot_id().encode())
        self.power_lost = False

    @property
    def view_cache(self) -> str:
        """The directory for what views show of segments. It is not kept from one start to the next."""
        return f"{self.path}/{VIEW_CACHE}"

    def directory(self, topic: str, partition: int) -> str:
        return f"{self.path}/{topic}-{partition}"

    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a directory here."""
        matches = (_PARTITION_NAME.fullmatch(name) for name in self._disk.list(self.path))
        return [(match[1], int(match[2])) for match in matches if match]

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        return read_topic_id(self._disk, self.directory(topic, partition))

    def high_watermark(self, topic: str, partition: int) -> int:
        return self._points[HIGH_WATERMARKS].get((topic, partition), 0)

    def first_dirty_offset(self, topic: str, partition: int) -> int:
        """Everything below has been compacted."""
        return self._points[CLEANED_OFFSETS].get((topic, partition), 0)

    def write_first_dirty_offset(
        self, topic: str, partition: int, log: Log, offset: int, *, generation: int
    ) -> None:
        """Write down how far compaction has come with a log, unless it was cut since that generation.

        Blocks; any thread, also while the log is cut or deleted.
        """
        with self._write_lock:
            if not log.discarded and log.generation == generation:
                self._write(CLEANED_OFFSETS, {**self._points[CLEANED_OFFSETS], (topic, partition): offset})

    def open_log(
        self,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        topic_id: bytes | None = None,
        clock: Clock | None = None,
    ) -> Log:
        """Open or make the log of a partition, in any thread. Blocks: after an unclean stop it is checked."""
        key = (topic, partition)
        directory = self.directory(topic, partition)
        if topic_id is not None:
            self._put_aside_if_of_another(topic, partition, topic_id)
        if not self._disk.exists(directory):
            self._forget(key)
            self._disk.mkdirs(directory)
        if topic_id is not None and read_topic_id(self._disk, directory) is None:
            self.made.add(key)
            write_topic_id(self._disk, directory, topic_id)
        unchecked = self._read_unchecked(directory)
        log = open_log(
            self._disk,
            directory,
            config,
            clock=clock,
            start_offset=self._points[LOG_START_OFFSETS].get(key, 0),
            recovery_point=self._points[RECOVERY_POINTS].get(key, 0),
            clean=self.clean and unchecked is None,
            power_lost=self._began_without_power or unchecked == _POWER_LOST,
            note_start=partial(self.note_start, topic, partition),
        )
        if unchecked is not None:
            self._disk.remove(f"{directory}/{UNCHECKED}")
        return log

    def distrust(self, topic: str, partition: int) -> None:
        """Have a log that is not in use here checked when it is next opened, however this broker stops.

        It could not be opened, or it has not been opened since an unclean stop. Blocks; any thread.
        """
        directory = self.directory(topic, partition)
        reason = _POWER_LOST if self._began_without_power else _PROCESS_ENDED
        try:
            if self._disk.exists(directory) and self._read_unchecked(directory) not in (reason, _POWER_LOST):
                self._disk.write_atomic(f"{directory}/{UNCHECKED}", reason)
        except OSError as error:
            self._vouches = False
            logger.warning(
                "a log cannot be marked as unchecked, so that all are checked at the next start",
                extra={"directory": directory, "reason": str(error)},
            )

    def _read_unchecked(self, directory: str) -> bytes | None:
        path = f"{directory}/{UNCHECKED}"
        return self._disk.read_bytes(path) if self._disk.exists(path) else None

    def delete_log(self, topic: str, partition: int, log: Log) -> str:
        """Close a log and move it out of the way; the path is for `remove_deleted`."""
        log.discard()
        return self._put_aside(topic, partition, _DELETED_SUFFIX)

    def delete_unopened(self, topic: str, partition: int) -> str:
        """The same of a log that is not open."""
        return self._put_aside(topic, partition, _DELETED_SUFFIX)

    def remove_deleted(self, path: str) -> None:
        """Remove the files of a deleted log that was moved out of the way. Blocks; any thread."""
        # Its new name must last: if the power went, the files that are left would be found under the old one.
        self._disk.fsync_dir(self.path)
        self._disk.remove_tree(path)

    def _put_aside_if_of_another(self, topic: str, partition: int, topic_id: bytes) -> None:
        """What is left of a deleted topic of the same name must not become part of the new one.

        The topic was deleted while this broker was away. The broker did not get that deletion, so it keeps
        the files.
        """
        directory = self.directory(topic, partition)
        found = read_topic_id(self._disk, directory) if self._disk.exists(directory) else None
        if found is not None and found != topic_id:
            path = self._put_aside(topic, partition, _STRAY_SUFFIX)
            logger.warning(
                "a directory belongs to a deleted topic of the same name; remove it if you do not need it",
                extra={"directory": path},
            )

    def _put_aside(self, topic: str, partition: int, suffix: str) -> str:
        name = f"{topic}-{partition}"[:_NAME_CHARS_KEPT]
        path = f"{self.path}/{name}.{self._entropy(16).hex()}{suffix}"
        self._disk.rename(self.directory(topic, partition), path)
        return path

    def write_checkpoints(
        self, logs: Mapping[TopicPartition, Log], high_watermarks: Mapping[TopicPartition, int]
    ) -> None:
        """Write down how far all logs have come. Blocks; any thread, also while logs are deleted.

        What is known of logs that are on the disk and not open stays: they may be opened another time.
        """
        with self._write_lock:
            # Of one that is deleted meanwhile, nothing may be left to a new log of the same name (`_forget`).
            here = {key: log for key, log in logs.items() if not log.discarded}
            away = self._known_and_away(logs)
            self._write_known(RECOVERY_POINTS, away, {key: log.recovery_point for key, log in here.items()})
            self._write_known(LOG_START_OFFSETS, away, {key: log.start_offset for key, log in here.items()})
            # A log may have been truncated since its high watermark was taken note of.
            committed = {
                key: min(high_watermarks[key], log.end_offset)
                for key, log in here.items()
                if key in high_watermarks
            }
            self._write_known(HIGH_WATERMARKS, away, committed)
            self._write_known(CLEANED_OFFSETS, away | here.keys(), {})

    @contextmanager
    def lowered(self, topic: str, partition: int, offset: int) -> Iterator[None]:
        """Around the truncation of a log: no checkpoint claims more than will be left. Blocks.

        Meanwhile none is written: the log itself still claims more.
        """
        key = (topic, partition)
        with self._write_lock:
            for name in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEANED_OFFSETS):
                points = dict(self._points[name])
                if points.get(key, 0) > offset:
                    points[key] = offset
                self._write(name, points)
            yield

    def note_start(self, topic: str, partition: int, offset: int) -> None:
        """Write down where a log begins that has just begun anew. Blocks.

        Without it, a log that begins above what is written down looks as if its beginning was lost.
        """
        with self._write_lock:
            self._write(LOG_START_OFFSETS, {**self._points[LOG_START_OFFSETS], (topic, partition): offset})

    def close(self, *, clean: bool = False) -> None:
        """Give the directory up; `clean` if every open log closed without error and checkpoints are written.

        Logs that were not open are checked at their next opening if they are marked (`distrust`).
        """
        # A stop before the loss of power was seen to must not make the next start forget it.
        if clean and self._vouches and not self.power_lost:
            self._disk.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN}", b"")
        self._lock.release()

    def _forget(self, key: TopicPartition) -> None:
        """A directory of this name is about to be made: what is known of an earlier one must go."""
        with self._write_lock:
            for name, offsets in self._points.items():
                if key in offsets:
                    self._write(name, {other: offset for other, offset in offsets.items() if other != key})

    def _known_and_away(self, logs: Mapping[TopicPartition, Log]) -> Set[TopicPartition]:
        """The partitions that have checkpoints and a directory, but no log among these."""
        known: set[TopicPartition] = set().union(*self._points.values())
        return {key for key in known - logs.keys() if self._disk.exists(self.directory(*key))}

    def _write_known(self, name: str, away: Set[TopicPartition], offsets: dict[TopicPartition, int]) -> None:
        """Write a checkpoint of these offsets, and of those that are known of the logs in `away`."""
        known = {key: offset for key, offset in self._points[name].items() if key in away}
        self._write(name, known | offsets)

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if offsets != self._points[name] or name in self._doubtful:
            self._doubtful.add(name)
            write_offsets(self._disk, f"{self.path}/{name}", offsets)
            self._doubtful.discard(name)
            self._points[name] = offsets


def _read_meta(disk: Disk, path: str) -> dict[str, str]:
    meta = f"{path}/{META}"
    return read_properties(disk.read_bytes(meta).decode("utf-8", "replace")) if disk.exists(meta) else {}
