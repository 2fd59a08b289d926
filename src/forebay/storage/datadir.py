"""A broker's data directory: its lock, the node it belongs to, the logs in it, and their checkpoints.

- `.lock` is held by the one process that uses the directory and names its pid.
- `meta.properties` names the cluster and the node that the data belongs to, and the directory itself.
- `boot-id` says since which boot of the machine it is used: an unclean stop within the same boot has lost
  nothing that was written, because the system still had it.
- `.kafka_cleanshutdown` exists only between a clean stop and the next start: its absence means that logs are
  checked.
- `.unchecked` in a partition's directory says that the log was not opened since an unclean stop, or could not
  be: a clean stop of the others says nothing about it (`distrust`). It says if power was lost.
- `.stray` says that no partition uses a log, and why (`put_aside.py`, `strays.py`).
- The checkpoint files record the logs' progress (`checkpoints.py`).
"""

from __future__ import annotations

import logging
import os
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from forebay.clock import Clock
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ConfigError, StorageError
from forebay.storage import strays
from forebay.storage.checkpoint import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    PartitionMetadata,
    read_partition_metadata,
    read_properties,
    write_partition_metadata,
)
from forebay.storage.checkpoints import Checkpoints
from forebay.storage.disk import Disk, Lock, Locked
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.tended_logs import TendedLogs
from forebay.storage.new_directories import NewDirectories
from forebay.storage.put_aside import PutAside, partition_names
from forebay.storage.store_evidence import StoreEvidence, read_evidence, write_evidence
from forebay.storage.strays import POWER_LOST as _POWER_LOST
from forebay.storage.strays import UNCHECKED

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
META = "meta.properties"
BOOT_ID = "boot-id"
VIEW_CACHE = "view-cache"

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
        self.path = path
        self._meta = _read_meta(disk, path)
        self.clean = disk.exists(f"{path}/{CLEAN_SHUTDOWN}")
        self.power_lost = bool(self._meta) and not self.clean and self._booted_since()
        """True if writes that were not synced may be gone."""
        self._began_without_power = self.power_lost
        """The same for logs that have not been opened since: the loss lasts until they are checked."""
        self._vouches = True
        """True if every log that needs a check is marked in its directory."""
        self.store_evidence = read_evidence(disk, path)
        """The record of the store; None until this broker has joined for the first time."""
        self._evidence_lock = threading.Lock()
        self.store_behind = False
        """True if the store was found to know less than this directory does."""
        self.made: set[TopicPartition] = set()
        """Partitions of which there was nothing here when they were opened."""
        self._folds_case = disk.exists(f"{path}/{LOCK.upper()}")
        """True where Orders-0 and orders-0 are one directory, as on most volumes of macOS."""
        self._naming = threading.Lock() if self._folds_case else nullcontext()
        """There, topics of such names must not make their directory at the same time."""
        self.aside = PutAside(disk, path, entropy)
        """Logs that are not used any more."""
        self.checkpoints = Checkpoints(disk, path)
        self._new_directories = NewDirectories(disk, path)
        self.tended_logs = TendedLogs()
        """The open logs that need upkeep."""

    @classmethod
    def open(cls, disk: Disk, path: str, entropy: Callable[[int], bytes] = os.urandom) -> DataDir:
        """Lock the directory, created if need be, and read its files. Blocks. Raises DataDirLocked."""
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
        """Mark the directory as in use: a stop is unclean until `close` says otherwise."""
        if self.clean:
            self._disk.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
            self._disk.fsync_dir(self.path)
        if self._disk.exists(self.view_cache):
            self._disk.remove_tree(self.view_cache)
        self.aside.remove_all()

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
        """The id that distinguishes this directory from any other of the same node, once it is claimed."""
        return self._meta["directory.id"]

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the data belongs to; None for a new directory."""
        return self._meta.get("cluster.id")

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Make a new directory this node's; raises ConfigError if it belongs to another."""
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

    def update_store_evidence(self, change: Callable[[StoreEvidence], StoreEvidence]) -> None:
        """Update the record of the store. Blocks; any thread."""
        with self._evidence_lock:
            before = self.store_evidence
            evidence = change(before or StoreEvidence())
            if evidence != before:
                write_evidence(self._disk, self.path, evidence)
                self.store_evidence = evidence

    def accept_power_loss(self) -> None:
        """Note that a power failure has been dealt with: do not count it again."""
        if self._booted_since():
            self._disk.write_atomic(f"{self.path}/{BOOT_ID}", self._disk.boot_id().encode())
        self.power_lost = False

    @property
    def view_cache(self) -> str:
        """The directory for views' cached results of segments. It is not kept from one start to the next."""
        return f"{self.path}/{VIEW_CACHE}"

    def directory(self, topic: str, partition: int) -> str:
        return f"{self.path}/{topic}-{partition}"

    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a directory here."""
        return partition_names(self._disk, self.path)

    def has_log(self, topic: str, partition: int) -> bool:
        return self._disk.exists(self.directory(topic, partition))

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        return read_partition_metadata(self._disk, self.directory(topic, partition)).topic_id

    def high_watermark(self, topic: str, partition: int) -> int:
        return self.checkpoints.of(HIGH_WATERMARKS, (topic, partition)) or 0

    def first_dirty_offset(self, topic: str, partition: int) -> int:
        """Everything below has been compacted."""
        return self.checkpoints.of(CLEANED_OFFSETS, (topic, partition)) or 0

    def open_log(
        self,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        topic_id: bytes | None = None,
        clock: Clock | None = None,
        first_offset: int = 0,
    ) -> Log:
        """Open or create the log of a partition, in any thread. Blocks: it is checked after an unclean
        stop. `first_offset`: it begins there, or later."""
        key = (topic, partition)
        directory = self.directory(topic, partition)
        with self._naming:
            is_new, txn_indexed = self._take_directory(key, topic_id, 0 if clock is None else clock.now_ms())
        unchecked = None if is_new else self._read_unchecked(directory)
        log = open_log(
            self._disk,
            directory,
            config,
            clock=clock,
            start_offset=max(self.checkpoints.of(LOG_START_OFFSETS, key) or 0, first_offset),
            recovery_point=self.checkpoints.of(RECOVERY_POINTS, key) or 0,
            clean=self.clean and unchecked is None,
            power_lost=self._began_without_power or unchecked == _POWER_LOST,
            in_new_directory=is_new,
            txn_indexed=txn_indexed,
            note_start=partial(self.checkpoints.note_start, topic, partition),
        )
        log.files.sync_parent = self._new_directories.sync
        log.tended = self.tended_logs
        if unchecked is not None:
            self._disk.remove(f"{directory}/{UNCHECKED}")
        if not is_new and self._disk.exists(f"{directory}/{strays.NOTE}"):
            self._disk.remove(f"{directory}/{strays.NOTE}")
        return log

    def _take_directory(self, key: TopicPartition, topic_id: bytes | None, at_ms: int) -> tuple[bool, bool]:
        """Make the directory of a partition if there is none. Returns whether it is new, and whether it says
        that its segments have indexes of aborted transactions. Raises StorageError if it cannot have one."""
        directory = self.directory(*key)
        is_new, found = self._make_directory(key), PartitionMetadata()
        if topic_id is not None and not is_new:
            self._check_case(*key)
            found = read_partition_metadata(self._disk, directory)
            if found.topic_id is not None and found.topic_id != topic_id:
                self._put_aside_other(*key, at_ms)
                is_new, found = self._make_directory(key), PartitionMetadata()
        if topic_id is not None and found.topic_id is None:
            self.made.add(key)
            found = PartitionMetadata(topic_id, txn_indexed=is_new)
            write_partition_metadata(self._disk, directory, found, in_new_directory=is_new)
        return is_new, found.txn_indexed

    def _make_directory(self, key: TopicPartition) -> bool:
        """Make the directory of a partition; False if it is there. Blocks."""
        directory = self.directory(*key)
        if self.checkpoints.has(key):
            if self._disk.exists(directory):
                return False
            self.checkpoints.forget(key)  # of an earlier one, and before this one is there
        if not self._disk.mkdirs(directory):
            return False
        self._new_directories.add()
        return True

    def _check_case(self, topic: str, partition: int) -> None:
        """Raise StorageError if the directory is that of a topic with the same name to the file system."""
        name = f"{topic}-{partition}"
        if self._folds_case and self.has_log(topic, partition) and name not in self._disk.list(self.path):
            raise StorageError(
                f"{name} is the directory of another topic to the file system of {self.path}: use a name "
                "that differs in more than its capital letters, or put log.dirs on a case-sensitive volume"
            )

    def distrust(self, topic: str, partition: int) -> None:
        """Have a log that is not in use checked when it is next opened, however this broker stops.

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
        """Close a log and move it out of the way; the path is for `aside.remove`."""
        log.discard()
        return self.aside.delete(topic, partition)

    def put_aside(
        self,
        topic: str,
        partition: int,
        reason: str,
        at_ms: int,
        log: Log | None = None,
        high_watermark: int = 0,
    ) -> str:
        """Keep a log that is not used any more, under another name; the path is for `aside.sync`.

        `log`: if it is open. It is closed without being synced, so it is checked when it is used again.
        """
        note = self._note(topic, partition, reason, at_ms, log, high_watermark)
        if log is not None:
            log.discard()
            directory = self.directory(topic, partition)
            self._disk.write_atomic(f"{directory}/{UNCHECKED}", _POWER_LOST, sync=False)
        return self.aside.keep(note)

    def note_unused(self, topic: str, partition: int, reason: str, at_ms: int) -> None:
        """Say in a directory that no partition uses its log; it keeps its name. Blocks."""
        self.aside.keep_in_place(self._note(topic, partition, reason, at_ms))

    def copy_aside(
        self,
        topic: str,
        partition: int,
        reason: str,
        at_ms: int,
        log: Log,
        *,
        offset: int,
        high_watermark: int,
    ) -> str:
        """Keep a copy of a log from the segment with this offset on. Blocks; any thread that has the log."""
        return self.aside.copy(self._note(topic, partition, reason, at_ms, log, high_watermark), offset)

    def _note(
        self,
        topic: str,
        partition: int,
        reason: str,
        at_ms: int,
        log: Log | None = None,
        high_watermark: int = 0,
    ) -> strays.Note:
        known = self.checkpoints.of(LOG_START_OFFSETS, (topic, partition))
        return strays.Note(
            topic=topic,
            partition=partition,
            reason=reason,
            put_aside_ms=at_ms,
            start_offset=known if log is None else log.start_offset,
            high_watermark=max(high_watermark, self.high_watermark(topic, partition)),
        )

    def last_epoch(self, topic: str, partition: int) -> int:
        """The last leader epoch in a log that is not open. Blocks."""
        return strays.last_epoch(self._disk, self.directory(topic, partition))

    def _put_aside_other(self, topic: str, partition: int, at_ms: int) -> None:
        """The rest of another topic of the same name must not become part of this one."""
        reason = "there is another topic of its name"
        path = self.put_aside(topic, partition, reason, at_ms)
        logger.warning(
            "a log was put aside; see forebay log strays", extra={"directory": path, "reason": reason}
        )

    def close(self, *, clean: bool = False) -> None:
        """Release the directory; `clean` if every open log closed without error and checkpoints are written.

        Logs that were not open are checked at their next opening if they are marked (`distrust`).
        """
        # A stop before the power failure was dealt with must not make the next start forget it.
        if clean and self._vouches and not self.power_lost:
            self._disk.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN}", b"")
        self._lock.release()


def _read_meta(disk: Disk, path: str) -> dict[str, str]:
    meta = f"{path}/{META}"
    return read_properties(disk.read_bytes(meta).decode("utf-8", "replace")) if disk.exists(meta) else {}
