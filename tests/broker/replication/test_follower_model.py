"""The files of a follower over random histories of appends, cuts, refusals and restarts.

The model is the list of batches that were written. After every restart the log has to hold them: all if only
the process ended; if the power was lost, a beginning with everything that was synced. What is kept beside
the log (producers, aborted transactions, leader epochs) must be what the batches say.
"""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from typing import Any

import pytest

from forebay.broker.partition.producer_replay import (
    accept_batch,
    load_producers,
    reload_producers,
    save_producers,
)
from forebay.core.partition.batch_rules import place
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.errors import StorageError
from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import DiskHandle
from forebay.storage.datadir import DataDir
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import LeaderEpochs
from forebay.wire.batch import (
    TRANSACTIONAL,
    BatchHeader,
    EndTxnMarker,
    build_batch,
    build_marker,
    read_header,
)
from forebay.wire.records import Record
from support.machines.manual_clock import ManualClock

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=200)
KEY = ("t", 0)
STEPS = 120
WAYS = {"append": 30, "sync": 12, "checkpoint": 6, "cut": 8, "roll": 4, "wait": 6}
ENDS = {"stopped": 3, "killed": 3, "unplugged": 5}

Written = list[tuple[bytes, BatchHeader]]


class Follower:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.device = SimDisk(random.Random(seed + 1))
        self.device.fault = self._refuse
        self.clock = ManualClock()
        self.refuses_in = 0
        """So many operations later the disk refuses one; 0 for never."""
        self.leader_epoch = 0
        self.written: Written = []
        self.synced: Written = []
        self.uncut: Written | None = None
        """What there was before a cut that the disk has stopped halfway, until it is synced."""
        self.start()

    def _refuse(self, operation: str, path: str) -> None:
        if self.refuses_in and operation != "read":
            self.refuses_in -= 1
            if not self.refuses_in:
                raise OSError(errno.EIO, f"refused to {operation}", path)

    # -- what happens ------------------------------------------------------------------------------------

    def step(self) -> None:
        if self.chance.random() < 0.12:
            self.refuses_in = self.chance.randint(1, 6)
        choices = WAYS | ENDS
        (way,) = self.chance.choices(list(choices), list(choices.values()))
        if way in ENDS:
            self.restart(way)
        else:
            getattr(self, way)()

    def start(self) -> None:
        self.refuses_in = 0
        self.disk = DiskHandle(self.device, random.Random(self.chance.random()))
        self.data = DataDir.open(self.disk, "data", self.chance.randbytes)
        self.log = self.data.open_log(*KEY, CONFIG, clock=self.clock)
        self.epochs = LeaderEpochs(self.disk, self.log.directory)
        self.producers = load_producers(self.log, self.epochs)
        self.log.files.before_sync = self.epochs.datasync
        self.log.on_roll = lambda _: save_producers(self.log, self.producers)
        self.data.claim("cluster", 1)
        self.data.accept_power_loss()

    def append(self) -> None:
        if self.log.refuses:
            return
        added: Written = []
        try:
            for _ in range(self.chance.randint(1, 6)):
                added.append(self._append_one())
            self.log.write_pending()
            self.producers.written()
        except StorageError:
            with suppress(StorageError):
                self.log.write_pending()
            added = [each for each in added if each[1].base_offset < self.log.end_offset]
            self._read_again()
        self.written += added

    def _append_one(self) -> tuple[bytes, BatchHeader]:
        made, header = self._made()
        self.epochs.assign(self.leader_epoch, header.base_offset)
        self.log.append(memoryview(made), header)
        aborted = accept_batch(self.producers, made, header)
        if aborted is not None:
            self.log.append_aborted(aborted)
        return bytes(made), header

    def _made(self) -> tuple[memoryview, BatchHeader]:
        producer_id = self.chance.randint(1, 4)
        if self.chance.random() < 0.25:
            marker = EndTxnMarker(producer_id, 0, self.chance.random() < 0.5, 0)
            made = memoryview(build_marker(marker, timestamp=1000))
        else:
            known = self.producers.find(producer_id)
            value = self.chance.randbytes(self.chance.randint(1, 80))
            made = memoryview(
                build_batch(
                    [Record(n, 1000, b"key", value) for n in range(self.chance.randint(1, 3))],
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=known.next_sequence if known else 0,
                    attributes=TRANSACTIONAL if self.chance.random() < 0.6 else 0,
                )
            )
        return made, place(made, read_header(made), self.log.end_offset, self.leader_epoch)

    def sync(self) -> None:
        with suppress(StorageError):
            end = self.log.files.datasync()
            self.synced = [each for each in self.written if each[1].base_offset < end]
            self.uncut = None

    def checkpoint(self) -> None:
        with suppress(OSError):
            self.data.checkpoints.write({KEY: self.log}, {})

    def roll(self) -> None:
        if self.log.offline is None:
            with suppress(StorageError):
                self.log.roll()

    def wait(self) -> None:
        self.refuses_in = 0
        self.clock.advance(1000)

    def cut(self) -> None:
        if self.log.offline_for_good:
            return
        fully, before = self.chance.random() < 0.15, self.written
        offset = self.chance.randint(0, self.log.end_offset)
        try:
            with self.data.checkpoints.lowered(*KEY, 0 if fully else self.log.files.end_below(offset)):
                if fully:
                    self.log.files.truncate_fully_and_start_at(0)
                else:
                    self.log.files.truncate_to(offset)
        except (OSError, StorageError):
            if self.log.offline_for_good:
                self.uncut = before
                self.synced = [] if fully else _below(self.synced, offset)
            return
        self.leader_epoch += 1
        self.written, self.synced = (_below(each, self.log.end_offset) for each in (before, self.synced))
        self._read_again()

    def _read_again(self) -> None:
        self.epochs.forget_from(self.log.end_offset)
        self.producers = reload_producers(self.log)

    # -- the end of a process ----------------------------------------------------------------------------

    def restart(self, way: str) -> None:
        if way == "stopped":
            self._stop()
        self.disk.die()
        if way == "unplugged":
            self.device.lose_power()
        self.start()
        self.check(way)
        self.leader_epoch += 1

    def _stop(self) -> None:
        self.refuses_in = 0
        if self.log.end_offset and not self.log.offline_for_good:
            save_producers(self.log, self.producers, sync=True)
        is_clean = True
        try:
            self.log.files.close()
            if self.log.offline_for_good:
                self.data.distrust(*KEY)
        except StorageError:
            is_clean = False
        self.data.checkpoints.write({KEY: self.log}, {})
        self.data.close(clean=is_clean)

    def check(self, way: str) -> None:
        assert self.log.offline is None
        found = [(bytes(batch), header) for batch, header in self.log.files.scan(0)]
        assert found[: len(self.synced)] == self.synced
        known = [each for each in (self.written, self.uncut) if each is not None]
        assert any(found == each[: len(found)] for each in known), "nothing is mixed"
        if way != "unplugged" and self.uncut is None:
            assert found == self.written
        self._check_beside(found)
        self.written, self.synced = found, _below(found, self.log.recovery_point)
        if way == "unplugged":
            self.uncut = None

    def _check_beside(self, found: Written) -> None:
        producers = ProducerTable()
        aborted: list[tuple[int, ...]] = []
        epochs: dict[int, int] = {}
        for batch, header in found:
            ended = accept_batch(producers, memoryview(batch), header)
            aborted += [] if ended is None else [ended[:3]]
            epochs.setdefault(header.partition_leader_epoch, header.base_offset)
        end = self.log.end_offset
        assert _decisive(self.producers) == _decisive(producers)
        assert [entry[:3] for entry in self.log.aborted_transactions(0, end)] == aborted
        assert self.epochs.entries == list(epochs.items())


def _below(batches: Written, offset: int) -> Written:
    return [each for each in batches if each[1].next_offset <= offset]


def _decisive(table: ProducerTable) -> dict[int, tuple[Any, ...]]:
    return {
        state.producer_id: (state.next_sequence, state.txn_first_offset, state.batches) for state in table
    }


@pytest.mark.parametrize("seed", range(40))
def test_what_is_kept_beside_a_log_agrees_with_it_over_any_history(seed: int) -> None:
    follower = Follower(seed)
    for _ in range(STEPS):
        follower.step()
    follower.restart("killed")
