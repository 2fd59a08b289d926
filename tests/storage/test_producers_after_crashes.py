"""Producers whose batches were deleted are known after a crash: a snapshot was synced with the log."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.broker.partition.opening.partition_opener import PartitionOpener
from forebay.broker.partition.producer_replay import (
    accept_batch,
    load_producers,
    reload_producers,
    save_producers,
)
from forebay.broker.replication.truncation import _start_anew, _truncate
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.errors import StorageError
from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import Died, DiskHandle
from forebay.storage.datadir import DataDir
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import LeaderEpochs
from forebay.storage.log.producer_snapshots import Snapshots
from forebay.storage.log.truncation import LogTruncation
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import build_batch, read_header
from forebay.wire.records import Record

KEY = ("t", 0)
DELETED, LASTING = 9, 7


class ProducedLog:
    """A log and the table of its producers."""

    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(Random(seed))
        self.chance = Random(seed)
        self.open()

    def open(self) -> None:
        self.disk.locks.clear()
        self.handle = handle = DiskHandle(self.disk, Random(self.chance.random()))
        self.data = DataDir.open(handle, "/data")
        self.data.claim("cluster", 1)
        self.log = self.data.open_log(*KEY, LogConfig(file_delete_delay_ms=0), topic_id=bytes(range(16)))
        if self.data.power_lost:
            self.data.accept_power_loss()
        self.producers: ProducerTable = load_producers(self.log, LeaderEpochs(handle, self.log.directory))
        self.log.on_roll = lambda _: save_producers(self.log, self.producers)

    def send(self, producer: int, sequence: int) -> None:
        offset = self.log.end_offset
        data = build_batch(
            [Record(offset, 1000, b"k", b"v" * 100)],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        header = read_header(data)
        self.log.append(memoryview(bytes(data)), header)
        accept_batch(self.producers, memoryview(bytes(data)), header)
        self.producers.written()
        self.log.write_pending()

    def disk_names(self) -> list[tuple[str, int]]:
        """The snapshots, and which file each of them is."""
        names = self.disk.names
        return [(name, id(names[name])) for name in names if name.endswith(".snapshot")]

    def keep_what_is_not_told(self) -> None:
        """As a broker does."""

        def keeps(begin: int) -> bool:
            if self.log.tells_producers_before(begin):
                return False
            return self.log.has_unsynced_snapshot or save_producers(self.log, self.producers)

        self.log.keeps_batches = keeps

    @property
    def last_sequences(self) -> dict[int, int]:
        return {each.producer_id: each.last_sequence for each in self.producers}

    def checkpoint(self) -> None:
        self.data.checkpoints.write({KEY: self.log}, {KEY: self.log.end_offset})

    def sync(self) -> None:
        self.log.files.datasync()

    def lose(self, *, power: bool) -> None:
        if power:
            self.disk.lose_power()
        self.open()


@pytest.mark.parametrize("loses_power", [True, False])
@pytest.mark.parametrize("writes_checkpoints", [True, False])
def test_producers_of_deleted_batches_are_known(loses_power: bool, writes_checkpoints: bool) -> None:
    for seed in range(40):
        log = ProducedLog(seed)
        log.send(DELETED, 0)
        log.sync()
        log.checkpoint()
        for sequence in range(3):
            log.log.roll()
            log.send(LASTING, sequence)
            log.sync()
            log.log.delete_front(1)
        if writes_checkpoints:
            log.checkpoint()
        log.data.checkpoints.note_start(*KEY, log.log.start_offset)
        assert log.log.begin_offset > 0
        log.lose(power=loses_power)
        assert log.last_sequences == {DELETED: 0, LASTING: 2}, seed


def test_a_snapshot_that_a_killed_process_had_not_synced_is_synced_by_the_next_one() -> None:
    for seed in range(60):
        log = ProducedLog(seed)
        log.send(DELETED, 0)
        log.log.roll()
        log.lose(power=False)
        log.send(LASTING, 0)
        log.sync()
        assert log.log.delete_front(1) == 1
        log.checkpoint()
        log.lose(power=True)
        assert log.last_sequences == {DELETED: 0, LASTING: 0}, seed


def test_an_idle_log_keeps_its_batches_until_the_snapshot_is_synced() -> None:
    """Retention closes the last segment and deletes it, though nobody writes."""
    for seed in range(60):
        log = ProducedLog(seed)
        log.keep_what_is_not_told()
        log.send(DELETED, 0)
        log.sync()
        log.log.roll()
        assert log.log.delete_front(1) == 0
        log.sync()
        assert log.log.delete_front(1) == 1
        log.checkpoint()
        log.lose(power=True)
        assert log.last_sequences == {DELETED: 0}, seed


def test_what_a_busy_log_has_synced_is_deleted() -> None:
    """Whenever retention looks, another segment has been closed since the last sync."""
    for seed in range(60):
        log = ProducedLog(seed)
        log.keep_what_is_not_told()
        log.send(DELETED, 0)
        for sequence in range(6):
            log.log.roll()
            log.send(LASTING, sequence)
            if sequence == 2:
                log.sync()
        assert log.log.delete_front(6) == 3, "the first three are below what was synced"
        assert log.log.delete_front(3) == 0
        log.checkpoint()
        log.data.checkpoints.note_start(*KEY, log.log.start_offset)
        log.lose(power=True)
        assert log.last_sequences.keys() == {DELETED, LASTING}, seed
        assert log.last_sequences[LASTING] >= 2, seed


def test_a_sync_while_a_segment_is_closed_leaves_the_snapshot_to_the_next_one() -> None:
    for seed in range(60):
        log = ProducedLog(seed)
        log.send(DELETED, 0)

        def rolled(_base: int, log: ProducedLog = log) -> None:
            log.sync()
            save_producers(log.log, log.producers)

        log.log.on_roll = rolled
        log.log.roll()
        assert log.log.has_unsynced_snapshot
        log.sync()
        log.log.delete_front(1)
        log.checkpoint()
        log.lose(power=True)
        assert log.last_sequences == {DELETED: 0}, seed


def test_a_snapshot_of_what_was_cut_off_is_not_made_again_empty() -> None:
    log = ProducedLog(0)
    for sequence in range(7):
        log.send(LASTING, sequence)
    log.log.roll()
    log.log.files.truncate_to(5)
    assert not log.log.has_unsynced_snapshot
    for sequence in range(5, 9):
        log.send(LASTING, sequence)
    log.sync()
    assert [taken_at for taken_at, _ in log.log.files.snapshots()] == []


def test_syncing_a_snapshot_that_was_removed_makes_no_file(tmp_path: Path) -> None:
    disk = RealDisk()
    snapshots = Snapshots(disk, str(tmp_path))
    snapshots.sync(7)
    assert disk.list(str(tmp_path)) == []


@pytest.mark.parametrize("what", ["power", "removed", "full disk", "error"])
@pytest.mark.parametrize("again", ["power", "kill"])
def test_a_snapshot_that_is_missing_is_made_again_before_batches_go(what: str, again: str) -> None:
    for seed in range(60):
        log = ProducedLog(seed)
        log.send(DELETED, 0)
        log.sync()
        if what == "full disk":
            log.log.on_roll = None  # none could be written
        log.log.roll()
        if what == "error":
            log.log._snapshots.sync = lambda offset: False  # type: ignore[method-assign]
            log.sync()
            log.log._snapshots = Snapshots(log.log._disk, log.log.directory)
        elif what == "power":
            log.checkpoint()
            log.lose(power=True)
            if len(log.log.segments()) == 1:
                continue  # the new segment is lost, too
        elif what == "removed":
            log.lose(power=False)
            for offset, _ in list(log.log.files.snapshots()):
                log.log._disk.remove(f"{log.log.directory}/{offset:020}.snapshot")
            log.open()
        log.keep_what_is_not_told()
        log.send(LASTING, 0)
        log.sync()
        if not log.log.delete_front(1):
            log.sync()
            assert log.log.delete_front(1) == 1
        log.checkpoint()
        log.data.checkpoints.note_start(*KEY, log.log.start_offset)
        log.lose(power=again == "power")
        assert log.last_sequences == {DELETED: 0, LASTING: 0}, seed


def test_closing_a_segment_where_a_snapshot_is_writes_none() -> None:
    """It would be written in place of one that is synced, or wait for the disk."""
    log = ProducedLog(0)
    log.send(LASTING, 0)
    save_producers(log.log, log.producers, sync=True)
    (before,) = log.disk_names()
    log.log.roll()
    assert log.disk_names() == [before]
    assert not log.log.has_unsynced_snapshot


def test_a_log_that_begins_anew_knows_the_producers_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come from an object store, and the process is killed at once. Nobody asks for them again."""
    leader = ProducedLog(1)
    leader.send(DELETED, 0)

    class Killed(BaseException):
        pass

    for power in (False, True):
        log = ProducedLog(0)
        log.send(LASTING, 0)
        log.sync()
        log.checkpoint()
        epochs = LeaderEpochs(log.log._disk, log.log.directory)
        partition: Any = SimpleNamespace(log=log.log, epochs=epochs, topic=KEY[0], index=KEY[1])
        note_start = log.data.checkpoints.note_start

        def note_and_die(*noted: Any, note_start: Any = note_start) -> None:
            note_start(*noted)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(log.data.checkpoints, "note_start", note_and_die)
            with pytest.raises(Killed):
                _start_anew(log.data, partition, 50, leader.producers.to_bytes())
        log.lose(power=power)
        assert (log.log.begin_offset, log.log.end_offset) == (50, 50)
        assert log.last_sequences == {DELETED: 0}


def test_a_log_that_cannot_write_beside_itself_deletes_what_is_synced() -> None:
    """A full disk: there is no room for the new leader's epoch, and only deletion makes some."""
    log = ProducedLog(0)
    for sequence in range(4):
        log.send(LASTING, sequence)
        log.log.roll()
    log.sync()
    log.checkpoint()
    log.send(LASTING, 4)
    log.lose(power=False)
    log.keep_what_is_not_told()

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    log.log.files.before_sync = full
    assert log.log.delete_front(3) == 0
    with pytest.raises(StorageError):
        log.sync()
    assert log.log.delete_front(3) == 3


def test_a_snapshot_at_which_a_log_is_cut_is_not_taken_for_synced() -> None:
    log = ProducedLog(0)
    log.send(DELETED, 0)
    log.sync()
    log.log.was_closed = True
    log.log.roll()
    log.send(LASTING, 0)
    log.log.files.truncate_to(1)
    log.producers = reload_producers(log.log)
    assert not log.log.tells_producers_before(1)
    assert log.log.has_unsynced_snapshot


def test_a_log_that_does_not_begin_anew_keeps_no_snapshot_of_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on, past that offset, with other batches."""
    leader, log = ProducedLog(1), ProducedLog(0)
    leader.send(DELETED, 0)
    log.send(LASTING, 0)
    epochs = LeaderEpochs(log.log._disk, log.log.directory)

    def full() -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(epochs, "forget_all", full)
    partition: Any = SimpleNamespace(log=log.log, epochs=epochs, topic=KEY[0], index=KEY[1])
    with pytest.raises(OSError, match="no space left"):
        _start_anew(log.data, partition, 5, leader.producers.to_bytes())
    for sequence in range(1, 8):
        log.send(LASTING, sequence)
    log.producers = reload_producers(log.log)
    assert log.last_sequences == {LASTING: 7}


def test_a_log_that_lost_its_epochs_and_did_not_begin_anew_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A swap of compacted segments could not be ended. Its leader would not see where the two logs differ."""
    log = ProducedLog(2)
    log.send(LASTING, 0)
    epochs = LeaderEpochs(log.log._disk, log.log.directory)
    epochs.assign(3, 0)

    def fail(_: object) -> None:
        raise OSError(errno.EIO, "the device has failed")

    monkeypatch.setattr(LogTruncation, "_settle_swap", fail)
    partition: Any = SimpleNamespace(log=log.log, epochs=epochs, topic=KEY[0], index=KEY[1])
    with pytest.raises(OSError, match="the device has failed"):
        _start_anew(log.data, partition, 5, b"")
    assert log.log.end_offset == 1
    assert log.log.offline_for_good or epochs.latest == 3


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("synced_there", [False, True])
def test_a_log_that_is_cut_knows_producers_whose_batches_are_deleted(power: bool, synced_there: bool) -> None:
    """They went when a snapshot told of them that the cut removes."""
    for seed in range(40):
        log = ProducedLog(seed)
        log.send(DELETED, 0)
        for sequence in range(6):
            log.log.roll()
            if synced_there or sequence != 2:
                log.sync()
            log.send(LASTING, sequence)
        log.sync()
        save_producers(log.log, log.producers, sync=True)
        assert log.log.delete_front(2) == 2
        log.checkpoint()
        log.data.checkpoints.note_start(*KEY, log.log.start_offset)
        epochs = LeaderEpochs(log.log._disk, log.log.directory)
        partition: Any = SimpleNamespace(
            log=log.log, epochs=epochs, producers=log.producers, topic=KEY[0], index=KEY[1]
        )
        log.producers = _truncate(log.data, partition, 4, copied_ms=None)
        assert log.last_sequences == {DELETED: 0, LASTING: 2}
        log.lose(power=power)
        assert log.last_sequences == {DELETED: 0, LASTING: 2}, seed


@pytest.mark.parametrize("producers", [True, False])
def test_a_log_that_begins_anew_below_its_end_knows_the_producers_before(producers: bool) -> None:
    """Wherever the process dies. A snapshot of the log before tells of other ones."""
    leader = ProducedLog(1)
    leader.send(DELETED, 0)
    data = leader.producers.to_bytes() if producers else b""
    began = 0
    for lives in range(60):
        log = ProducedLog(lives)
        for sequence in range(4):
            log.send(LASTING, sequence)
            log.log.roll()
        log.sync()
        log.checkpoint()
        log.log.advance_start(3)
        log.checkpoint()
        epochs = LeaderEpochs(log.log._disk, log.log.directory)
        partition: Any = SimpleNamespace(log=log.log, epochs=epochs, topic=KEY[0], index=KEY[1])
        log.handle.lives = lives
        with suppress(Died):
            _start_anew(log.data, partition, 3, data)
        log.lose(power=bool(lives % 2))
        if (log.log.begin_offset, log.log.end_offset) == (3, 3):
            assert log.last_sequences == ({DELETED: 0} if producers else {})
            began += 1
    assert began > 1


@pytest.mark.parametrize("readable", [True, False])
def test_a_cut_that_cannot_be_prepared_leaves_no_copies(
    readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again all the time. What lies behind the cut does not matter to it."""
    log = ProducedLog(0)
    log.send(DELETED, 0)
    for sequence in range(6):
        log.log.roll()
        log.sync()
        log.send(LASTING, sequence)
    log.sync()
    save_producers(log.log, log.producers, sync=True)
    assert log.log.delete_front(2) == 2
    epochs = LeaderEpochs(log.log._disk, log.log.directory)
    partition: Any = SimpleNamespace(
        log=log.log, epochs=epochs, producers=log.producers, topic=KEY[0], index=KEY[1], high_watermark=3
    )
    read, unreadable = log.handle.read_bytes, "7.snapshot" if readable else ".snapshot"

    def fail(path: str) -> bytes:
        if path.endswith(unreadable):
            raise OSError(errno.EIO, "the device has failed", path)
        return read(path)

    monkeypatch.setattr(log.handle, "read_bytes", fail)
    if readable:
        assert {each.producer_id for each in _truncate(log.data, partition, 6, copied_ms=1)} == {
            DELETED,
            LASTING,
        }
        return
    for _ in range(2):
        with pytest.raises(OSError, match="the device has failed"):
            _truncate(log.data, partition, 6, copied_ms=1)
    assert (log.data.aside.count, log.log.end_offset) == (0, 7)


@pytest.mark.parametrize("step", ["copy", "lower"])
def test_a_full_disk_does_not_fill_with_copies_of_what_is_to_be_cut(step: str) -> None:
    log = ProducedLog(0)
    for sequence in range(4):
        log.send(LASTING, sequence)
    log.sync()
    log.checkpoint()
    epochs = LeaderEpochs(log.log._disk, log.log.directory)
    partition: Any = SimpleNamespace(
        log=log.log, epochs=epochs, producers=log.producers, topic=KEY[0], index=KEY[1], high_watermark=3
    )
    directories = set(log.handle.list("/data"))

    def full(operation: str, path: str) -> None:
        if operation in ("append", "create") and path.endswith(".log" if step == "copy" else "-checkpoint"):
            raise OSError(errno.ENOSPC, "no space left on device", path)

    log.disk.fault = full
    for _ in range(3):
        with pytest.raises(OSError, match="no space left"):
            _truncate(log.data, partition, 2, copied_ms=1)
    assert set(log.handle.list("/data")) == directories
    assert log.data.aside.count == 0
    log.disk.fault = None
    _truncate(log.data, partition, 2, copied_ms=1)
    assert (log.data.aside.count, log.log.end_offset) == (1, 2)


def test_a_log_that_begins_anew_at_zero_does_not_begin_where_it_did() -> None:
    """Its leader may have messages there when it comes back: it would lack those before."""
    for lives in range(40):
        log = ProducedLog(lives)
        log.send(LASTING, 0)
        log.send(LASTING, 1)
        log.sync()
        log.log.advance_start(2)
        log.checkpoint()
        epochs = LeaderEpochs(log.log._disk, log.log.directory)
        partition: Any = SimpleNamespace(log=log.log, epochs=epochs, topic=KEY[0], index=KEY[1])
        log.handle.lives = lives
        with suppress(Died):
            _start_anew(log.data, partition, 0, b"")
        log.lose(power=False)
        assert (log.log.begin_offset, log.log.end_offset) in ((0, 2), (0, 0))


def test_a_full_disk_and_an_epoch_that_is_not_written_keep_no_synced_batches() -> None:
    """Nor does it matter that there is no snapshot, which could not be written either."""
    log = ProducedLog(0)
    log.log.on_roll = None
    for sequence in range(3):
        log.send(LASTING, sequence)
        log.log.roll()
    log.sync()
    epochs = LeaderEpochs(log.log._disk, log.log.directory)
    epochs.assign(1, log.log.end_offset)
    partition: Any = SimpleNamespace(log=log.log, epochs=epochs, producers=log.producers)
    opener: Any = SimpleNamespace(_sync_soon=lambda files: None)
    log.log.keeps_batches = lambda begin: PartitionOpener._keeps_batches(opener, partition, begin)

    def full(operation: str, path: str) -> None:
        if operation in ("append", "create", "mkdir"):
            raise OSError(errno.ENOSPC, "no space left on device", path)

    log.disk.fault = full
    assert log.log.delete_front(3) == 2


def test_snapshots_that_cannot_be_synced_are_few_and_keep_batches_for_a_while_only() -> None:
    log = ProducedLog(0)
    epochs = LeaderEpochs(log.log._disk, log.log.directory)
    partition: Any = SimpleNamespace(log=log.log, epochs=epochs, producers=log.producers)
    opener: Any = SimpleNamespace(_sync_soon=lambda files: None)
    log.log.keeps_batches = lambda begin: PartitionOpener._keeps_batches(opener, partition, begin)

    def fail(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".snapshot"):
            raise OSError(errno.EIO, "the device has failed", path)

    log.disk.fault = fail
    for sequence in range(20):
        log.send(LASTING, sequence)
        log.log.roll()
        if sequence % 2:
            log.sync()
    assert len(log.disk_names()) <= 4
    assert log.log.delete_front(10) == 10
    log.disk.fault = None
    log.send(LASTING, 20)
    log.log.roll()
    log.sync()
    assert log.log.tells_producers_before(21)
    log.lose(power=True)
    assert log.last_sequences == {LASTING: 20}


def test_a_busy_log_whose_snapshots_cannot_be_synced_deletes_its_batches() -> None:
    """Whenever retention looks, another snapshot waits for the next sync."""
    log = ProducedLog(0)
    epochs = LeaderEpochs(log.log._disk, log.log.directory)
    partition: Any = SimpleNamespace(log=log.log, epochs=epochs, producers=log.producers)
    opener: Any = SimpleNamespace(_sync_soon=lambda files: None)
    log.log.keeps_batches = lambda begin: PartitionOpener._keeps_batches(opener, partition, begin)

    def fail(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".snapshot"):
            raise OSError(errno.EIO, "the device has failed", path)

    log.disk.fault = fail
    deleted = 0
    for sequence in range(10):
        log.send(LASTING, sequence)
        log.sync()
        log.log.roll()
        deleted += log.log.delete_front(10)
    assert deleted >= 5


@pytest.mark.parametrize("power", [False, True])
def test_a_log_that_began_anew_and_cannot_say_where_is_offline(power: bool) -> None:
    """What is in memory tells of the producers, and the open transactions, of the log before."""
    log = ProducedLog(0)
    log.send(LASTING, 0)
    log.sync()
    log.checkpoint()
    epochs = LeaderEpochs(log.log._disk, log.log.directory)
    partition: Any = SimpleNamespace(log=log.log, epochs=epochs, topic=KEY[0], index=KEY[1])

    def full(operation: str, path: str) -> None:
        if operation == "append" and path.endswith("log-start-offset-checkpoint"):
            raise OSError(errno.ENOSPC, "no space left on device", path)

    log.disk.fault = full
    with pytest.raises(OSError, match="no space left"):
        _start_anew(log.data, partition, 9, b"")
    assert log.log.offline_for_good
    log.disk.fault = None
    log.lose(power=power)
    assert log.log.begin_offset == log.log.end_offset
    assert log.last_sequences == {}


def test_a_log_that_could_not_begin_anew_says_so() -> None:
    log = ProducedLog(0)
    log.send(LASTING, 0)

    def full(operation: str, path: str) -> None:
        if operation == "create":
            raise OSError(errno.ENOSPC, "no space left on device", path)

    log.disk.fault = full
    with pytest.raises(StorageError, match="no space left"):
        log.log.files.truncate_fully_and_start_at(9)
    assert (log.log.offline_for_good, log.log.begin_offset) == (True, 1)
