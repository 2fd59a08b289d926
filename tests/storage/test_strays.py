"""Logs that were put aside are kept whole, listed, taken back and removed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from forebay.errors import StorageError
from forebay.storage.checkpoint import LOG_START_OFFSETS, read_offsets
from forebay.storage.datadir import DataDir
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import LeaderEpochs
from forebay.storage.log.log import Log
from forebay.storage.put_aside import stray_names
from forebay.storage.real_disk import RealDisk
from forebay.storage.strays import UNKNOWN_EPOCH, last_epoch, remove, restore, strays
from forebay.wire.batch import build_batch, read_header
from forebay.wire.records import Record
from support.machines.storing import fill, read_all

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
DISK = RealDisk()


def open_dir(path: Path) -> DataDir:
    return DataDir.open(DISK, str(path))


def filled(data: DataDir, topic: str = "t", count: int = 10) -> Log:
    log = data.open_log(topic, 0, LogConfig(), topic_id=TOPIC_ID)
    fill(log, count)
    return log


def put_aside(path: Path, *, topic: str = "t") -> bytes:
    """Leaves a log with ten batches that begins at offset 3; what is to be read of it."""
    data = open_dir(path)
    log = filled(data, topic)
    log.advance_start(3)
    contents = read_all(log)
    data.aside.sync(data.put_aside(topic, 0, "because", NOW_MS, log, 8))
    data.close()
    return contents


def test_a_log_that_is_put_aside_is_listed(tmp_path: Path) -> None:
    put_aside(tmp_path)
    (stray,) = strays(DISK, str(tmp_path))
    assert (stray.topic, stray.partition, stray.topic_id) == ("t", 0, TOPIC_ID)
    assert (stray.start_offset, stray.end_offset, stray.high_watermark) == (3, 10, 8)
    assert (stray.reason, stray.put_aside_ms, stray.in_place) == ("because", NOW_MS, False)
    assert stray.size_bytes > 0
    data = open_dir(tmp_path)
    assert (data.partitions(), data.aside.count) == ([], 1)
    data.close()


def test_a_name_that_is_too_long_for_a_directory_is_kept_in_the_note(tmp_path: Path) -> None:
    topic = "t" * 249
    put_aside(tmp_path, topic=topic)
    (stray,) = strays(DISK, str(tmp_path))
    assert stray.topic == topic


def test_a_log_is_taken_back_whole(tmp_path: Path) -> None:
    contents = put_aside(tmp_path)
    (stray,) = strays(DISK, str(tmp_path))
    restore(DISK, str(tmp_path), stray.name)
    assert strays(DISK, str(tmp_path)) == []
    data = open_dir(tmp_path)
    log = data.open_log("t", 0, LogConfig(), topic_id=TOPIC_ID)
    assert (log.start_offset, log.end_offset, data.high_watermark("t", 0)) == (3, 10, 8)
    assert read_all(log) == contents
    assert log.report.scanned_bytes > 0, "nobody knows what of it was synced"
    assert not log.report.lacks_messages
    log.files.close()
    data.close()


def test_it_does_not_take_the_place_of_another(tmp_path: Path) -> None:
    put_aside(tmp_path)
    data = open_dir(tmp_path)
    log = filled(data, count=2)
    data.checkpoints.write({("t", 0): log}, {("t", 0): 2})
    log.files.close()
    data.close()
    (stray,) = strays(DISK, str(tmp_path))
    with pytest.raises(StorageError, match="has a log"):
        restore(DISK, str(tmp_path), stray.name)
    assert strays(DISK, str(tmp_path)) == [stray]


def test_what_the_checkpoints_say_of_a_log_that_is_gone_does_not_count_for_it(tmp_path: Path) -> None:
    put_aside(tmp_path)
    data = open_dir(tmp_path)
    log = filled(data, count=9)
    log.advance_start(7)
    data.checkpoints.write({("t", 0): log}, {("t", 0): 9})
    log.files.close()
    data.close()
    DISK.remove_tree(str(tmp_path / "t-0"))
    (stray,) = strays(DISK, str(tmp_path))
    restore(DISK, str(tmp_path), stray.name)
    assert read_offsets(DISK, str(tmp_path / LOG_START_OFFSETS)) == {("t", 0): 3}


def test_one_that_was_put_aside_before_there_were_notes_is_taken_back(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    filled(data).files.close()
    data.close()
    name = f"t-0.{'ab' * 16}-stray"
    (tmp_path / "t-0").rename(tmp_path / name)
    (stray,) = strays(DISK, str(tmp_path))
    assert (stray.topic, stray.partition, stray.reason, stray.put_aside_ms) == ("t", 0, "", None)
    restore(DISK, str(tmp_path), name)
    data = open_dir(tmp_path)
    assert data.open_log("t", 0, LogConfig(), topic_id=TOPIC_ID).end_offset == 10
    data.close()


def test_a_log_that_is_removed_is_gone(tmp_path: Path) -> None:
    put_aside(tmp_path)
    (stray,) = strays(DISK, str(tmp_path))
    remove(DISK, str(tmp_path), stray.name)
    assert strays(DISK, str(tmp_path)) == []
    with pytest.raises(StorageError, match="no log"):
        remove(DISK, str(tmp_path), "t-0")


def test_a_log_in_its_place_is_no_stray_once_it_is_used(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    filled(data).files.close()
    data.note_unused("t", 0, "unknown", NOW_MS)
    data.close()
    (stray,) = strays(DISK, str(tmp_path))
    assert (stray.name, stray.in_place, stray.reason) == ("t-0", True, "unknown")
    with pytest.raises(StorageError, match="in its place"):
        restore(DISK, str(tmp_path), "t-0")
    data = open_dir(tmp_path)
    data.open_log("t", 0, LogConfig(), topic_id=TOPIC_ID).files.close()
    assert strays(DISK, str(tmp_path)) == []
    data.close()


def test_a_copy_of_what_is_cut_off_is_listed_and_counted(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    log = filled(data)
    data.copy_aside("t", 0, "cut off", NOW_MS, log, offset=4, high_watermark=6)
    assert data.aside.count == 1
    (found,) = strays(DISK, str(tmp_path))
    assert (found.topic, found.partition, found.end_offset) == ("t", 0, 10)
    assert (found.reason, found.put_aside_ms, found.high_watermark) == ("cut off", NOW_MS, 6)
    assert data.partitions() == [("t", 0)], "the log itself stays"
    data.aside.recount()
    assert data.aside.count == 1


def test_copies_whose_names_cannot_be_synced_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is to be cut off is copied again whenever the cut is tried again."""
    data = open_dir(tmp_path)
    log, before = filled(data), DISK.list(str(tmp_path))
    sync = DISK.fsync_dir

    def refuse(path: str) -> None:
        if path == str(tmp_path) and stray_names(DISK, path):
            raise OSError(errno.EIO, "the device has failed", path)
        sync(path)

    with monkeypatch.context() as patch:
        patch.setattr(DISK, "fsync_dir", refuse)
        for _ in range(3):
            with pytest.raises(OSError, match="the device has failed"):
                data.copy_aside("t", 0, "cut off", NOW_MS, log, offset=4, high_watermark=6)
    assert (DISK.list(str(tmp_path)), data.aside.count) == (before, 0)
    log.discard()
    data.close()


def test_the_last_epoch_is_known_if_a_process_dies_when_a_segment_has_just_begun(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    log = data.open_log("t", 0, LogConfig(segment_bytes=1_000), topic_id=TOPIC_ID)
    made = build_batch([Record(0, 1000, b"", b"v" * 900)], base_offset=0, partition_leader_epoch=5)
    log.append(memoryview(made), read_header(made))
    log.append(memoryview(made), read_header(made)._replace(base_offset=1))
    log.files.sync_names()
    assert sorted(path.stat().st_size > 0 for path in Path(log.directory).glob("*.log")) == [False, True]
    assert last_epoch(DISK, log.directory) == 5
    log.discard()
    data.close()


def test_a_log_that_does_not_tell_its_last_epoch_is_taken_for_newer_than_any(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    log = filled(data, count=1)
    log.files.close()
    assert last_epoch(DISK, log.directory) == 0
    (path,) = Path(log.directory).glob("*.log")
    path.write_bytes(bytes(path.stat().st_size))
    assert last_epoch(DISK, log.directory) == UNKNOWN_EPOCH
    data.close()


def test_the_last_epoch_is_that_of_the_batches_or_of_the_file(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    log = filled(data)
    log.files.datasync()
    batches = last_epoch(DISK, log.directory)
    epochs = LeaderEpochs(DISK, log.directory)
    epochs.assign(7, 10)
    epochs.datasync()
    assert (batches, last_epoch(DISK, log.directory)) == (0, 7)
    (Path(log.directory) / "leader-epoch-checkpoint").write_text("damaged")
    assert last_epoch(DISK, log.directory) == UNKNOWN_EPOCH
    log.files.close()
    data.close()
