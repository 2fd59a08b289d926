"""The last leader epoch that a log tells survives every crash, whatever was cut, deleted or not synced.

Random histories of one log on a disk that loses what is not synced. Brokers decide by that epoch whether
an older log is put aside, and whether the store has gone back.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.broker.partition.opening.partition_opener import PartitionOpener, _rolled
from forebay.broker.partition.producer_replay import load_producers
from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import DiskHandle
from forebay.storage.datadir import DataDir
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from forebay.wire.batch import build_batch, read_header
from forebay.wire.records import Record

KEY = ("t", 0)
TOPIC_ID = bytes(range(16))
SEEDS_PER_TEST = 200
OPERATIONS = (
    *["append"] * 6,
    *["sync"] * 3,
    *["write checkpoints"] * 2,
    *["advance start"] * 2,
    "roll",
    "delete front",
    "truncate",
    "begin anew",
    "new epoch",
    "reap",
    "kill",
    "lose power",
    "stop",
)


class History:
    """What happens to a log, as its partition does it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(Random(seed))
        sizes = self.random.choice([400, 100_000, 1 << 20])
        self.config = LogConfig(segment_bytes=sizes, file_delete_delay_ms=0)
        self.epoch = 0
        self.told = UNDEFINED_EPOCH
        """The last epoch of which there are synced batches, or were."""
        self.met: set[int] = set()
        """All epochs since the log was begun anew."""
        self.open()

    def open(self) -> None:
        self.disk.locks.clear()
        self.handle = DiskHandle(self.disk, Random(self.random.random()))
        self.data = DataDir.open(self.handle, "/data")
        self.data.claim("cluster", 1)
        self.log = self.data.open_log(*KEY, self.config, topic_id=TOPIC_ID)
        if self.data.power_lost:
            self.data.accept_power_loss()
        is_new = self.log.report.in_new_directory
        self.epochs = LeaderEpochs(self.handle, self.log.directory, is_new=is_new)
        producers = load_producers(self.log, self.epochs)
        partition: Any = SimpleNamespace(log=self.log, epochs=self.epochs, producers=producers, remote=None)
        opener: Any = SimpleNamespace(_sync_soon=lambda files: None)
        self.log.files.before_sync = self.epochs.datasync
        self.log.on_start = self.epochs.forget_below
        self.log.on_roll = lambda _: _rolled(partition)
        self.log.keeps_batches = lambda begin: PartitionOpener._keeps_batches(opener, partition, begin)
        self.epochs.forget_below(self.log.start_offset)

    @property
    def last_epoch(self) -> int:
        return self.epochs.last_between(self.log.start_offset, self.log.end_offset)

    def checkpoint(self) -> None:
        self.data.checkpoints.write({KEY: self.log}, {KEY: self.log.end_offset})

    def append(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            offset = self.log.end_offset
            value = bytes(self.random.choice([50, 50, 30_000]))
            data = build_batch(
                [Record(offset, 1000 + offset, b"k", value)],
                base_offset=offset,
                partition_leader_epoch=self.epoch,
            )
            self.assign_epoch(offset)
            self.log.append(memoryview(bytes(data)), read_header(data))
        self.log.write_pending()

    def assign_epoch(self, offset: int) -> None:
        self.met.add(self.epoch)
        self.epochs.assign(self.epoch, offset)

    def sync(self) -> None:
        self.log.files.datasync()
        if self.log.end_offset > self.log.begin_offset:
            self.told = max(self.told, self.epochs.epoch_at(self.log.end_offset - 1))

    def happen(self, operation: str) -> None:
        log, draw = self.log, self.random.randint
        match operation:
            case "append":
                self.append()
            case "sync":
                self.sync()
            case "write checkpoints":
                self.checkpoint()
            case "advance start":
                log.advance_start(
                    self.random.choice([draw(log.start_offset, log.end_offset), log.end_offset])
                )
            case "roll":
                log.roll()
            case "delete front":
                log.delete_front(draw(0, 3))
            case "truncate":
                end = log.files.end_below(draw(log.start_offset, log.end_offset))
                with self.data.checkpoints.lowered(*KEY, end):
                    log.files.truncate_to(end)
                self.epochs.forget_from(log.end_offset)
                self.told = UNDEFINED_EPOCH
            case "begin anew":
                start = log.end_offset + draw(0, 5)
                self.epochs.forget_all()
                with self.data.checkpoints.lowered(*KEY, 0):
                    log.files.truncate_fully_and_start_at(start)
                self.data.checkpoints.note_start(*KEY, start)
                self.told = UNDEFINED_EPOCH
                self.met.clear()
            case "new epoch":
                self.epoch += 1
                self.assign_epoch(log.end_offset)
            case "reap":
                self.checkpoint()
                for path in log.reap():
                    self.handle.remove(path)
            case _:
                self.restart(operation)

    def restart(self, how: str) -> None:
        known = self.told
        synced = self.log.recovery_point
        if how == "stop":
            end = self.log.end_offset
            if end > self.log.begin_offset:
                known = max(known, self.epochs.epoch_at(end - 1))
            self.log.files.close()
            self.checkpoint()
            self.data.close(clean=True)
            synced = end
        elif how == "lose power":
            self.disk.lose_power()
        self.open()
        assert not self.log.offline_for_good, self.log.offline
        assert self.log.end_offset >= synced
        assert self.last_epoch >= known
        assert {epoch for epoch, _ in self.epochs.entries} <= self.met, "of the log before this one"
        self.told = known


@pytest.mark.parametrize("first", range(0, 800, SEEDS_PER_TEST))
def test_no_crash_makes_a_log_forget_its_last_epoch(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        history, told = History(seed), list[str]()
        for _ in range(history.random.randint(5, 40)):
            told.append(history.random.choice(OPERATIONS))
            try:
                history.happen(told[-1])
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {', '.join(told)}: {error}") from error


def test_an_empty_log_that_was_closed_is_not_lost_after_its_first_message() -> None:
    """The process that made its files wrote nothing, and synced no names."""
    for seed in range(50):
        history = History(seed)
        for operation in ("stop", "append", "sync", "lose power"):
            history.happen(operation)


def test_the_epoch_of_messages_that_were_deleted_before_they_were_synced_is_known() -> None:
    """The log begins beyond all that a loss of power has left of it."""
    for seed in range(50):
        history = History(seed)
        history.epoch = 7
        for operation in ("append", "sync", "append"):
            history.happen(operation)
        history.log.advance_start(history.log.end_offset)
        for operation in ("write checkpoints", "lose power", "kill", "stop"):
            history.happen(operation)
            assert history.last_epoch == 7
