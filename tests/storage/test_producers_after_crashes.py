"""Producers whose batches were deleted are known after a crash: a snapshot was synced with the log."""

from __future__ import annotations

from random import Random

import pytest

from forebay.broker.partition.producer_replay import accept_batch, load_producers, save_producers
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import DiskHandle
from forebay.storage.datadir import DataDir
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import LeaderEpochs
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
        handle = DiskHandle(self.disk, Random(self.chance.random()))
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

    @property
    def last_sequences(self) -> dict[int, int]:
        return {each.producer_id: each.last_sequence for each in self.producers}


@pytest.mark.parametrize("loses_power", [True, False])
@pytest.mark.parametrize("writes_checkpoints", [True, False])
def test_producers_of_deleted_batches_are_known(loses_power: bool, writes_checkpoints: bool) -> None:
    for seed in range(40):
        log = ProducedLog(seed)
        log.send(DELETED, 0)
        log.log.files.datasync()
        log.data.checkpoints.write({KEY: log.log}, {KEY: log.log.end_offset})
        for sequence in range(3):
            log.log.roll()
            log.send(LASTING, sequence)
            log.log.files.datasync()
            log.log.delete_front(1)
        if writes_checkpoints:
            log.data.checkpoints.write({KEY: log.log}, {KEY: log.log.end_offset})
        log.data.checkpoints.note_start(*KEY, log.log.start_offset)
        assert log.log.begin_offset > 0
        if loses_power:
            log.disk.lose_power()
        log.open()
        assert log.last_sequences == {DELETED: 0, LASTING: 2}, seed
