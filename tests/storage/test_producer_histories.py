"""What a log tells of its producers survives every crash, whatever was deleted, cut off or not synced.

Random histories of one log, with the code that brokers run: a disk that loses what is not synced, is full or
syncs no snapshots, processes that die in the middle of a change, and other work while a thread syncs.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.broker.partition.assignment.clean_shutdown import _close
from forebay.broker.partition.opening.partition_opener import PartitionOpener, _rolled
from forebay.broker.partition.producer_replay import accept_batch, load_producers, reload_producers
from forebay.broker.replication.truncation import _start_anew, _truncate
from forebay.core.partition.producers.producer_table import BATCHES_RETAINED, ProducerTable
from forebay.errors import StorageError
from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import Died, DiskHandle
from forebay.storage.datadir import DataDir
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import LeaderEpochs
from forebay.wire.batch import build_batch, read_header
from forebay.wire.records import Record

KEY = ("t", 0)
TOPIC_ID = bytes(range(16))
SEEDS_PER_TEST = 200
PRODUCERS = 6
SNAPSHOTS_MAX = 14
CHANGES = (
    *["append"] * 7,
    *["sync"] * 4,
    *["write checkpoints"] * 2,
    *["roll"] * 3,
    *["delete front"] * 3,
    "advance start",
    "truncate",
    "begin anew",
    "reap",
    "new epoch",
)
CRASHES = ("kill", "lose power", "stop", "die", "die and lose power")
DISK = ("full disk", "no snapshot is synced", "mend")
MEANWHILE = ("append", "append", "roll", "roll", "delete front", "advance start", "truncate", "reap")


class Over(Exception):
    """What may be known from here on is not certain."""


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(Random(seed))
        self.config = LogConfig(segment_bytes=self.random.choice([700, 1 << 20]), file_delete_delay_ms=0)
        self.epoch = 0
        self.sent: dict[int, tuple[int, int]] = {}
        """Producer and sequence by offset: what is in the log, or was before it was deleted."""
        self.before: dict[int, int] = {}
        """The last sequence of each producer before the log, if that is known."""
        self.highest: dict[int, int] = {}
        self.forgotten: set[int] = set()
        """Producers whose batches were deleted though no snapshot could be written, or synced."""
        self.synced = 0
        self.told: list[str] = []
        self.open()

    def open(self) -> None:
        self.disk.locks.clear()
        self.disk.fault = None
        self.handle = DiskHandle(self.disk, Random(self.random.random()))
        self.data = DataDir.open(self.handle, "/data")
        self.data.claim("cluster", 1)
        self.log = self.data.open_log(*KEY, self.config, topic_id=TOPIC_ID)
        if self.data.power_lost:
            self.data.accept_power_loss()
        is_new = self.log.report.in_new_directory
        self.epochs = LeaderEpochs(self.handle, self.log.directory, is_new=is_new)
        self.partition: Any = SimpleNamespace(
            log=self.log,
            epochs=self.epochs,
            producers=load_producers(self.log, self.epochs),
            remote=None,
            topic=KEY[0],
            index=KEY[1],
        )
        opener: Any = SimpleNamespace(_sync_soon=lambda files: None)
        self.log.files.before_sync = self.epochs.datasync
        self.log.on_start = self.epochs.forget_below
        self.log.on_roll = lambda _: _rolled(self.partition)
        self.log.keeps_batches = lambda begin: PartitionOpener._keeps_batches(opener, self.partition, begin)
        self.epochs.forget_below(self.log.start_offset)

    # -- what must be known --------------------------------------------------------------------------------

    def expected(self) -> dict[int, int]:
        known = dict(self.before)
        for offset in sorted(self.sent):
            if offset < self.log.end_offset:
                known[self.sent[offset][0]] = self.sent[offset][1]
        return known

    def check(self) -> None:
        known = {each.producer_id: each.last_sequence for each in self.partition.producers if each.batches}
        expected = self.expected()
        for producer in self.forgotten - known.keys():
            expected.pop(producer, None)
        for producer in expected.keys() - known.keys():
            # After a cut. So many of its batches were behind it that it waits for no answer to one before.
            if self.highest[producer] - expected[producer] >= BATCHES_RETAINED:
                del expected[producer]
        assert known == expected, str(self.log.begin_offset)

    def forget_deleted(self, begin: int) -> None:
        left = {producer for offset, (producer, _) in self.sent.items() if offset >= begin}
        self.forgotten |= self.expected().keys() - left

    # -- what happens --------------------------------------------------------------------------------------

    def happen(self, operation: str) -> None:
        self.told.append(operation)
        if operation in ("kill", "lose power", "stop"):
            self.restart(operation)
        elif operation.startswith("die"):
            self.die(self.random.choice(CHANGES), power=operation.endswith("power"))
        else:
            with suppress(OSError, StorageError):
                self.changes[operation](self)
        snapshots = [name for name in self.disk.names if name.endswith(".snapshot")]
        assert len(snapshots) <= SNAPSHOTS_MAX

    def append(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            offset, producer = self.log.end_offset, min(self.random.randrange(PRODUCERS * 2), PRODUCERS)
            known = self.partition.producers.find(producer)
            sequence = 0 if known is None else known.last_sequence + 1
            data = memoryview(bytes(_batch(offset, producer, sequence, self.epoch)))
            self.sent[offset] = producer, sequence
            self.highest[producer] = max(sequence, self.highest.get(producer, 0))
            self.epochs.assign(self.epoch, offset)
            try:
                self.log.append(data, read_header(data))
                accept_batch(self.partition.producers, data, read_header(data))
                self.log.write_pending()
                self.partition.producers.written()
                self.forgotten.discard(producer)
            except StorageError:
                with suppress(StorageError):
                    self.log.write_pending()
                del self.sent[offset]
                self.partition.producers.truncate(self.log.end_offset)
                self.epochs.forget_from(self.log.end_offset)

    def sync(self) -> None:
        with self.other_work() if self.random.random() < 0.6 else nullcontext():
            self.log.files.datasync()
            self.synced = max(self.synced, self.log.recovery_point)

    @contextmanager
    def other_work(self) -> Iterator[None]:
        """The loop goes on while a thread syncs."""
        before = self.disk.fault

        def meanwhile(operation: str, path: str) -> None:
            if before is not None:
                before(operation, path)
            is_log = path.endswith((".log", ".snapshot")) or path == self.log.directory
            if operation == "sync" and is_log and self.random.random() < 0.3:
                self.disk.fault = before
                self.happen(self.random.choice(MEANWHILE))
                self.disk.fault = meanwhile

        self.disk.fault = meanwhile
        try:
            yield
        finally:
            self.disk.fault = before

    def write_checkpoints(self) -> None:
        self.data.checkpoints.write({KEY: self.log}, {KEY: self.log.end_offset})

    def delete_front(self) -> None:
        if not self.log.offline_for_good:
            self.delete(lambda: self.log.delete_front(self.random.randint(0, 3)))

    def advance_start(self) -> None:
        """To what is synced: a log that loses what is deleted begins anew behind it, and knows nobody."""
        start = self.log.start_offset
        to = self.random.randint(start, max(start, min(self.log.end_offset, self.log.recovery_point)))
        self.delete(lambda: self.log.advance_start(to))

    def delete(self, act: Callable[[], object]) -> None:
        before = self.log.begin_offset
        act()
        begin = self.log.begin_offset
        if begin > before and self.disk.fault is not None and not self.log.tells_producers_before(begin):
            self.forget_deleted(begin)

    def truncate(self) -> None:
        if self.log.offline_for_good:
            return
        end = self.log.files.end_below(self.random.randint(self.log.start_offset, self.log.end_offset))
        self.synced = min(self.synced, end)
        try:
            self.partition.producers = _truncate(self.data, self.partition, end, copied_ms=None)
        except (OSError, StorageError):
            if self.log.offline_for_good:
                raise Over from None
            return  # nothing was changed
        self.cut()

    def cut(self) -> None:
        end = self.log.end_offset
        self.sent = {offset: sent for offset, sent in self.sent.items() if offset < end}
        self.check()

    def begin_anew(self) -> None:
        if self.log.offline_for_good:
            return
        offset = max(self.log.end_offset + self.random.choice([-6, -4, -2, -1, 1, 3]), 0)
        table, known = ProducerTable(), dict[int, int]()
        for producer in range(self.random.choice([0, 2, 4]) if offset else 0):
            known[producer] = self.random.randint(0, 50)
            data = memoryview(bytes(_batch(self.random.randrange(offset), producer, known[producer], 0)))
            accept_batch(table, data, read_header(data))
        table.written()
        producers = table.to_bytes() if known else b""
        self.synced = 0
        try:
            self.partition.producers = _start_anew(self.data, self.partition, offset, producers)
        except (OSError, StorageError):
            if self.log.offline_for_good:
                raise Over from None
            self.partition.producers = reload_producers(self.log)
            return
        except Died:
            self.open_again(power=False)
            if (self.log.begin_offset, self.log.end_offset) != (offset, offset):
                raise Over from None  # it begins anew once more
        self.sent, self.before, self.highest, self.forgotten = {}, known, dict(known), set()
        self.check()

    def reap(self) -> None:
        self.write_checkpoints()
        for path in self.log.reap():
            self.handle.remove(path)

    def new_epoch(self) -> None:
        self.epoch += 1
        self.epochs.assign(self.epoch, self.log.end_offset)

    def full_disk(self) -> None:
        def refuse(operation: str, path: str) -> None:
            if operation in ("append", "create", "mkdir"):
                raise OSError(errno.ENOSPC, "no space left on device", path)

        self.disk.fault = refuse

    def sync_no_snapshot(self) -> None:
        def refuse(operation: str, path: str) -> None:
            if operation == "sync" and path.endswith(".snapshot"):
                raise OSError(errno.EIO, "the device has failed", path)

        self.disk.fault = refuse

    def mend(self) -> None:
        self.disk.fault = None
        self.log._retry_at = 0
        self.log.come_back()

    changes: dict[str, Callable[[History], None]] = {  # noqa: RUF012
        "append": append,
        "sync": sync,
        "write checkpoints": write_checkpoints,
        "roll": lambda self: self.log.roll(),
        "delete front": delete_front,
        "advance start": advance_start,
        "truncate": truncate,
        "begin anew": begin_anew,
        "reap": reap,
        "new epoch": new_epoch,
        "full disk": full_disk,
        "no snapshot is synced": sync_no_snapshot,
        "mend": mend,
    }

    # -- crashes -------------------------------------------------------------------------------------------

    def die(self, operation: str, *, power: bool) -> None:
        """The process ends in the middle of an operation."""
        self.handle.lives = self.random.randint(0, 6)
        try:
            self.happen(operation)
        except Died:
            self.restart("lose power" if power else "kill")
        self.handle.lives = None

    def restart(self, how: str) -> None:
        synced = self.synced
        if how == "stop":
            closed = _close(self.partition, self.data)
            synced = self.log.end_offset if closed else synced
            self.log.files.let_go()
            with suppress(OSError):
                self.write_checkpoints()
                self.data.close(clean=closed)
        self.open_again(power=how == "lose power")
        assert self.log.end_offset >= synced
        self.cut()

    def open_again(self, *, power: bool) -> None:
        if power:
            self.disk.lose_power()
        self.open()
        if self.log.report.cut_epoch is not None:
            raise Over  # what was deleted was lost, too


def _batch(offset: int, producer: int, sequence: int, epoch: int) -> bytearray:
    return build_batch(
        [Record(offset, 1000, b"k", b"v" * 100)],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        partition_leader_epoch=epoch,
    )


def live(seed: int, operations: tuple[str, ...]) -> None:
    history = History(seed)
    try:
        with suppress(Over):
            for _ in range(history.random.randint(5, 60)):
                history.happen(history.random.choice(operations))
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {', '.join(history.told)}: {error}") from error


@pytest.mark.parametrize("first", range(0, 800, SEEDS_PER_TEST))
def test_no_crash_makes_a_log_forget_its_producers(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        live(seed, CHANGES + CRASHES)


@pytest.mark.parametrize("first", range(0, 800, SEEDS_PER_TEST))
def test_nor_does_a_disk_that_refuses(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        live(seed, CHANGES + CRASHES + DISK)
