from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.broker.partition.producer_replay import load_producers
from forebay.errors import StorageError
from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import DiskHandle
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import LeaderEpochs
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk
from support.faults.faulty_disk import FaultyDisk
from support.machines.storing import fill


def epochs(path: Path) -> LeaderEpochs:
    return LeaderEpochs(RealDisk(), str(path))


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    known = epochs(tmp_path)
    known.assign(0, 0)
    known.assign(3, 100)
    known.assign(2, 200)  # older than the latest: ignored
    assert not (tmp_path / "leader-epoch-checkpoint").exists(), "nobody waits for the device"
    known.datasync()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 100\n"
    assert epochs(tmp_path).entries == [(0, 0), (3, 100)]


def test_where_epochs_ended(tmp_path: Path) -> None:
    known = epochs(tmp_path)
    assert known.end_offset_for(0, 10) == (-1, -1)
    for epoch, start in ((1, 5), (3, 20), (4, 30)):
        known.assign(epoch, start)
    assert known.end_offset_for(4, 77) == (4, 77)
    assert known.end_offset_for(3, 77) == (3, 30)
    assert known.end_offset_for(2, 77) == (1, 20)
    assert known.end_offset_for(0, 77) == (0, 5)
    assert known.end_offset_for(5, 77) == (-1, -1)
    assert known.end_offset_for(-1, 77) == (-1, -1)


def test_an_epoch_that_wrote_nothing_is_replaced(tmp_path: Path) -> None:
    known = epochs(tmp_path)
    known.assign(1, 10)
    known.assign(2, 10)
    assert known.entries == [(2, 10)]


def test_truncation_from_both_ends(tmp_path: Path) -> None:
    known = epochs(tmp_path)
    for epoch, start in ((1, 0), (2, 20), (3, 30)):
        known.assign(epoch, start)
    for start in (5, 19):
        known.forget_below(start)
        assert known.entries == [(1, 0), (2, 20), (3, 30)]
    known.forget_below(25)
    assert known.entries == [(2, 20), (3, 30)]
    known.datasync()
    assert epochs(tmp_path).entries == [(2, 20), (3, 30)]
    known.forget_from(30)
    assert known.entries == [(2, 20)]
    known.forget_from(0)
    assert (known.entries, known.latest) == ([], -1)


def test_what_was_not_synced_is_believed_to_the_batches_only(tmp_path: Path) -> None:
    """The epoch of a leader that wrote nothing is in the file; the batches that came then are older."""
    log = open_log(RealDisk(), str(tmp_path))
    known = epochs(tmp_path)
    known.assign(0, 0)
    fill(log, 3)
    log.files.datasync()
    known.assign(7, 3)
    known.datasync()
    fill(log, 3)
    again = epochs(tmp_path)
    assert again.latest == 7
    load_producers(log, again)
    assert again.entries == [(0, 0)], "what the batches say"
    log.files.close()


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\nx y\n")
    with pytest.raises(StorageError, match="leader-epoch-checkpoint"):
        epochs(tmp_path)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), max_size=8), st.integers(0, 10))
def test_the_end_is_the_start_of_the_next_epoch(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], asked: int
) -> None:
    """Each leader appends some messages; whoever asks learns how far its own epoch goes."""
    known = epochs(tmp_path_factory.mktemp("epochs"))
    written: list[int] = []
    for epoch, count in sorted(dict(steps).items()):
        known.assign(epoch, len(written))
        written += [epoch] * count
    found, end = known.end_offset_for(asked, len(written))
    if found >= 0:
        assert all(epoch <= asked for epoch in written[:end])
        assert all(epoch > asked for epoch in written[end:])
    else:
        assert not steps or asked > max(epoch for epoch, _ in steps)


def test_a_synced_epoch_survives_a_loss_of_power() -> None:
    """Also the first one: without it nobody would find where this log differs from its leader's."""
    for seed in range(20):
        disk = SimDisk(Random(seed))
        handle = DiskHandle(disk, Random(seed))
        handle.mkdirs("/log")
        known = LeaderEpochs(handle, "/log")
        known.assign(0, 0)
        known.datasync()
        disk.lose_power()
        assert LeaderEpochs(DiskHandle(disk, Random(seed)), "/log").entries == [(0, 0)]


def followed(path: Path, config: LogConfig | None = None) -> tuple[Log, LeaderEpochs]:
    """A log that syncs its leader epochs with itself, as those of partitions do."""
    log = open_log(RealDisk(), str(path), config)
    known = epochs(path)
    log.files.before_sync = known.datasync
    return log, known


def has_file(path: Path) -> bool:
    return (path / "leader-epoch-checkpoint").exists()


def test_a_short_log_tells_its_only_epoch_itself(tmp_path: Path) -> None:
    log, known = followed(tmp_path)
    known.assign(0, 0)
    fill(log, 3)
    assert log.files.datasync() == 3
    assert not has_file(tmp_path)
    for clean in (False, True):
        again = open_log(RealDisk(), str(tmp_path), recovery_point=3, clean=clean)
        found = epochs(tmp_path)
        load_producers(again, found)
        assert found.entries == [(0, 0)]
        again.files.close()
    assert not has_file(tmp_path)


@pytest.mark.parametrize("change", ["an epoch", "a segment", "size", "no batch"])
def test_there_is_a_file_when_the_batches_do_not_tell_all(tmp_path: Path, change: str) -> None:
    log, known = followed(tmp_path, LogConfig(segment_bytes=100_000))
    known.assign(0, 0)
    fill(log, 1)
    log.files.datasync()
    assert not has_file(tmp_path)
    expected = [(0, 0)]
    if change == "an epoch":
        known.assign(4, 1)
        expected.append((4, 1))
        fill(log, 1)
    elif change == "a segment":
        fill(log, 1, value=b"v" * 60_000)
        fill(log, 1, value=b"v" * 60_000)
        assert len(log.segments()) == 2
    elif change == "size":
        fill(log, 1, value=b"v" * 70_000)
    else:
        log.files.truncate_fully_and_start_at(7)
        known.forget_from(0)
        known.assign(4, 7)
        expected = [(4, 7)]
    log.files.close()
    assert has_file(tmp_path)
    assert epochs(tmp_path).entries == expected


def test_the_last_batches_are_deleted_when_a_file_tells_their_epoch(tmp_path: Path) -> None:
    log, known = followed(tmp_path)
    log.on_roll = lambda _: log.write_snapshot(b"")
    log.keeps_batches = lambda begin: begin >= log.recovery_point and known.is_last_unwritten()
    assert not known.is_last_unwritten(), "there is none yet"
    known.assign(0, 0)
    fill(log, 3)
    log.files.datasync()
    log.roll()
    assert log.delete_front(1) == 0
    assert log.start_offset == 0
    log.advance_start(3)
    assert (log.start_offset, log.begin_offset) == (3, 0), "what is kept is not served"
    log.files.datasync()
    assert has_file(tmp_path)
    assert log.delete_front(1) == 1
    known.assign(1, 3)
    assert known.is_last_unwritten()
    fill(log, 1)
    log.roll()
    fill(log, 1)
    assert log.delete_front(1) == 0, "what follows may be lost with the power"
    log.files.datasync()
    known.assign(2, 5)
    assert log.delete_front(1) == 1, "what follows is synced"
    log.files.close()


def test_a_file_that_could_not_be_synced_is_written_again(tmp_path: Path) -> None:
    """It may be there, and say less than is known by now."""
    disk = FaultyDisk()
    known = LeaderEpochs(disk, str(tmp_path))
    known.assign(0, 0)
    disk.break_path("fsync_dir", str(tmp_path))
    with pytest.raises(OSError, match="Input/output"):
        known.datasync()
    disk.repair()
    known.forget_from(0)
    known.assign(3, 0)
    known.datasync(told_from=0)
    assert epochs(tmp_path).entries == [(3, 0)]
