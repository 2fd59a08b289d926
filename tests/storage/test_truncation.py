"""Cutting a log: what is left, what it costs, and what a crash or a failing disk makes of it."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.errors import StorageError
from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import DiskHandle
from forebay.storage.datadir import DataDir
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.storage.real_disk import RealDisk, RealFile
from forebay.wire.batch import read_header
from support.faults.faulty_disk import FaultyDisk
from support.machines.storing import (
    add,
    batch,
    bytes_of,
    fill,
    find_timestamp,
    headers,
    largest_timestamp,
    read_all,
)

CONFIG = LogConfig(index_interval_bytes=300)


class CountingFile(RealFile):
    __slots__ = ("_counts",)

    def __init__(self, disk: CountingDisk, path: str) -> None:
        super().__init__(disk, path)
        self._counts = disk

    def pread(self, length: int, position: int) -> bytes:
        data = super().pread(length, position)
        self._counts.bytes_read += len(data)
        return data


class CountingDisk(RealDisk):
    bytes_read = 0

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> CountingFile:
        if create:
            super().open(path, create=True)
        return CountingFile(self, path)


class VanishingFile(RealFile):
    __slots__ = ("_vanishing",)

    def __init__(self, disk: VanishingDisk, path: str) -> None:
        super().__init__(disk, path)
        self._vanishing = disk

    def datasync(self) -> None:
        act, self._vanishing.when_syncing = self._vanishing.when_syncing, None
        if act is not None:
            act()
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        super().datasync()


class VanishingDisk(RealDisk):
    """Something happens to the log while its first file is synced, and then that file is not there."""

    when_syncing: Callable[[], None] | None = None

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> VanishingFile:
        if create:
            super().open(path, create=True)
        return VanishingFile(self, path)


@pytest.mark.parametrize("reopened", [False, True])
def test_takes_no_longer_on_a_larger_log(tmp_path: Path, reopened: bool) -> None:
    read: list[int] = []
    for batches in (2_000, 20_000):
        disk = CountingDisk()
        log = open_log(disk, str(tmp_path / str(batches)), LogConfig())
        fill(log, batches)
        if reopened:
            log.files.close()
            log = open_log(disk, str(tmp_path / str(batches)), LogConfig(), clean=True)
        disk.bytes_read = 0
        assert log.files.end_below(batches - 300) == batches - 300
        log.files.truncate_to(batches - 300)
        assert log.end_offset == batches - 300
        read.append(disk.bytes_read)
    assert read[1] < read[0] + 20_000, "not the whole segment"


@pytest.mark.parametrize("end", [0, 1, 7, 8, 9, 30, 58, 59])
@pytest.mark.parametrize("reopened", [False, True])
def test_the_indexes_know_what_is_left(tmp_path: Path, end: int, reopened: bool) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=300)
    log = open_log(RealDisk(), str(tmp_path), config)
    made = fill(log, 60)
    if reopened:
        log.files.close()
        log = open_log(RealDisk(), str(tmp_path), config, clean=True)
    log.files.truncate_to(end)
    assert log.end_offset == end
    again = fill(log, 3)
    assert read_all(log) == b"".join(made[:end] + again)
    for offset in range(end + 3):
        assert read_header(bytes_of(log.read(offset, 1).range)).base_offset == offset
    for offset in range(3, end):
        assert find_timestamp(log, 1000 + offset) == (1000 + offset, offset)
    found = largest_timestamp(log)
    assert found is not None and found[0] == 1000 + max(end - 1, 2)
    log.files.close()
    clean = open_log(RealDisk(), str(tmp_path), config, clean=True)
    assert read_all(clean) == b"".join(made[:end] + again)
    assert largest_timestamp(clean) == found


def test_a_batch_goes_as_a_whole(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path), CONFIG)
    made = fill(log, 10, count=5)
    for offset in (27, 25):
        assert log.files.end_below(offset) == 25
    log.files.truncate_to(27)
    assert (log.end_offset, read_all(log)) == (25, b"".join(made[:5]))


class TestIntoAGap:
    """The log of a compacted topic: there may be nothing where the leader says that its epoch ended."""

    def gapped(self, data: DataDir) -> Log:
        log = data.open_log("t", 0, CONFIG)
        for offset in (0, 1, 2, 20, 21):
            made = batch(offset)
            log.append(memoryview(made), read_header(made))
        log.write_pending()
        log.files.datasync()
        data.checkpoints.write({("t", 0): log}, {("t", 0): 22})
        return log

    def test_the_log_ends_with_its_last_batch(self, tmp_path: Path) -> None:
        log = self.gapped(DataDir.open(RealDisk(), str(tmp_path)))
        assert log.files.end_below(10) == 3
        log.files.truncate_to(10)
        assert [header.base_offset for header in headers(read_all(log))] == [0, 1, 2]
        assert (log.end_offset, log.recovery_point) == (3, 3)

    def test_a_crash_does_not_look_like_a_loss(self, tmp_path: Path) -> None:
        data = DataDir.open(RealDisk(), str(tmp_path))
        log = self.gapped(data)
        end = log.files.end_below(10)
        with data.checkpoints.lowered("t", 0, end):
            log.files.truncate_to(end)
        data.close()
        log = DataDir.open(RealDisk(), str(tmp_path)).open_log("t", 0, CONFIG)
        assert (log.end_offset, log.offline) == (3, None)


class TestTrouble:
    @pytest.mark.parametrize("suffix", [".log", ".index"])
    def test_a_cut_that_fails_takes_the_log_offline(self, tmp_path: Path, suffix: str) -> None:
        disk = FaultyDisk()
        log = open_log(disk, str(tmp_path), LogConfig(index_interval_bytes=150))
        made = fill(log, 1000)
        log.files.close()
        log = open_log(disk, str(tmp_path), LogConfig(index_interval_bytes=150), clean=True)
        disk.break_path("truncate", f"0{suffix}")
        with pytest.raises(StorageError, match="cannot truncate"):
            log.files.truncate_to(500)
        assert log.offline_for_good
        with pytest.raises(StorageError):
            add(log)
        disk.repair()
        log = open_log(disk, str(tmp_path), LogConfig(index_interval_bytes=150))
        found = read_all(log)
        assert found in (b"".join(made), b"".join(made[:500])), "the cut happened, or it did not"

    def test_a_cut_to_the_beginning_needs_no_room(self) -> None:
        """A follower with a full disk keeps its place: a log that is gone would begin at an older offset."""
        device = SimDisk(random.Random(0))
        log = open_log(DiskHandle(device, random.Random(0)), "data/t-0", LogConfig(segment_bytes=2000))
        fill(log, 60, value=b"old" * 20)
        log.delete_front(1)
        begin = log.segments()[0].base_offset

        def refuse(operation: str, path: str) -> None:
            if operation in ("append", "create"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        device.fault = refuse
        log.files.truncate_to(begin)
        assert (log.start_offset, log.end_offset) == (begin, begin)

    def test_a_sync_that_meets_a_file_no_longer_there_begins_again(self, tmp_path: Path) -> None:
        """A thread syncs sealed segments while another cuts them off."""
        disk = VanishingDisk()
        log = open_log(disk, str(tmp_path), LogConfig(segment_bytes=500, index_interval_bytes=150))
        fill(log, 20)
        disk.when_syncing = lambda: log.files.truncate_to(5)
        assert log.files.datasync() == 5
        assert (log.end_offset, log.recovery_point, log.offline) == (5, 5, None)

    @pytest.mark.parametrize("broken", [("truncate", "0.log"), ("truncate", "0.index"), ("create", ".log")])
    def test_a_cut_that_fails_does_not_look_like_a_loss_later(
        self, tmp_path: Path, broken: tuple[str, str]
    ) -> None:
        """Of what was synced, nobody knows how much is gone; the checkpoint must not claim it."""
        config, disk = LogConfig(segment_bytes=2000, index_interval_bytes=150), FaultyDisk()
        data = DataDir.open(disk, str(tmp_path))
        log = data.open_log("t", 0, config)
        fill(log, 100)
        log.files.datasync()
        data.checkpoints.write({("t", 0): log}, {})
        disk.break_path(*broken)
        with pytest.raises(StorageError, match="cannot truncate"), data.checkpoints.lowered("t", 0, 0):
            if broken[0] == "create":
                log.files.truncate_fully_and_start_at(500)
            else:
                log.files.truncate_to(5)
        disk.repair()
        data.checkpoints.write({("t", 0): log}, {})
        data.close()
        again = DataDir.open(RealDisk(), str(tmp_path)).open_log("t", 0, config)
        assert (again.offline, again.report.missing_offsets) == (None, 0)

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    def test_an_index_that_could_not_be_written_does_not_hide_the_largest_time(
        self, tmp_path: Path, suffix: str
    ) -> None:
        """Entries are written in chunks. What is left after the cut must not lie between two of them."""
        disk, late = FaultyDisk(), 9_999_999
        log = open_log(disk, str(tmp_path), LogConfig(index_interval_bytes=1))
        fill(log, 300)
        disk.break_path("append", f"0{suffix}", errno.ENOSPC)
        add(log, timestamp=late)
        fill(log, 300)
        disk.repair()
        log.files.truncate_to(590)
        assert largest_timestamp(log) == (late, 300)

    def test_a_checkpoint_whose_writing_failed_claims_no_more_than_is_left(self, tmp_path: Path) -> None:
        """The file was replaced, and then the disk refused to make that safe: it may say either."""
        disk = FaultyDisk()
        data = DataDir.open(disk, str(tmp_path))
        log = data.open_log("t", 0, CONFIG)
        fill(log, 100)
        log.files.datasync()
        disk.break_path("fsync_dir", str(tmp_path))
        with pytest.raises(OSError):
            data.checkpoints.write({("t", 0): log}, {})
        disk.repair()
        with data.checkpoints.lowered("t", 0, 50):
            log.files.truncate_to(50)
        data.close()
        again = DataDir.open(RealDisk(), str(tmp_path)).open_log("t", 0, CONFIG)
        assert (again.end_offset, again.offline) == (50, None)


@pytest.mark.parametrize("seed", range(10))
class TestLossOfPower:
    """A cut that is done is safe: what comes after it must not be mixed with what was before."""

    def opened(self, device: SimDisk, recovery_point: int = 0) -> Log:
        disk, config = DiskHandle(device, random.Random(0)), LogConfig(segment_bytes=2000)
        return open_log(disk, "data/t-0", config, recovery_point=recovery_point)

    def abort(self, log: Log, first_offset: int) -> None:
        """Something that stands for the marker, and its entry."""
        marker = log.end_offset
        add(log)
        log.append_aborted(AbortedTxn(7, first_offset, marker, marker + 1))
        log.write_pending()

    def test_what_was_cut_off_does_not_come_back(self, seed: int) -> None:
        """The log grows again to exactly where a segment began that was removed."""
        device = SimDisk(random.Random(seed))
        log = self.opened(device)
        fill(log, 30, value=b"old" * 20)
        log.files.datasync()
        boundary = log.segments()[1].base_offset
        log.files.truncate_to(boundary // 2)
        fill(log, boundary - log.end_offset, value=b"new" * 20)
        assert log.files.datasync() == boundary
        device.lose_power()
        assert self.opened(device, boundary).end_offset == boundary

    def test_not_even_if_nothing_was_synced_since(self, seed: int) -> None:
        device = SimDisk(random.Random(seed))
        log = self.opened(device)
        fill(log, 30, value=b"old" * 20)
        log.files.datasync()
        boundary = log.segments()[1].base_offset
        log.files.truncate_to(boundary // 2)
        made = fill(log, 30, value=b"new" * 20)
        device.lose_power()
        again = self.opened(device)
        assert b"".join(made).startswith(read_all(again, start=min(boundary // 2, again.end_offset)))

    def test_nor_do_aborted_transactions(self, seed: int) -> None:
        device = SimDisk(random.Random(seed))
        log = self.opened(device)
        fill(log, 3)
        self.abort(log, 1)
        log.files.datasync()
        log.files.truncate_to(3)
        fill(log, 3)
        end = log.files.datasync()
        device.lose_power()
        assert self.opened(device, end).aborted_transactions(0, end) == []

    def test_nor_are_those_forgotten_that_are_left(self, seed: int) -> None:
        device = SimDisk(random.Random(seed))
        log = self.opened(device)
        fill(log, 3)
        self.abort(log, 1)
        fill(log, 3)
        log.files.truncate_to(5)
        end = log.files.datasync()
        device.lose_power()
        (found,) = self.opened(device, end).aborted_transactions(0, end)
        assert (found.first_offset, found.last_offset) == (1, 3)

    def test_a_torn_end_that_was_cut_off_when_the_log_was_opened_stays_so(self, seed: int) -> None:
        """It would look like damage once the segment is sealed."""
        device = SimDisk(random.Random(seed))
        log = self.opened(device)
        fill(log, 3)
        log.files.datasync()
        fill(log, 5)
        device.lose_power()
        log = self.opened(device, 3)
        log.roll()
        made = log.end_offset
        log = self.opened(device, made)  # killed before anything was synced
        log.files.datasync()
        device.lose_power()
        again = self.opened(device, made)
        assert len(headers(read_all(again))) == made
