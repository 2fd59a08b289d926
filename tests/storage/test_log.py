from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.errors import ErrorCode, KafkaError
from forebay.storage.disk import FileClosed
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.recovery.txn_index_recovery import TXN_INDEXED
from forebay.storage.log.tended_logs import TendedLogs
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import read_header
from support.machines.manual_clock import ManualClock
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

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=500)


def open_small(path: Path, config: LogConfig = SMALL, disk: RealDisk | None = None, **options: object) -> Log:
    return open_log(disk or RealDisk(), str(path / "t-0"), config, **options)  # type: ignore[arg-type]


def names(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "t-0").iterdir())


def names_after_open(path: Path) -> list[str]:
    open_small(path)
    return names(path)


def reaped(log: Log) -> list[int]:
    """The base offsets of the segments whose files may be removed now."""
    return [int(Path(path).name.split(".")[0]) for path in log.reap() if ".log" in path]


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    made = fill(log, 40, count=3)
    assert log.end_offset == 120
    assert log.size == sum(map(len, made))
    for max_bytes in (1, 100, 300, 777, 1 << 20):
        assert read_all(log, max_bytes) == b"".join(made)


def test_queued_batches_are_written_when_somebody_reads(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    made = add(log)
    assert bytes_of(log.read(0, 1000).range) == made


def test_read_starts_at_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = open_small(tmp_path, LogConfig(index_interval_bytes=200))
    made = fill(log, 50, count=4)
    for offset in range(log.end_offset):
        assert bytes_of(log.read(offset, 1).range) == made[offset // 4]
        assert log.batch_at(offset) == offset // 4 * 4


def test_read_respects_the_upper_offset(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    made = fill(log, 30, count=2)
    for upper in range(0, 62, 2):
        found, offset = b"", 0
        while (piece := log.read(offset, 1 << 20, upper_offset=upper)).range is not None:
            found += bytes_of(piece.range)
            offset = piece.next_offset
        assert found == b"".join(made[: upper // 2])
        assert offset == min(upper, 60)


def test_a_read_says_whether_more_can_be_read(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    fill(log, 30, count=2)
    for upper in range(2, 62, 2):
        for max_bytes in (1, 200, 500, 1 << 20):
            offset, more = 0, True
            while more:
                _, offset, _, more = log.read(offset, max_bytes, upper_offset=upper)
                assert more == (log.read(offset, 1, upper_offset=upper).range is not None)
            assert offset == min(upper, 60)


def test_an_upper_offset_inside_a_batch_hides_that_batch(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    made = fill(log, 3, count=4)
    assert bytes_of(log.read(0, 1 << 20, upper_offset=6).range) == made[0]
    assert log.read(4, 1 << 20, upper_offset=6).range is None


def test_a_batch_larger_than_the_limit(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    made = fill(log, 2)
    piece = log.read(0, 10)
    assert (bytes_of(piece.range), piece.next_offset) == (made[0], 1)
    assert log.read(0, 10, min_one=False) == (None, 0, None, True)


def test_reads_outside_of_the_log(tmp_path: Path) -> None:
    log = open_small(tmp_path, start_offset=5)
    fill(log, 3)
    assert log.read(8, 100).range is None
    for offset in (4, 9, -1):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_append_behind_the_end_is_refused(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    fill(log, 3)
    stale = batch(1)
    with pytest.raises(ValueError, match="ends at 3"):
        log.append(memoryview(stale), read_header(stale))


def test_offsets_may_have_gaps(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    for offset in (0, 10, 11, 500, 501, 502, 503, 900, 2000):
        made = batch(offset)
        log.append(memoryview(made), read_header(made))
    log.write_pending()
    assert log.end_offset == 2001
    found = read_header(bytes_of(log.read(12, 1).range))
    assert found.base_offset == 500
    assert [h.base_offset for h in headers(read_all(log, start=600))] == [900, 2000]


class TestRolling:
    def test_by_size(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        made = fill(log, 20)
        per_segment = SMALL.segment_bytes // len(made[0])
        assert [info.base_offset for info in log.segments()] == list(range(0, 20, per_segment))
        assert all(info.size <= SMALL.segment_bytes for info in log.segments())
        assert [info.next_offset for info in log.segments()] == [*range(per_segment, 20, per_segment), 20]

    def test_a_batch_larger_than_a_segment_has_one_of_its_own(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        made = [add(log, value=bytes(size)) for size in (10, 2000, 10, 3000)]
        assert [info.base_offset for info in log.segments()] == [0, 1, 2, 3]
        assert read_all(log) == b"".join(made)

    def test_by_time_since_the_first_batch(self, tmp_path: Path) -> None:
        log = open_small(tmp_path, LogConfig(segment_ms=100))
        for timestamp in (1000, 1100, 1050, 1101, 1201, 1202):
            add(log, timestamp=timestamp)
        assert [info.base_offset for info in log.segments()] == [0, 3, 5]
        log.files.close()
        again = open_small(tmp_path, LogConfig(segment_ms=100), clean=True)
        add(again, timestamp=1302)
        add(again, timestamp=1303)
        assert [info.base_offset for info in again.segments()] == [0, 3, 5, 7]

    def test_jitter_closes_each_segment_a_little_earlier_and_always_at_the_same_time(
        self, tmp_path: Path
    ) -> None:
        config = LogConfig(segment_ms=1_000, segment_jitter_ms=400)
        ages = [
            config.age_max_ms(f"/data/topic-{index}", offset) for index in range(20) for offset in (0, 99)
        ]
        assert len(set(ages)) > 30
        assert min(ages) > 600
        assert max(ages) <= 1_000
        assert ages[0] == config.age_max_ms("/elsewhere/topic-0", 0)
        log = open_small(tmp_path, config)
        age = config.age_max_ms("t-0", 0)
        for timestamp in (1_000, 1_000 + age, 1_001 + age):
            add(log, timestamp=timestamp)
        assert [info.base_offset for info in log.segments()] == [0, 2]

    def test_jitter_beyond_the_age_leaves_a_segment_some_time(self) -> None:
        config = LogConfig(segment_ms=10, segment_jitter_ms=1_000_000)
        assert {config.age_max_ms("t-0", offset) for offset in range(500)} == set(range(1, 11))

    def test_when_offsets_outgrow_the_index(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        add(log)
        far = batch(2**31 + 10)
        log.append(memoryview(far), read_header(far))
        assert [info.base_offset for info in log.segments()] == [0, 11], "as near to the end as it can"
        assert read_header(bytes_of(log.read(5, 1).range)).base_offset == 2**31 + 10

    def test_when_offsets_outgrow_the_index_of_an_empty_segment(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        far = batch(2**31 + 10)
        log.append(memoryview(far), read_header(far))
        log.write_pending()
        assert [info.base_offset for info in log.segments()] == [11]
        segment = ["00000000000000000011.log", "00000000000000000011.txnindex"]
        assert names(tmp_path) == [TXN_INDEXED, *segment]

    def test_when_the_index_is_full(self, tmp_path: Path) -> None:
        config = LogConfig(index_interval_bytes=1, segment_index_bytes=80)
        log = open_small(tmp_path, config)
        fill(log, 30)
        assert [info.base_offset for info in log.segments()] == [0, 10, 20]

    def test_on_request_but_not_when_empty(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        rolled: list[int] = []
        log.on_roll = rolled.append
        log.roll()
        add(log)
        log.roll()
        log.roll()
        assert rolled == [1]
        assert [info.base_offset for info in log.segments()] == [0, 1]

    def test_settings_can_change(self, tmp_path: Path) -> None:
        log = open_small(tmp_path, LogConfig())
        fill(log, 20)
        log.configure(SMALL)
        fill(log, 1)
        assert [info.base_offset for info in log.segments()] == [0, 20]


class TestTheFront:
    def test_deleting_segments_moves_the_start(self, tmp_path: Path) -> None:
        clock = ManualClock()
        log = open_small(tmp_path, clock=clock)
        fill(log, 30)
        bases = [info.base_offset for info in log.segments()]
        held = log.read(0, 1 << 20).range
        assert held is not None
        expected = bytes_of(held)
        log.delete_front(2)
        assert log.start_offset == bases[2]
        assert "00000000000000000000.log.deleted" in names(tmp_path)
        assert bytes_of(held) == expected  # a slow reader finishes
        clock.step(365 * 86_400_000)
        assert log.reap() == [], "a clock that is set removes nothing"
        clock.advance(SMALL.file_delete_delay_ms)
        for path in log.reap():
            RealDisk().remove(path)
        assert not [name for name in names(tmp_path) if name.endswith(".deleted")]
        with pytest.raises(FileClosed):
            bytes_of(held)

    def test_deleted_segments_that_nobody_reads_need_not_wait(self, tmp_path: Path) -> None:
        log, tended = open_small(tmp_path, replace(SMALL, deleted_bytes_max=2500)), TendedLogs()
        told: list[bool] = []
        log.tended, tended.on_due = tended, lambda: told.append(log.is_reap_due)
        fill(log, 60)
        bases = [info.base_offset for info in log.segments()]
        held, finished = log.read(0, 1 << 20).range, log.read(bases[1], 1 << 20)
        assert held is not None and finished.range is not None
        expected = bytes_of(held)
        del finished
        log.delete_front(2)
        assert told == [True]
        assert reaped(log) == bases[1:2]
        assert bytes_of(held) == expected, "a slow reader finishes"
        assert not log.is_reap_due and reaped(log) == []
        rest = replace(held, position=held.position + 10, length=held.length - 10)  # a part was sent
        del held
        assert not log.is_reap_due and bytes_of(rest) == expected[10:]
        del rest
        assert log.is_reap_due and reaped(log) == bases[:1]
        assert not log.has_deleted

    def test_a_reader_that_stands_still_keeps_a_deleted_segment_only_for_its_time(
        self, tmp_path: Path
    ) -> None:
        clock = ManualClock()
        log = open_small(tmp_path, replace(SMALL, deleted_bytes_max=2500), clock=clock)
        fill(log, 30)
        held = log.read(0, 1 << 20).range
        log.delete_front(1)
        assert held is not None and not log.is_reap_due
        clock.advance(SMALL.file_delete_delay_ms)
        assert reaped(log) == [0]
        with pytest.raises(FileClosed):
            bytes_of(held)

    def test_deleted_segments_that_are_read_wait_within_a_bound_and_the_last_in_any_case(
        self, tmp_path: Path
    ) -> None:
        """The oldest go first: somebody may still read the last."""
        log = open_small(tmp_path, replace(SMALL, deleted_bytes_max=2500))
        fill(log, 60)
        bases = [info.base_offset for info in log.segments()]
        held = [log.read(base, 1 << 20) for base in bases]
        log.delete_front(2)
        assert not log.is_reap_due
        log.delete_front(2)
        assert log.is_reap_due
        assert reaped(log) == bases[:2]
        log.configure(replace(SMALL, deleted_bytes_max=0))
        log.delete_front(1)
        assert reaped(log) == bases[2:4]
        assert not log.is_reap_due
        assert held

    def test_a_closed_log_waits_for_nothing(self, tmp_path: Path) -> None:
        """Or a topic that was deleted meanwhile would be looked after for ever."""
        log, tended = open_small(tmp_path), TendedLogs()
        log.tended = tended
        fill(log, 30)
        log.delete_front(2)
        tended.forget_those_in_order()
        assert tended.deleted == {log}
        log.files.close()
        tended.forget_those_in_order()
        assert not tended.deleted and not log.is_reap_due
        assert not [name for name in names_after_open(tmp_path) if name.endswith(".deleted")]

    def test_the_active_segment_stays(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        fill(log, 30)
        log.delete_front(1000)
        assert len(log.segments()) == 1
        assert log.start_offset == log.segments()[0].base_offset

    def test_deleting_records(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        made = fill(log, 30, count=2)
        log.advance_start(33)
        assert log.start_offset == 33
        assert log.segments()[0].base_offset <= 33 < log.segments()[0].next_offset
        assert read_all(log) == b"".join(made[16:])
        with pytest.raises(KafkaError):
            log.read(32, 100)
        with pytest.raises(KafkaError):
            log.advance_start(61)
        log.advance_start(10)
        assert log.start_offset == 33
        log.files.close()
        assert open_small(tmp_path, clean=True, start_offset=33).start_offset == 33


class TestTruncating:
    def test_at_every_batch(self, tmp_path: Path) -> None:
        for keep in range(13):
            log = open_small(tmp_path / str(keep))
            made = fill(log, 12, count=2)
            log.files.truncate_to(2 * keep)
            assert log.end_offset == 2 * keep
            assert read_all(log) == b"".join(made[:keep])
            more = fill(log, 10)
            assert read_all(log) == b"".join(made[:keep] + more)
            log.files.close()
            assert read_all(open_small(tmp_path / str(keep), clean=True)) == b"".join(made[:keep] + more)

    def test_inside_a_batch_drops_it(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        fill(log, 3, count=4)
        log.files.truncate_to(6)
        assert log.end_offset == 4

    def test_a_range_held_over_it_is_an_error_not_other_bytes(self, tmp_path: Path) -> None:
        log = open_small(tmp_path, LogConfig())
        fill(log, 10)
        held = log.read(5, 1 << 20).range
        log.files.truncate_to(5)
        fill(log, 10)
        with pytest.raises(FileClosed):
            bytes_of(held)

    def test_everything(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        fill(log, 30)
        log.files.datasync()
        log.files.truncate_fully_and_start_at(1000)
        assert (log.start_offset, log.end_offset, log.size) == (1000, 1000, 0)
        made = fill(log, 3)
        assert read_all(log) == b"".join(made)

    def test_lowers_the_recovery_point_even_under_a_sync(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        fill(log, 30)
        assert log.files.datasync() == 30
        log.files.truncate_to(10)
        assert log.recovery_point == 10
        fill(log, 30)
        assert log.recovery_point == 10
        assert log.files.datasync() == 40


class TestByTime:
    def test_the_first_record_not_older(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        timestamps = [1000 + (n * 37) % 500 for n in range(60)]
        for timestamp in timestamps:
            add(log, timestamp=timestamp)
        for wanted in range(990, 1510, 7):
            first = next((n for n, timestamp in enumerate(timestamps) if timestamp >= wanted), None)
            assert find_timestamp(log, wanted) == (None if first is None else (timestamps[first], first))

    def test_inside_a_batch(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        for n in range(10):
            add(log, count=5, timestamp=1000 + 10 * n)
        assert find_timestamp(log, 1032) == (1032, 17)
        assert find_timestamp(log, 1035) == (1040, 20)
        assert largest_timestamp(log) == (1094, 49)

    def test_the_largest_is_the_first_of_its_kind(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        for timestamp in [1, 5, 3, 9, 9, 2] * 5:
            add(log, timestamp=timestamp)
        assert largest_timestamp(log) == (9, 3)
        log.files.close()
        assert largest_timestamp(open_small(tmp_path, clean=True)) == (9, 3)

    def test_not_before_the_start(self, tmp_path: Path) -> None:
        log = open_small(tmp_path, LogConfig())
        fill(log, 10, count=2)
        log.advance_start(7)
        assert find_timestamp(log, 0) == (1004, 7)

    def test_an_empty_log(self, tmp_path: Path) -> None:
        log = open_small(tmp_path)
        assert find_timestamp(log, 0) is None
        assert largest_timestamp(log) is None


def test_snapshots_of_producers(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    assert list(log.files.snapshots()) == []
    for state in (b"first", b"second", b"third"):
        fill(log, 5)
        log.files.datasync()
        log.write_snapshot(state)
    assert list(log.files.snapshots()) == [(15, b"third"), (10, b"second")]
    log.files.truncate_to(12)
    assert list(log.files.snapshots()) == [(10, b"second")]
    assert "00000000000000000010.snapshot" in names(tmp_path)


def test_the_snapshots_of_all_segments_are_kept_where_they_are_copied(tmp_path: Path) -> None:
    log = open_small(tmp_path, LogConfig(keeps_snapshots=True))
    for _ in range(4):
        fill(log, 5)
        log.files.datasync()
        log.write_snapshot(b"state")
    assert [offset for offset, _ in log.files.snapshots()] == [20, 15, 10, 5]
    assert log.files.snapshot_at(10) == b"state"


def test_a_snapshot_lists_no_directory(tmp_path: Path) -> None:
    """A log that rolls often, on a disk that cannot be read any more, would be tried in vain each time."""
    log = open_small(tmp_path, disk=(disk := UnlistableDisk()))
    assert list(log.files.snapshots()) == []
    disk.unlistable = True
    for state in (b"first", b"second", b"third"):
        fill(log, 5)
        log.files.datasync()
        log.write_snapshot(state)
    log.files.truncate_to(12)
    assert list(log.files.snapshots()) == [(10, b"second")]


def test_after_a_snapshot_that_failed_the_directory_is_looked_at_again(tmp_path: Path) -> None:
    log = open_small(tmp_path, disk=(disk := UnlistableDisk()))
    fill(log, 5)
    disk.half_done = True
    with pytest.raises(OSError, match="half done"):
        log.write_snapshot(b"written, and nobody knows")
    disk.half_done = False
    log.files.truncate_to(2)
    assert not [name for name in names(tmp_path) if name.endswith(".snapshot")]


class UnlistableDisk(RealDisk):
    unlistable = False
    half_done = False
    """A file is written, and yet the call fails."""

    def list(self, path: str) -> list[str]:
        if self.unlistable:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().list(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, sync_name: bool = True) -> None:
        super().write_atomic(path, data, sync=sync, sync_name=sync_name)
        if self.half_done:
            raise OSError(errno.EIO, "half done", path)


def test_the_snapshot_that_recovery_begins_with_is_kept(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    fill(log, 5)
    log.write_snapshot(b"first")
    log.files.datasync()
    for _ in range(3):
        fill(log, 5)
        log.write_snapshot(b"later")
    assert [offset for offset, _ in log.files.snapshots()] == [20, 15, 10, 5]
    log.files.datasync()
    fill(log, 5)
    log.write_snapshot(b"last")
    assert [offset for offset, _ in log.files.snapshots()] == [25, 20]


def test_snapshots_of_what_a_crash_took_are_removed(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    fill(log, 5)
    log.write_snapshot(b"kept")
    last = fill(log, 1)[0]
    log.write_snapshot(b"beyond the cut")
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[: -len(last)])
    again = open_small(tmp_path)
    assert again.end_offset == 5
    fill(again, 5)
    assert list(again.files.snapshots()) == [(5, b"kept")]


def test_scan_gives_every_batch_from_an_offset(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    made = fill(log, 25, count=2)
    found = list(log.files.scan(21))
    assert [bytes(data) for data, _ in found] == made[10:]
    assert [header.base_offset for _, header in found] == list(range(20, 50, 2))


def test_scan_of_batches_larger_than_a_chunk(tmp_path: Path) -> None:
    log = open_small(tmp_path, LogConfig())
    made = [add(log, value=bytes(size)) for size in (10, 3 << 20, 700_000, 700_000, 5)]
    assert [bytes(data) for data, _ in log.files.scan(0)] == made


def test_what_this_process_wrote_is_warm(tmp_path: Path) -> None:
    log = open_small(tmp_path)
    fill(log, 5)
    assert log.is_warm(log.read(0, 1 << 20))
    assert log.is_warm(log.read(5, 1 << 20))


def test_where_the_next_read_begins_is_believed_only_of_bytes_that_are_checked(tmp_path: Path) -> None:
    log = open_small(tmp_path, LogConfig(index_interval_bytes=200))
    made = fill(log, 20, count=4)
    first = log.read(0, len(made[0]))
    astray = first._replace(next_offset=6)  # as if the header of the first batch were damaged
    log.expect_read_after(first)
    assert bytes_of(log.read(4, 1).range) == made[1]
    log.files.close()
    log = open_small(tmp_path, LogConfig(index_interval_bytes=200), clean=True, recovery_point=80)
    unchecked = log.read(0, len(made[0]) * 3)
    assert not log.is_warm(unchecked)
    log.expect_read_after(unchecked._replace(next_offset=astray.next_offset))
    assert bytes_of(log.read(6, 1).range) == made[1]
