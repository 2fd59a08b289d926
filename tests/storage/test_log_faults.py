"""Full disks, I/O errors and losses of power: what is acknowledged stays, what is not is gone whole."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from forebay.errors import ErrorCode, StorageError
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from support.faults.faulty_disk import FaultyDisk
from support.machines.manual_clock import ManualClock
from support.machines.storing import add, fill, headers, largest_timestamp, read_all

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)


class Bench:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = FaultyDisk()
        self.clock = ManualClock()
        self.log = self.open()

    def open(self, **options: int) -> Log:
        return open_log(self.disk, str(self.path), CONFIG, clock=self.clock, **options)  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "t-0")


def test_a_full_disk_takes_the_log_offline_and_leaves_it_whole(bench: Bench) -> None:
    made = fill(bench.log, 10)
    bench.disk.free = 50
    add(bench.log, timestamp=9999)
    add(bench.log, timestamp=9999)
    with pytest.raises(StorageError) as caught:
        bench.log.write_pending()
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.log.offline is not None
    assert "No space left" in bench.log.offline
    assert bench.log.end_offset == 10
    assert bench.log.size == sum(map(len, made))
    assert read_all(bench.log) == b"".join(made)
    assert largest_timestamp(bench.log) == (1009, 9)
    with pytest.raises(StorageError):
        add(bench.log)
    bench.log.write_pending()  # nothing was queued since


def test_it_can_be_found_out_without_an_append_that_there_is_room(bench: Bench) -> None:
    made = fill(bench.log, 10)
    bench.disk.free = 0
    add(bench.log)
    with pytest.raises(StorageError):
        bench.log.write_pending()
    bench.clock.advance(1000)
    with pytest.raises(OSError, match="No space left"):
        bench.log.files.probe()
    bench.disk.repair()
    bench.log.files.probe()
    bench.log.come_back()
    assert bench.log.offline is None
    assert not list(bench.path.glob("*.tmp"))
    made += fill(bench.log, 3)
    assert read_all(bench.log) == b"".join(made)
    bench.log.take_offline("for good")
    bench.log.come_back()
    assert bench.log.offline == "for good"


def test_it_comes_back_when_there_is_room_but_asks_at_most_once_a_second(bench: Bench) -> None:
    made = fill(bench.log, 10)
    bench.disk.free = 0
    add(bench.log)
    with pytest.raises(StorageError):
        bench.log.write_pending()
    bench.disk.repair()
    with pytest.raises(StorageError):
        add(bench.log)
    bench.clock.advance(1000)
    made += fill(bench.log, 30)
    assert bench.log.offline is None
    assert read_all(bench.log) == b"".join(made)


def test_it_stays_offline_while_the_disk_is_full(bench: Bench) -> None:
    bench.disk.free = 0
    for _ in range(3):
        add(bench.log)
        with pytest.raises(StorageError):
            bench.log.write_pending()
        assert bench.log.offline
        bench.clock.advance(1000)
    assert bench.log.end_offset == 0


def test_a_failure_while_reading_is_told_to_the_writer(bench: Bench) -> None:
    made = fill(bench.log, 3)
    bench.disk.free = 0
    add(bench.log)
    assert read_all(bench.log) == b"".join(made)
    bench.disk.repair()
    bench.clock.advance(1000)
    with pytest.raises(StorageError):
        add(bench.log)  # not before the writer has been told
    with pytest.raises(StorageError):
        bench.log.write_pending()
    bench.log.write_pending()
    made += fill(bench.log, 1)
    assert read_all(bench.log) == b"".join(made)


def test_a_failure_to_roll_is_told_for_what_was_queued_before(bench: Bench) -> None:
    made = fill(bench.log, 3)
    bench.disk.break_path("create", ".log", errno.EMFILE)
    with pytest.raises(StorageError):
        for _ in range(50):
            add(bench.log)
    # The batches before the roll were written; the one that needed the new segment was not.
    bench.log.write_pending()
    assert bench.log.end_offset == 16
    assert read_all(bench.log).startswith(b"".join(made))
    bench.disk.repair()
    bench.clock.advance(1000)
    fill(bench.log, 20)
    assert [header.base_offset for header in headers(read_all(bench.log))] == list(range(36))


def test_one_queued_batch_lost_in_a_roll_is_told_by_write_pending(bench: Bench) -> None:
    fill(bench.log, 16)
    bench.disk.break_path("append", ".log")
    add(bench.log, value=b"v" * 30)
    with pytest.raises(StorageError):
        bench.log.roll()
    with pytest.raises(StorageError):
        bench.log.write_pending()
    assert bench.log.end_offset == 16


def test_an_index_that_cannot_be_written_does_not_stop_the_log(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path), LogConfig(index_interval_bytes=1))
    disk.break_path("append", "0.index", errno.ENOSPC)
    disk.break_path("append", "0.timeindex", errno.ENOSPC)
    made = fill(log, 300)
    assert log.offline is None
    disk.repair()
    made += fill(log, 300)
    log.files.close()
    again = open_log(disk, str(tmp_path), LogConfig(index_interval_bytes=1), clean=True)
    assert read_all(again, 1000) == b"".join(made)
    assert (tmp_path / "00000000000000000000.index").stat().st_size == 599 * 8


class CountingDisk(FaultyDisk):
    reads = 0

    def check(self, operation: str, path: str) -> None:
        self.reads += operation == "pread"
        super().check(operation, path)


@pytest.mark.parametrize("timestamp", [1000, -1])
def test_a_failed_write_is_told_before_the_segment_could_be_read(tmp_path: Path, timestamp: int) -> None:
    disk = CountingDisk()
    log = open_log(disk, str(tmp_path), LogConfig())
    for _ in range(3000):
        add(log, timestamp=timestamp)
    log.write_pending()
    disk.free = disk.reads = 0
    add(log, timestamp=timestamp)
    with pytest.raises(StorageError):
        log.write_pending()
    assert disk.reads < 10


def test_a_failed_sync_is_final(bench: Bench) -> None:
    made = fill(bench.log, 5)
    bench.log.files.datasync()
    made += fill(bench.log, 5)
    bench.disk.break_path("datasync", ".log")
    with pytest.raises(StorageError):
        bench.log.files.datasync()
    bench.disk.repair()
    bench.clock.advance(10_000)
    with pytest.raises(StorageError):
        add(bench.log)
    assert bench.log.recovery_point == 5
    assert read_all(bench.log) == b"".join(made)


def test_a_failed_read_is_an_error_for_that_read(bench: Bench) -> None:
    made = fill(bench.log, 50)
    bench.disk.break_path("pread", "00000000000000000000.log")
    with pytest.raises(StorageError):
        bench.log.read(7, 100)
    assert bench.log.offline is None
    bench.disk.repair()
    assert read_all(bench.log) == b"".join(made)


@pytest.mark.parametrize("seed", range(60))
def test_power_is_lost(tmp_path: Path, seed: int) -> None:
    """Whatever a crash leaves of the unsynced bytes: all that was synced is there, nothing torn is served."""
    chance = random.Random(seed)
    made: list[bytes] = []
    recovery_point = synced = start_offset = 0
    for _ in range(4):
        disk = FaultyDisk(max_open_files=chance.randint(1, 6))
        log = open_log(disk, str(tmp_path), CONFIG, recovery_point=recovery_point)
        assert log.offline is None
        assert not log.report.damage
        # Before the first sync even the name of the first file can be lost, and a later one be there.
        assert log.start_offset == start_offset or synced == 0
        start_offset = log.start_offset
        assert read_all(log) == b"".join(made[start_offset : log.end_offset])
        assert log.end_offset >= recovery_point
        del made[log.end_offset :]
        for _ in range(chance.randint(1, 8)):
            made += fill(log, chance.randint(1, 12))
            if chance.random() < 0.4:
                log.files.datasync()
        recovery_point = (
            log.recovery_point if chance.random() < 0.7 else chance.randint(0, log.recovery_point)
        )
        synced = log.recovery_point
        disk.crash(lambda unsynced: chance.randint(0, unsynced))
        recovered = open_log(FaultyDisk(), str(tmp_path), CONFIG, recovery_point=recovery_point)
        assert recovered.end_offset >= synced


def test_a_log_that_cannot_be_read_is_a_storage_error_also_for_a_scan(bench: Bench) -> None:
    made = fill(bench.log, 60)
    bench.disk.break_path("pread", ".log")
    with pytest.raises(StorageError, match="cannot read"):
        list(bench.log.files.scan(0))
    bench.disk.repair()
    batches = bench.log.files.scan(0)
    next(batches)
    bench.disk.break_path("pread", ".log")
    with pytest.raises(StorageError, match="cannot read"):
        list(batches)
    bench.disk.repair()
    assert [bytes(batch) for batch, _ in bench.log.files.scan(0)] == made


class TestTornWrites:
    """A write fails in its middle, and what it left cannot be cut off either."""

    def tear(self, bench: Bench) -> list[bytes]:
        made = fill(bench.log, 5)
        bench.disk.torn_bytes = 100
        add(bench.log)
        with pytest.raises(StorageError):
            bench.log.write_pending()
        bench.disk.repair()
        return made

    def log_files(self, bench: Bench) -> dict[int, int]:
        return {int(path.stem): path.stat().st_size for path in bench.path.glob("*.log")}

    def test_it_is_cut_off_before_the_segment_is_sealed(self, bench: Bench) -> None:
        made = self.tear(bench)
        bench.clock.advance(1000)
        made.append(add(bench.log, value=bytes(3000)))
        bench.log.write_pending()
        assert self.log_files(bench) == {0: sum(map(len, made[:5])), 5: len(made[5])}
        bench.log.files.close()
        for clean in (True, False):
            again = open_log(bench.disk, str(bench.path), CONFIG, clean=clean, power_lost=False)
            assert read_all(again) == b"".join(made)
            assert again.report.truncated_bytes == 0

    def test_as_long_as_it_cannot_be_nothing_is_taken(self, bench: Bench) -> None:
        made = self.tear(bench)
        bench.disk.break_path("truncate", ".log")
        for _ in range(2):
            bench.clock.advance(1000)
            with pytest.raises(StorageError):
                add(bench.log, value=bytes(3000))
            with pytest.raises(StorageError):
                bench.log.roll()
        assert list(self.log_files(bench)) == [0]
        bench.disk.repair()
        bench.clock.advance(1000)
        made += fill(bench.log, 1)
        assert read_all(bench.log) == b"".join(made)

    def test_a_log_is_not_closed_cleanly_with_it(self, bench: Bench) -> None:
        made = self.tear(bench)
        bench.disk.break_path("truncate", ".log")
        with pytest.raises(StorageError):
            bench.log.files.close()
        bench.disk.repair()
        assert read_all(bench.open()) == b"".join(made)

    def test_closing_cuts_it_off(self, bench: Bench) -> None:
        made = self.tear(bench)
        bench.log.files.close()
        assert self.log_files(bench) == {0: sum(map(len, made))}
