"""What is left of a log after a crash, and what is never taken away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.segment.batch_parts import CorruptBatch
from forebay.storage.real_disk import RealDisk
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

CONFIG = LogConfig(segment_bytes=450, index_interval_bytes=150)
BATCHES = 8
SYNCED = 5
"""Batches below the recovery point; with segments of three batches they end in the middle of the second."""


class Crashed:
    """A log of eight batches in three segments, abandoned without being closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        log = open_log(RealDisk(), str(path), CONFIG)
        self.made = fill(log, BATCHES, value=b"v" * 40)
        self.bases = [info.base_offset for info in log.segments()]
        self.original = {file.name: file.read_bytes() for file in path.iterdir()}

    def reset(self) -> None:
        shutil.rmtree(self.path)
        self.path.mkdir()
        for name, data in self.original.items():
            (self.path / name).write_bytes(data)

    def open(self, *, recovery_point: int = SYNCED, clean: bool = False) -> Log:
        return open_log(RealDisk(), str(self.path), CONFIG, recovery_point=recovery_point, clean=clean)

    def segment(self, base: int) -> Path:
        return self.path / f"{base:020d}.log"


@pytest.fixture
def crashed(tmp_path: Path) -> Crashed:
    made = Crashed(tmp_path / "t-0")
    assert made.bases == [0, 4]
    return made


def goes_on(log: Log) -> None:
    """Appending continues where the log ends, without a gap."""
    before = read_all(log)
    more = fill(log, 6)
    assert read_all(log) == before + b"".join(more)
    offsets = [header.base_offset for header in headers(read_all(log))]
    assert offsets == list(range(len(offsets)))


def test_nothing_torn_nothing_lost(crashed: Crashed) -> None:
    log = crashed.open()
    assert read_all(log) == b"".join(crashed.made)
    assert not log.report.damage
    assert (log.report.missing_offsets, log.report.truncated_bytes) == (0, 0)
    goes_on(log)


def test_cut_anywhere_in_the_unsynced_tail(crashed: Crashed) -> None:
    size = len(crashed.made[0])
    tail = crashed.segment(4)
    for cut in range(size, len(crashed.original[tail.name])):
        crashed.reset()
        tail.write_bytes(crashed.original[tail.name][:cut])
        log = crashed.open()
        whole = 4 + cut // size
        assert read_all(log) == b"".join(crashed.made[:whole])
        assert log.report.truncated_bytes == cut % size
        assert log.offline is None
        if cut % 10 == 0:
            goes_on(log)


def test_a_byte_flipped_anywhere_in_the_unsynced_tail(crashed: Crashed) -> None:
    size = len(crashed.made[0])
    tail = crashed.segment(4)
    for position in range(size, len(crashed.original[tail.name])):
        crashed.reset()
        data = bytearray(crashed.original[tail.name])
        data[position] ^= 0x55
        tail.write_bytes(data)
        log = crashed.open()
        found = read_all(log)
        in_batch = position % size
        if 12 <= in_batch < 16 or in_batch < 8:
            # The CRC covers neither leader epoch nor base offset, and a larger offset is a legal gap.
            assert found[: 4 * size] == b"".join(crashed.made[:4])
        else:
            assert found == b"".join(crashed.made[: 4 + position // size])
        assert log.offline is None


def test_garbage_after_the_end(crashed: Crashed) -> None:
    for garbage in (b"\0" * 200, b"\xff" * 61, b"\x02" * 100, crashed.made[-1], crashed.made[0]):
        crashed.reset()
        tail = crashed.segment(4)
        tail.write_bytes(tail.read_bytes() + garbage)
        log = crashed.open()
        assert read_all(log) == b"".join(crashed.made)
        assert log.report.truncated_bytes == len(garbage)
        goes_on(log)


def test_a_tear_in_an_unsynced_segment_takes_the_later_ones(crashed: Crashed) -> None:
    first = crashed.segment(0)
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    log = crashed.open(recovery_point=2)
    assert read_all(log) == b"".join(crashed.made[:3])
    assert log.report.removed_segments == 1
    assert not crashed.segment(4).exists()
    goes_on(log)


def test_a_segment_that_ends_early_takes_the_later_ones(crashed: Crashed) -> None:
    size = len(crashed.made[0])
    first = crashed.segment(0)
    first.write_bytes(first.read_bytes()[: 2 * size])
    log = crashed.open(recovery_point=1)
    assert log.end_offset == 2
    goes_on(log)


class TestIndexes:
    def test_missing(self, crashed: Crashed) -> None:
        for clean in (False, True):
            crashed.reset()
            for path in (*crashed.path.glob("*.index"), *crashed.path.glob("*.timeindex")):
                path.unlink()
            log = crashed.open(clean=clean)
            assert read_all(log) == b"".join(crashed.made)
            assert find_timestamp(log, 1006) == (1006, 6)
            assert largest_timestamp(log) == (1007, 7)
            goes_on(log)

    def test_messages_without_times_are_not_looked_through_after_the_log_is_opened(
        self, tmp_path: Path
    ) -> None:
        """Retention asks for the largest time of every segment, on the event loop."""
        disk = FaultyDisk()
        log = open_log(disk, str(tmp_path), CONFIG)
        for _ in range(20):
            add(log, timestamp=-1)
        log.files.close()
        log = open_log(disk, str(tmp_path), CONFIG, clean=True)
        disk.break_path("pread", ".log")
        assert {segment.largest_timestamp for segment in log.segments()} == {-1}

    @pytest.mark.parametrize("missing", ["*index", "*.index", "*.timeindex"])
    def test_missing_are_made_when_the_log_is_opened(self, tmp_path: Path, missing: str) -> None:
        """Not when they are needed: that is on the event loop, and a segment may be large."""
        log = open_log(RealDisk(), str(tmp_path), CONFIG)
        fill(log, 20)
        active = f"{log.segments()[-1].base_offset:020d}"
        log.files.close()
        whole = {path.name: path.read_bytes() for path in tmp_path.glob("*index")}
        for path in tmp_path.glob(missing):
            path.unlink()
        log = open_log(RealDisk(), str(tmp_path), CONFIG, clean=True, recovery_point=20)
        assert len(log.lost_txn_indexes) == (len(log.segments()) if missing == "*index" else 0)
        log.files.replace_lost_aborted([])
        sealed = [name for name in whole if not name.startswith(active)]
        assert len(sealed) > 5
        assert {name: (tmp_path / name).read_bytes() for name in sealed} == {n: whole[n] for n in sealed}

    @pytest.mark.parametrize("left", [b"abc", b"\0" * 24], ids=["part", "zeros"])
    @pytest.mark.parametrize("suffix", ["index", "timeindex"])
    def test_what_a_power_failure_left_of_the_first_entry_counts_as_missing(
        self, tmp_path: Path, suffix: str, left: bytes
    ) -> None:
        log = open_log(RealDisk(), str(tmp_path), CONFIG)
        fill(log, 20)
        sealed = tmp_path / f"{log.segments()[1].base_offset:020d}.{suffix}"
        log.files.close()
        whole = sealed.read_bytes()
        assert whole
        sealed.write_bytes(left)
        open_log(RealDisk(), str(tmp_path), CONFIG, recovery_point=20)
        assert sealed.read_bytes() == whole

    @pytest.mark.parametrize("clean", [False, True])
    @pytest.mark.parametrize(
        "garbage", [b"\xff" * 48, b"\x01" * 24, b"\0" * 96, b"abc", b"\0\0\0\1\0\0\0\7" * 3]
    )
    def test_garbage(self, crashed: Crashed, garbage: bytes, clean: bool) -> None:
        for suffix in ("index", "timeindex"):
            for base in crashed.bases:
                (crashed.path / f"{base:020d}.{suffix}").write_bytes(garbage)
        log = crashed.open(clean=clean)
        for offset in range(BATCHES):
            assert bytes_of(log.read(offset, 1).range) == crashed.made[offset]
        assert read_all(log, 300) == b"".join(crashed.made)
        assert find_timestamp(log, 1006) == (1006, 6)
        assert find_timestamp(log, 1002) == (1002, 2)
        assert [info.largest_timestamp for info in log.segments()] == [1003, 1007]
        goes_on(log)

    def test_of_segments_that_are_gone_are_removed(self, crashed: Crashed) -> None:
        orphan = crashed.path / "00000000000000000002.index"
        orphan.write_bytes(b"12345678")
        (crashed.path / "00000000000000000000.log.deleted").write_bytes(b"x")
        crashed.open()
        assert not orphan.exists()
        assert not list(crashed.path.glob("*.deleted"))


class TestDamage:
    """Below the recovery point nothing is ever cut: damage is reported, and reading it is an error."""

    def test_a_byte_flipped_anywhere_below_the_recovery_point(self, crashed: Crashed) -> None:
        size = len(crashed.made[0])
        second = crashed.segment(4)
        for position in range(size):
            if 8 <= position < 12 or position >= 16:  # what is not CRC covered cannot be told from truth
                crashed.reset()
                data = bytearray(second.read_bytes())
                data[position] ^= 0x55
                second.write_bytes(data)
                log = crashed.open()
                assert second.read_bytes() == data
                assert [(d.position, d.length) for d in log.report.damage] == [(0, size)]
                assert (log.end_offset, log.offline) == (BATCHES, None)
                assert bytes_of(log.read(5, 1 << 20).range) == b"".join(crashed.made[5:])
                with pytest.raises(CorruptBatch) as caught:
                    read_all(log, start=4)
                assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
                more = fill(log, 1)
                assert bytes_of(log.read(BATCHES, 1 << 20).range) == more[0]

    def test_in_a_segment_that_is_not_scanned_is_found_when_read(self, crashed: Crashed) -> None:
        size = len(crashed.made[0])
        first = crashed.segment(0)
        for clean in (True, False):
            for position in range(len(crashed.original[first.name])):
                if 12 <= position % size < 16:
                    continue  # the leader epoch is not covered by the CRC
                crashed.reset()
                data = bytearray(first.read_bytes())
                data[position] ^= 0x55
                first.write_bytes(data)
                log = crashed.open(clean=clean, recovery_point=BATCHES if clean else SYNCED)
                assert (log.end_offset, log.offline) == (BATCHES, None)
                with pytest.raises(KafkaError):
                    read_all(log)
                assert read_all(log, start=4) == b"".join(crashed.made[4:])
                assert first.read_bytes() == data
                in_batch = position % size
                if position > 2 * size and in_batch >= 21:
                    assert bytes_of(log.read(0, size).range) == crashed.made[0]

    def test_synced_messages_that_are_gone_take_the_log_offline(self, crashed: Crashed) -> None:
        size = len(crashed.made[0])
        second = crashed.segment(4)
        for kept in (0, 1, size - 1):
            for clean in (False, True):
                crashed.reset()
                second.write_bytes(crashed.original[second.name][:kept])
                log = crashed.open(clean=clean)
                assert log.report.missing_offsets == 1
                assert log.offline is not None
                assert "recovery-point-offset-checkpoint" in log.offline
                assert read_all_up_to(log, 4) == b"".join(crashed.made[:4])
                for offset in (4, 5):
                    with pytest.raises(StorageError):
                        log.read(offset, 100)
                with pytest.raises(StorageError):
                    add(log)
                assert second.read_bytes() == crashed.original[second.name][:kept]
                assert log.recovery_point == SYNCED
                log.files.close()
                assert crashed.open(clean=True).offline is not None

    def test_the_loss_can_be_accepted(self, crashed: Crashed) -> None:
        second = crashed.segment(4)
        for clean in (False, True):
            crashed.reset()
            second.write_bytes(crashed.original[second.name][:20])
            log = crashed.open(recovery_point=0, clean=clean)
            assert log.offline is None
            assert read_all(log) == b"".join(crashed.made[:4])
            goes_on(log)

    def test_several_stretches(self, tmp_path: Path) -> None:
        config = LogConfig(index_interval_bytes=150)
        log = open_log(RealDisk(), str(tmp_path), config)
        made = fill(log, 30)
        size = len(made[0])
        path = tmp_path / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        for number in (3, 4, 10, 20):
            data[number * size + 8 : number * size + 40] = bytes(32)
        path.write_bytes(data)
        log = open_log(RealDisk(), str(tmp_path), config, recovery_point=25)
        assert [(d.position, d.length) for d in log.report.damage] == [
            (3 * size, 2 * size),
            (10 * size, size),
            (20 * size, size),
        ]
        assert log.end_offset == 30
        for offset in (5, 11, 21, 29):
            assert read_all_up_to(log, offset + 1, start=offset) == made[offset]
        for offset in (3, 4, 10, 20):
            with pytest.raises(CorruptBatch):
                read_all(log, start=offset)


def read_all_up_to(log: Log, end: int, *, start: int = 0) -> bytes:
    found = b""
    while start < end:
        piece = log.read(start, 1, upper_offset=end)
        log.files.warm(piece)
        found += bytes_of(piece.range)
        start = piece.next_offset
    return found


def test_a_clean_start_reads_no_batches(crashed: Crashed) -> None:
    crashed.open().files.close()
    log = crashed.open(clean=True, recovery_point=BATCHES)
    assert log.report.scanned_bytes == 0
    piece = log.read(0, 1 << 20)
    assert not log.is_warm(piece)  # not until its CRCs are checked
    log.files.warm(piece)
    assert log.is_warm(piece)
    assert not log.is_warm(log.read(4, 1 << 20))
    more = fill(log, 1)
    tail = log.read(BATCHES, 1 << 20)
    assert log.is_warm(tail)
    assert bytes_of(tail.range) == more[0]


def test_a_sealed_segment_is_checked_piece_by_piece(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path), LogConfig(index_interval_bytes=150))
    made = fill(log, 40)
    log.files.close()
    log = open_log(RealDisk(), str(tmp_path), LogConfig(index_interval_bytes=150), clean=True)
    assert read_all(log, 500) == b"".join(made)
    assert log.is_warm(log.read(0, 1 << 20))  # the pieces were remembered as one


def test_deleted_offsets_are_not_given_out_again(crashed: Crashed) -> None:
    """The messages below the log start were never synced, and went with the power."""
    log = open_log(RealDisk(), str(crashed.path), CONFIG, start_offset=20, recovery_point=0)
    assert (log.start_offset, log.end_offset, log.offline) == (20, 20, None)
    made = fill(log, 3)
    assert read_all(log) == b"".join(made)


def test_a_directory_without_its_segments_is_a_loss(crashed: Crashed) -> None:
    for path in crashed.path.iterdir():
        path.unlink()
    log = crashed.open()
    assert log.report.missing_offsets == SYNCED
    assert log.offline is not None


def test_what_a_killed_process_left_unsynced_is_synced_by_the_next(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path), CONFIG)
    made = fill(log, 20)
    log.discard()  # killed: the bytes are in the page cache, in several segments
    log = open_log(disk, str(tmp_path), CONFIG)
    made += fill(log, 1)
    assert log.files.datasync() == 21
    disk.crash(lambda unsynced: 0)
    assert read_all(open_log(RealDisk(), str(tmp_path), CONFIG, recovery_point=21)) == b"".join(made)


def test_the_next_batch_is_looked_for_without_reading_the_rest_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sixteenth byte of the damaged batch looks as if a batch began there."""
    log = open_log(RealDisk(), str(tmp_path))
    made = fill(log, 3, value=(b"\2" + bytes(15)) * 40_000)
    (path,) = tmp_path.glob("*.log")
    data = bytearray(path.read_bytes())
    length_at = len(made[0]) + 8
    data[length_at : length_at + 4] = b"\x7f" * 4
    path.write_bytes(data)
    read, pread = 0, os.pread

    def counted(fd: int, length: int, position: int) -> bytes:
        nonlocal read
        found = pread(fd, length, position)
        read += len(found)
        return found

    monkeypatch.setattr(os, "pread", counted)
    log = open_log(RealDisk(), str(tmp_path), recovery_point=3)
    assert [each.length for each in log.report.damage] == [len(made[1])]
    assert log.end_offset == 3 and log.offline is None
    assert read < 20 * len(data)


class TestGaps:
    """A follower's copy of a compacted log: offsets are missing between batches, and nothing is lost."""

    OFFSETS = (0, 1, 7, 8, 20, 21, 22, 40, 55, 56, 70, 90)
    SIZE = len(batch(0))
    CONFIG = LogConfig(segment_bytes=2 * SIZE, index_interval_bytes=150)

    def copy(self, path: Path) -> list[bytes]:
        log = open_log(RealDisk(), str(path), self.CONFIG)
        made = [batch(offset) for offset in self.OFFSETS]
        for each in made:
            log.append(memoryview(each), read_header(each))
        log.write_pending()
        return made

    def open(self, path: Path, *, start_offset: int = 0, recovery_point: int = 0, power_lost: bool) -> Log:
        return open_log(
            RealDisk(),
            str(path),
            self.CONFIG,
            start_offset=start_offset,
            recovery_point=recovery_point,
            power_lost=power_lost,
        )

    @pytest.mark.parametrize("power_lost", [False, True])
    @pytest.mark.parametrize("recovery_point", [0, 8, 9, 23, 91])
    def test_are_no_loss(self, tmp_path: Path, recovery_point: int, power_lost: bool) -> None:
        made = self.copy(tmp_path)
        log = self.open(tmp_path, recovery_point=recovery_point, power_lost=power_lost)
        assert read_all(log) == b"".join(made)
        assert (log.report.removed_segments, log.report.lacks_messages) == (0, False)
        assert log.end_offset == 91

    def test_lie_within_segments(self, tmp_path: Path) -> None:
        self.copy(tmp_path)
        bases = sorted(int(path.stem) for path in tmp_path.glob("*.log"))
        assert bases == [0, 2, 9, 22, 41, 57], "each begins where the one before ends"

    def test_too_large_for_a_segment_lie_before_it(self, tmp_path: Path) -> None:
        log = open_log(RealDisk(), str(tmp_path), LogConfig())
        made = [batch(0), batch(2**32, count=3)]
        for each in made:
            log.append(memoryview(each), read_header(each))
        log.write_pending()
        assert [info.base_offset for info in log.segments()] == [0, 2**32 + 2 - (2**31 - 1)]
        log = self.open(tmp_path, power_lost=False)
        assert read_all(log) == b"".join(made)

    def between_segments(self, path: Path) -> list[bytes]:
        """As older versions left them: every segment begins with the batch that begins it."""
        made = self.copy(path)
        for file in path.iterdir():
            file.unlink()
        for first in range(0, len(made), 2):
            name = f"{self.OFFSETS[first]:020d}.log"
            (path / name).write_bytes(b"".join(made[first : first + 2]))
        return made

    def test_between_segments_are_no_loss_when_a_process_died(self, tmp_path: Path) -> None:
        made = self.between_segments(tmp_path)
        log = self.open(tmp_path, recovery_point=2, power_lost=False)
        assert read_all(log) == b"".join(made)
        assert (log.report.removed_segments, log.report.lacks_messages) == (0, False)

    @pytest.mark.parametrize(
        ("start_offset", "recovery_point", "power_lost", "expected"),
        [(0, 0, True, (0, 0)), (0, 0, False, (9, 91)), (9, 0, True, (9, 91)), (0, 9, True, (9, 91))],
    )
    def test_at_the_beginning_are_a_loss_with_the_power(
        self,
        tmp_path: Path,
        start_offset: int,
        recovery_point: int,
        power_lost: bool,
        expected: tuple[int, int],
    ) -> None:
        """Unless it was written down that the log begins there, or what is missing was synced."""
        self.copy(tmp_path)
        for path in tmp_path.iterdir():
            if path.stem.isdigit() and int(path.stem) < 9:
                path.unlink()
        log = self.open(
            tmp_path, start_offset=start_offset, recovery_point=recovery_point, power_lost=power_lost
        )
        assert (log.start_offset, log.end_offset) == expected

    @pytest.mark.parametrize("power_lost", [False, True])
    def test_that_were_deleted_are_no_loss(self, tmp_path: Path, power_lost: bool) -> None:
        """The power was lost before it was written down where the log begins: that is made up for."""
        self.copy(tmp_path)
        for path in list(tmp_path.iterdir()):
            if path.stem.isdigit() and int(path.stem) < 9:
                path.rename(f"{path}.deleted")
        noted: list[int] = []
        log = open_log(RealDisk(), str(tmp_path), self.CONFIG, power_lost=power_lost, note_start=noted.append)
        assert (log.start_offset, log.end_offset, noted) == (9, 91, [9])
        assert not list(tmp_path.glob("*.deleted"))

    def test_between_segments_are_a_loss_with_the_power(self, tmp_path: Path) -> None:
        made = self.between_segments(tmp_path)
        log = self.open(tmp_path, recovery_point=2, power_lost=True)
        assert read_all(log) == b"".join(made[:2])
        assert log.report.removed_segments == 5
        assert not log.report.lacks_messages, "whoever lost its power says so anyway"


class TestDeadProcess:
    """The process was killed and the machine was not: only the write under way can be torn."""

    def open(self, crashed: Crashed) -> Log:
        return open_log(RealDisk(), str(crashed.path), CONFIG, recovery_point=2, power_lost=False)

    def test_torn_bytes_before_the_next_segment_take_nothing_with_them(self, crashed: Crashed) -> None:
        for power_lost in (False, True):
            crashed.reset()
            first = crashed.segment(0)
            first.write_bytes(first.read_bytes() + crashed.made[4][:50])
            log = open_log(RealDisk(), str(crashed.path), CONFIG, recovery_point=2, power_lost=power_lost)
            assert read_all(log) == b"".join(crashed.made)
            assert (log.report.truncated_bytes, log.report.removed_segments) == (50, 0)
            assert not log.report.lacks_messages
            goes_on(log)

    def test_a_torn_end_is_nobodys_loss(self, crashed: Crashed) -> None:
        last = crashed.segment(4)
        last.write_bytes(last.read_bytes()[:-1])
        log = self.open(crashed)
        assert read_all(log) == b"".join(crashed.made[:-1])
        assert not log.report.lacks_messages

    @pytest.mark.parametrize("power_lost", [False, True])
    def test_a_wrong_batch_that_is_all_there_is_missed(self, crashed: Crashed, power_lost: bool) -> None:
        """No process tears a batch like that, whether it is the last or others follow."""
        size = len(crashed.segment(4).read_bytes())
        for flipped in range(0, size, 13):
            crashed.reset()
            last = crashed.segment(4)
            data = bytearray(last.read_bytes())
            data[flipped] ^= 1
            last.write_bytes(data)
            log = open_log(RealDisk(), str(crashed.path), CONFIG, recovery_point=2, power_lost=power_lost)
            was_cut = log.report.truncated_bytes > 0
            claims_more = 8 <= flipped % len(crashed.made[-1]) < 12
            if not claims_more:
                assert log.report.lacks_messages == (was_cut and not power_lost), flipped
            log.files.close()

    def test_segments_behind_damage_are_missed(self, crashed: Crashed) -> None:
        first = crashed.segment(0)
        data = bytearray(first.read_bytes())
        data[-1] ^= 1
        first.write_bytes(data)
        log = self.open(crashed)
        assert read_all(log) == b"".join(crashed.made[:3])
        assert log.report.lacks_messages
