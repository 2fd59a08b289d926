from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from threading import Event, Thread, Timer

import pytest

from forebay.errors import ConfigError, StorageError
from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import DiskHandle
from forebay.storage.datadir import DataDir, DataDirLocked
from forebay.storage.log.config import LogConfig
from forebay.storage.real_disk import RealDisk
from support.machines.storing import fill, read_all

TOPIC_ID = bytes(range(16))


def open_dir(path: Path) -> DataDir:
    return DataDir.open(RealDisk(), str(path))


def test_a_second_process_is_told_who_holds_it(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    with pytest.raises(DataDirLocked, match=f"pid {os.getpid()}"):
        open_dir(tmp_path)
    data.close()
    open_dir(tmp_path).close()


def test_it_belongs_to_one_node_of_one_cluster(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    assert data.cluster_id is None
    data.claim("abc", 1)
    assert data.cluster_id == "abc"
    mine = f"version=1\ncluster.id=abc\nnode.id=1\ndirectory.id={data.directory_id}\n"
    assert (tmp_path / "meta.properties").read_text() == mine
    data.close()
    data = open_dir(tmp_path)
    assert data.cluster_id == "abc"
    data.claim("abc", 1)
    with pytest.raises(ConfigError, match=r"cluster\.id=abc, not xyz"):
        data.claim("xyz", 1)
    with pytest.raises(ConfigError, match=r"node\.id=1, not 2"):
        data.claim("abc", 2)
    data.close()


def test_meta_properties_written_by_kafka_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Jan 01\ncluster.id=q1\nversion=1\nnode.id=3\ndirectory.id=x\n"
    )
    data = open_dir(tmp_path)
    assert data.cluster_id == "q1"
    data.claim("q1", 3)
    data.close()


def test_checkpoints_and_the_clean_marker(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    assert not data.clean
    logs = {("my-topic", n): data.open_log("my-topic", n, LogConfig(), topic_id=TOPIC_ID) for n in range(2)}
    made = fill(logs["my-topic", 1], 10)
    logs["my-topic", 1].advance_start(3)
    for log in logs.values():
        log.files.close()
    data.checkpoints.write(logs, {("my-topic", 1): 10})
    data.close(clean=True)

    assert (
        tmp_path / "recovery-point-offset-checkpoint"
    ).read_text() == "0\n2\nmy-topic 0 0\nmy-topic 1 10\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n2\nmy-topic 0 0\nmy-topic 1 3\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\nmy-topic 1 10\n"
    assert (tmp_path / ".kafka_cleanshutdown").exists()

    data = open_dir(tmp_path)
    assert data.clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert sorted(data.partitions()) == [("my-topic", 0), ("my-topic", 1)]
    assert data.topic_id("my-topic", 1) == TOPIC_ID
    assert data.high_watermark("my-topic", 1) == 10
    log = data.open_log("my-topic", 1, LogConfig())
    assert (log.start_offset, log.end_offset, log.recovery_point) == (3, 10, 10)
    assert log.report.scanned_bytes == 0
    assert read_all(log) == b"".join(made[3:])
    data.close()
    assert not open_dir(tmp_path).clean


def test_partition_metadata_is_kafkas(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    data.open_log("t", 0, LogConfig(), topic_id=TOPIC_ID)
    lines = (tmp_path / "t-0" / "partition.metadata").read_text().splitlines()
    assert lines[:2] == ["version: 0", "topic_id: AAECAwQFBgcICQoLDA0ODw"], "Kafka reads no more"
    data.close()


def test_a_lost_index_of_aborted_transactions_is_noticed(tmp_path: Path) -> None:
    """Every segment has one, as the directory's metadata says."""
    data = open_dir(tmp_path)
    log = data.open_log("t", 0, LogConfig(), topic_id=TOPIC_ID)
    assert log.directory == str(tmp_path / "t-0")
    fill(log, 2)
    log.files.close()
    data.close(clean=True)
    names = sorted(path.name for path in (tmp_path / "t-0").iterdir())
    (index,) = (tmp_path / "t-0").glob("*.txnindex")
    index.unlink()
    data = open_dir(tmp_path)
    log = data.open_log("t", 0, LogConfig(), topic_id=TOPIC_ID)
    assert [segment.file.path for segment in log.lost_txn_indexes] == [str(index.with_suffix(".log"))]
    log.files.replace_lost_aborted([])
    assert sorted(path.name for path in (tmp_path / "t-0").iterdir()) == names
    log.files.close()
    data.close()


def test_a_deleted_log_leaves_nothing_for_its_successor(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    log = data.open_log("t", 0, LogConfig())
    fill(log, 10)
    log.files.datasync()
    data.checkpoints.write({("t", 0): log}, {("t", 0): 10})
    path = data.delete_log("t", 0, log)
    assert data.partitions() == []
    assert Path(path).exists()
    log = data.open_log("t", 0, LogConfig())
    fill(log, 2)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
    data.close()  # a crash: nothing was checkpointed since

    data = open_dir(tmp_path)
    assert not Path(path).exists()
    again = data.open_log("t", 0, LogConfig())
    assert (again.end_offset, again.offline) == (2, None)
    data.close()


def test_a_loss_of_power_brings_nothing_back_of_a_deleted_log_whose_files_were_being_removed() -> None:
    """Its new name is on the disk before the first of its files goes."""
    for seed in range(50):
        disk = SimDisk(random.Random(seed))
        data = DataDir.open(DiskHandle(disk, random.Random(seed)), "/data")
        log = data.open_log("t", 0, LogConfig())
        fill(log, 10)
        log.files.datasync()
        data.checkpoints.write({("t", 0): log}, {("t", 0): 10})
        data.aside.remove(data.delete_log("t", 0, log))
        disk.lose_power()
        data = DataDir.open(DiskHandle(disk, random.Random(seed)), "/data")
        assert data.partitions() == []


def test_checkpoints_are_lowered_before_a_truncation(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    log = data.open_log("t", 0, LogConfig())
    fill(log, 10)
    log.files.datasync()
    data.checkpoints.write({("t", 0): log}, {("t", 0): 10})
    writing = Thread(target=data.checkpoints.write, args=({("t", 0): log}, {("t", 0): 10}))
    with data.checkpoints.lowered("t", 0, 4):
        writing.start()  # it must not write down what the log still claims
        writing.join(0.05)
        log.files.truncate_to(4)
    writing.join()
    data.close()
    data = open_dir(tmp_path)
    assert data.high_watermark("t", 0) == 4
    assert data.open_log("t", 0, LogConfig()).offline is None
    data.close()


@pytest.mark.parametrize("text", ["x", "0\n", "1\n0\n", "0\n5\nt 0 1\n", "0\n1\nt x 1\n", "0\n1\nt 0\n"])
def test_a_broken_checkpoint_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text(text)
    with pytest.raises(StorageError, match="recovery-point-offset-checkpoint"):
        open_dir(tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    open_dir(tmp_path).close()  # the lock was given back


def test_a_broken_topic_id_is_named(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    for text in ("topic_id", "version: 0\ntopic_id: abc", "version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw"):
        (tmp_path / "t-0" / "partition.metadata").write_text(text)
        data = open_dir(tmp_path)
        with pytest.raises(StorageError, match=r"partition\.metadata"):
            data.topic_id("t", 0)
        data.close()


def test_how_far_compaction_has_come(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    logs = {("t", n): data.open_log("t", n, LogConfig()) for n in range(2)}
    for (topic, partition), log in logs.items():
        fill(log, 10)
        data.checkpoints.write_first_dirty(topic, partition, log, 5 + partition, generation=log.generation)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n2\nt 0 5\nt 1 6\n"
    cut = logs["t", 1]
    generation = cut.generation
    with data.checkpoints.lowered("t", 1, 3):
        cut.files.truncate_to(3)
    # A cleaning that began before, and ends when the log has grown again.
    fill(cut, 10)
    data.checkpoints.write_first_dirty("t", 1, cut, 6, generation=generation)
    assert (data.first_dirty_offset("t", 0), data.first_dirty_offset("t", 1)) == (5, 3)
    data.close()

    data = open_dir(tmp_path)
    assert (data.first_dirty_offset("t", 0), data.first_dirty_offset("t", 1)) == (5, 3)
    log = data.open_log("t", 0, LogConfig())
    data.delete_log("t", 0, log)
    # A cleaning that was slow to notice.
    data.checkpoints.write_first_dirty("t", 0, log, 9, generation=log.generation)
    data.checkpoints.write({("t", 0): log, ("t", 1): data.open_log("t", 1, LogConfig())}, {})
    assert (data.first_dirty_offset("t", 0), data.first_dirty_offset("t", 1)) == (0, 3)
    data.close()


def test_a_stop_before_a_loss_of_power_was_seen_to_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "data")
    first = DataDir.open(RealDisk(), path)
    first.claim("cluster", 1)
    first.accept_power_loss()
    first.close()

    monkeypatch.setattr(RealDisk, "boot_id", lambda _self: "the next boot")
    second = DataDir.open(RealDisk(), path)
    assert second.power_lost
    second.close(clean=True)  # it could not reach its cluster, and was stopped in good order

    third = DataDir.open(RealDisk(), path)
    assert third.power_lost
    third.accept_power_loss()
    third.close(clean=True)
    fourth = DataDir.open(RealDisk(), path)
    assert not fourth.power_lost
    fourth.close()


def test_a_directory_of_another_topic_is_put_aside(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    old = data.open_log("t", 0, LogConfig(), topic_id=TOPIC_ID)
    fill(old, 10)
    old.files.close()
    data.checkpoints.write({("t", 0): old}, {("t", 0): 10})
    data.close(clean=True)
    data = open_dir(tmp_path)
    new = data.open_log("t", 0, LogConfig(), topic_id=bytes(16))
    assert (new.end_offset, data.high_watermark("t", 0)) == (0, 0)
    (stray,) = tmp_path.glob("t-0.*-stray")
    assert (stray / "00000000000000000000.log").stat().st_size > 0
    assert data.partitions() == [("t", 0)]
    new.files.close()
    data.close()


def test_what_is_known_of_logs_that_are_not_open_stays(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    logs = {("t", n): data.open_log("t", n, LogConfig()) for n in range(3)}
    for key, log in logs.items():
        fill(log, 10)
        log.advance_start(3)
        log.files.close()
        data.checkpoints.write_first_dirty(*key, log, 5, generation=log.generation)
    data.checkpoints.write(logs, dict.fromkeys(logs, 8))
    data.close(clean=True)

    data = open_dir(tmp_path)
    opened = {("t", 0): data.open_log("t", 0, LogConfig())}
    shutil.rmtree(tmp_path / "t-2")
    data.checkpoints.write(opened, {("t", 0): 9})
    for name, offsets in {
        "recovery-point-offset-checkpoint": "t 0 10\nt 1 10\n",
        "log-start-offset-checkpoint": "t 0 3\nt 1 3\n",
        "replication-offset-checkpoint": "t 0 9\nt 1 8\n",
        "cleaner-offset-checkpoint": "t 0 5\nt 1 5\n",
    }.items():
        assert (tmp_path / name).read_text() == f"0\n2\n{offsets}", name
    data.close()


class WaitingDisk(RealDisk):
    """While `waits` is set, a write of a checkpoint waits for `may_go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = False
        self.writes, self.may_go_on = Event(), Event()

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, sync_name: bool = True) -> None:
        if self.waits and path.endswith("-checkpoint"):
            self.writes.set()
            assert self.may_go_on.wait(60)
        super().write_atomic(path, data, sync=sync, sync_name=sync_name)


def test_a_new_log_begins_without_the_checkpoints_of_one_that_was_just_deleted(tmp_path: Path) -> None:
    """They may be written while it is deleted."""
    disk = WaitingDisk()
    data = DataDir.open(disk, str(tmp_path))
    old = data.open_log("t", 0, LogConfig())
    fill(old, 10)
    old.files.datasync()
    disk.waits = True
    writing = Thread(target=data.checkpoints.write, args=({("t", 0): old}, {("t", 0): 10}))
    writing.start()
    assert disk.writes.wait(60)
    old.discard()
    shutil.rmtree(tmp_path / "t-0")
    Timer(0.2, disk.may_go_on.set).start()
    new = data.open_log("t", 0, LogConfig())
    writing.join()
    assert (new.end_offset, data.high_watermark("t", 0)) == (0, 0)
    new.files.close()
    data.checkpoints.write({}, {})
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
    data.close()


class TestUnchecked:
    """Logs that this process could not open, or was not asked to: its clean stop says nothing of them."""

    def crashed(self, path: Path) -> list[bytes]:
        """A log of ten batches, the last of them torn in its middle."""
        data = open_dir(path)
        data.claim("cluster", 1)
        data.accept_power_loss()
        log = data.open_log("t", 0, LogConfig())
        made = fill(log, 10)
        file = path / "t-0" / "00000000000000000000.log"
        torn = bytearray(file.read_bytes())
        torn[-30:] = bytes(30)
        file.write_bytes(torn)
        data.close()
        return made

    def gap(self, path: Path) -> None:
        """Take a whole segment out of the log of three."""
        data = open_dir(path)
        data.claim("cluster", 1)
        data.accept_power_loss()
        log = data.open_log("t", 0, LogConfig(segment_bytes=300))
        fill(log, 6)
        assert [info.base_offset for info in log.segments()] == [0, 2, 4]
        (path / "t-0" / "00000000000000000002.log").unlink()
        data.close()

    def pass_by(self, path: Path) -> None:
        """A process that opens another log only, and stops in good order."""
        data = open_dir(path)
        data.distrust("t", 0)
        data.accept_power_loss()
        other = data.open_log("other", 0, LogConfig())
        other.files.close()
        data.checkpoints.write({("other", 0): other}, {})
        data.close(clean=True)
        assert (path / ".kafka_cleanshutdown").exists()

    def test_is_checked_after_the_clean_stop_of_others(self, tmp_path: Path) -> None:
        made = self.crashed(tmp_path)
        for _ in range(2):
            self.pass_by(tmp_path)
        data = open_dir(tmp_path)
        log = data.open_log("t", 0, LogConfig())
        assert log.end_offset == 9
        assert read_all(log) == b"".join(made[:9])
        assert not (tmp_path / "t-0" / ".unchecked").exists()
        assert data.open_log("other", 0, LogConfig()).report.scanned_bytes == 0
        data.close()

    def test_remembers_that_power_was_lost(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gap(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(RealDisk, "boot_id", lambda _self: "the next boot")
            self.pass_by(tmp_path)
            open_dir(tmp_path).close()  # and another process is killed
            self.pass_by(tmp_path)
            data = open_dir(tmp_path)
            assert not data.power_lost
            log = data.open_log("t", 0, LogConfig())
            assert (log.end_offset, log.report.removed_segments) == (2, 1)
            data.close()

    def test_a_loss_of_power_that_was_told_still_counts_for_what_is_opened_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.gap(tmp_path)
        monkeypatch.setattr(RealDisk, "boot_id", lambda _self: "the next boot")
        data = open_dir(tmp_path)
        data.accept_power_loss()
        assert data.open_log("t", 0, LogConfig()).end_offset == 2
        data.close()

    def test_where_it_cannot_be_noted_no_stop_is_clean(self, tmp_path: Path) -> None:
        made = self.crashed(tmp_path)
        (tmp_path / "t-0" / ".unchecked.tmp").mkdir()  # the note cannot be written
        data = open_dir(tmp_path)
        data.distrust("t", 0)
        data.close(clean=True)
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        (tmp_path / "t-0" / ".unchecked.tmp").rmdir()
        data = open_dir(tmp_path)
        assert read_all(data.open_log("t", 0, LogConfig())) == b"".join(made[:9])
        data.close()
