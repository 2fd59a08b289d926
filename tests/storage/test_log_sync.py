"""Syncing in one thread while the owner appends, rolls, deletes and truncates in another."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.errors import StorageError
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk
from support.faults.faulty_disk import FaultyDisk
from support.machines.manual_clock import ManualClock
from support.machines.storing import fill, read_all

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150, file_delete_delay_ms=0)


class InterruptedDisk(FaultyDisk):
    """Runs something in the middle of the next sync, just before the first file is synced."""

    meanwhile: Callable[[], None] | None = None

    def check(self, operation: str, path: str) -> None:
        super().check(operation, path)
        if operation == "datasync" and self.meanwhile is not None:
            run, self.meanwhile = self.meanwhile, None
            run()


@pytest.fixture
def disk() -> InterruptedDisk:
    return InterruptedDisk()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(disk: InterruptedDisk, clock: ManualClock, tmp_path: Path) -> Log:
    return open_log(disk, str(tmp_path / "t-0"), CONFIG, clock=clock)


def after_power_loss(disk: FaultyDisk, log: Log) -> Log:
    disk.crash(lambda unsynced: 0)
    return open_log(RealDisk(), log.directory, CONFIG, recovery_point=log.recovery_point)


def test_what_is_appended_meanwhile_is_not_counted(disk: InterruptedDisk, log: Log) -> None:
    made = fill(log, 3)
    disk.meanwhile = lambda: made.extend(fill(log, 20))
    assert log.files.datasync() == 3
    again = after_power_loss(disk, log)
    assert again.end_offset >= 3
    assert b"".join(made).startswith(read_all(again))


def test_segments_rolled_meanwhile_are_synced_next_time(disk: InterruptedDisk, log: Log) -> None:
    made = fill(log, 3)
    disk.meanwhile = lambda: made.extend(fill(log, 20))
    log.files.datasync()
    assert log.files.datasync() == 23
    assert read_all(after_power_loss(disk, log)) == b"".join(made)


def test_a_truncation_meanwhile_begins_the_sync_again(disk: InterruptedDisk, log: Log) -> None:
    made = fill(log, 20)

    def truncate_and_go_on() -> None:
        log.files.truncate_to(8)
        made[8:] = fill(log, 3)

    disk.meanwhile = truncate_and_go_on
    assert log.files.datasync() == 11
    assert read_all(after_power_loss(disk, log)) == b"".join(made)


def test_segments_deleted_meanwhile_need_no_sync(disk: InterruptedDisk, clock: ManualClock, log: Log) -> None:
    made = fill(log, 20)

    def delete() -> None:
        log.delete_front(3)
        clock.advance(CONFIG.file_delete_delay_ms)
        assert log.reap()

    disk.meanwhile = delete
    assert log.files.datasync() == 20
    assert log.offline is None
    assert b"".join(made).endswith(read_all(log))


def test_nothing_new_is_no_sync(disk: InterruptedDisk, log: Log) -> None:
    fill(log, 3)
    log.files.datasync()
    disk.break_path("datasync", "")
    assert log.files.datasync() == 3


def test_a_log_deleted_meanwhile_is_an_error(disk: InterruptedDisk, log: Log) -> None:
    fill(log, 3)
    log.discard()
    with pytest.raises(StorageError):
        log.files.datasync()


def test_many_syncs_under_load(tmp_path: Path) -> None:
    disk = RealDisk(max_open_files=4)
    log = open_log(disk, str(tmp_path), CONFIG)
    problems: list[BaseException] = []
    made: list[bytes] = []
    stop = threading.Event()

    def sync() -> None:
        try:
            while not stop.is_set():
                noted = len(made)  # written before the sync begins
                assert log.files.datasync() >= noted
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    for _ in range(150):
        made += fill(log, 1)
    stop.set()
    thread.join()
    assert not problems
    assert log.files.datasync() == 150
    assert read_all(log) == b"".join(made)


def no_room(*, names_follow: bool = False, told_from: int | None = None) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_fails_beside_the_log_leaves_what_it_holds_safe(disk: InterruptedDisk, log: Log) -> None:
    made = fill(log, 3)
    log.files.before_sync = no_room
    with pytest.raises(StorageError, match="No space left"):
        log.files.datasync()
    assert read_all(after_power_loss(disk, log)) == b"".join(made)


def test_what_fails_before_the_files_are_synced_can_be_tried_again(disk: InterruptedDisk, log: Log) -> None:
    """A disk that is too full for the list of leader epochs has lost nothing of the log."""
    made = fill(log, 3)
    log.files.before_sync = no_room
    with pytest.raises(StorageError, match="No space left"):
        log.files.datasync()
    assert (log.offline, log.recovery_point) == (None, 0)
    made += fill(log, 2)
    log.files.before_sync = None
    assert log.files.datasync() == 5
    again = after_power_loss(disk, log)
    assert read_all(again) == b"".join(made)
