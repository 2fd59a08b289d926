"""Transactions on one partition: the last stable offset, aborted transactions, fencing, and restarts.

The oracle reads the log itself, batch by batch, and knows nothing but the rules. Random histories of
producers, markers, full disks, rolls, retention, clean stops and losses of power must agree with it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from forebay.broker.partition.own_appends import append_marker, append_own
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.producer_replay import load_producers, save_producers
from forebay.broker.partition.topic_policy import append_policy
from forebay.config import TopicConfig, broker_config
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.partition.record_rules import UNEXAMINED
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import LEADER_EPOCHS, LeaderEpochs
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import TRANSACTIONAL, BatchHeader, EndTxnMarker, build_batch, read_marker
from forebay.wire.records import Record
from support.faults.faulty_disk import FaultyDisk
from support.machines.manual_clock import ManualClock

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300)
NOW_MS = 1_700_000_000_000


class Truth(NamedTuple):
    """What the log says."""

    open: dict[int, int]
    aborted: list[AbortedTxn]
    end_offset: int

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=self.end_offset)

    def aborted_in(self, offset: int, upper: int) -> set[tuple[int, int]]:
        return _markers([e for e in self.aborted if e.last_offset >= offset and e.first_offset < upper])


History = list[tuple[BatchHeader, EndTxnMarker | None]]


def history_of(log: Log, older: History) -> History:
    """Every batch there is and was: `older` is what was known before retention took some of it."""
    start = log.segments()[0].base_offset
    history = [entry for entry in older if entry[0].base_offset < start]
    for data, header in log.files.scan(start):
        history.append((header, read_marker(data) if header.is_control else None))
    return history


def truth_of(history: History, end_offset: int) -> Truth:
    opened: dict[int, int] = {}
    aborted: list[AbortedTxn] = []
    for header, marker in history:
        if marker is not None:
            first = opened.pop(header.producer_id, None)
            if first is not None and not marker.commit:
                last = header.base_offset
                aborted.append(
                    AbortedTxn(header.producer_id, first, last, min(opened.values(), default=last + 1))
                )
        elif header.is_transactional:
            opened.setdefault(header.producer_id, header.base_offset)
    return Truth(opened, aborted, end_offset)


class Bench:
    """A partition on a disk that can be filled, unplugged and plugged in again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = FaultyDisk()
        self.clock = ManualClock()
        self.checkpoint = 0
        self.start_offset = 0
        self.history: History = []
        self.sequences: dict[int, tuple[int, int]] = {}
        """Epoch and next sequence of each producer, as its client knows them."""
        self.partition = self.open(clean=False)

    def open(self, *, clean: bool) -> Partition:
        log = open_log(
            self.disk,
            str(self.path),
            CONFIG,
            clock=self.clock,
            start_offset=self.start_offset,
            recovery_point=self.checkpoint,
            clean=clean,
        )
        epochs = LeaderEpochs(self.disk, log.directory)
        producers = load_producers(log, epochs)
        log.on_roll = lambda _: save_producers(log, producers)
        config = TopicConfig.resolve(broker_config(), {"message.timestamp.after.max.ms": str(2**62)})
        partition = Partition(
            topic="t",
            topic_id=bytes(16),
            index=0,
            log=log,
            epochs=epochs,
            producers=producers,
            config=config,
            policy=append_policy(config, 1 << 20, 0),
        )
        partition.lead(0, PartitionState.initial(0, (0,)), NOW_MS)
        partition.advance()
        return partition

    def send(self, producer: int, *, transactional: bool = True, epoch: int | None = None) -> int:
        known, sequence = self.sequences.get(producer, (0, 0))
        epoch = known if epoch is None else epoch
        data = self.batch(producer, epoch, sequence, transactional=transactional)
        guard = None
        if transactional and not self.partition.producers.in_transaction(producer, epoch):
            guard = self.partition.verifications.begin(producer, epoch, sequence)
        base_offset = self.append(data, guard=guard)
        self.sequences[producer] = (epoch, sequence + 1)
        return base_offset

    def append(self, data: memoryview, guard: object | None = None) -> int:
        appended = self.partition.append(data, NOW_MS, guard=guard)
        assert appended is not UNEXAMINED
        return appended[0]

    @staticmethod
    def batch(producer: int, epoch: int, sequence: int, *, transactional: bool = True) -> memoryview:
        return memoryview(
            build_batch(
                [Record(0, NOW_MS, b"key", b"v" * 40)],
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
                attributes=TRANSACTIONAL if transactional else 0,
            )
        )

    def end(self, producer: int, *, commit: bool, bump: int = 0, coordinator_epoch: int = 0) -> int:
        epoch, sequence = self.sequences.get(producer, (0, 0))
        marker = EndTxnMarker(producer, epoch + bump, commit, coordinator_epoch)
        header = append_marker(self.partition, marker, NOW_MS, bumps_epoch=bool(bump))
        self.sequences[producer] = (epoch + bump, 0 if bump else sequence)
        return header.base_offset

    def unplug(self) -> None:
        for file in list(self.disk.opened):
            file.close()

    def sync(self) -> None:
        self.partition.write()
        self.checkpoint = self.partition.log.files.datasync()

    def delete_front(self) -> None:
        self.sync()
        log = self.partition.log
        self.history = history_of(log, self.history)
        log.delete_front(1)
        self.start_offset = log.start_offset

    def delete_records(self, offset: int) -> None:
        """What an administrator deletes need be neither whole segments nor synced."""
        self.partition.write()
        log = self.partition.log
        self.history = history_of(log, self.history)
        log.advance_start(offset)
        self.start_offset = log.start_offset

    def check(self) -> None:
        """What the partition says lies between what is left in its log and what was ever in it.

        The two are the same until retention takes the beginning of a transaction; a crash may then let it
        be forgotten, which nobody can notice.
        """
        partition, log = self.partition, self.partition.log
        self.history = history_of(log, self.history)
        start, end = log.start_offset, log.end_offset
        whole = truth_of(self.history, end)
        left = truth_of([entry for entry in self.history if entry[0].base_offset >= start], end)
        stable = partition.last_stable_offset
        assert max(whole.last_stable_offset, start) <= stable <= left.last_stable_offset
        opened = {state.producer_id for state in partition.producers if state.in_transaction}
        assert left.open.keys() <= opened <= whole.open.keys()
        for offset in range(start, end + 1, 7):
            for upper in (offset + 1, offset + 9, end):
                found = _markers(log.aborted_transactions(offset, upper))
                assert left.aborted_in(offset, upper) <= found <= whole.aborted_in(offset, upper)


def _markers(entries: list[AbortedTxn]) -> set[tuple[int, int]]:
    markers = [(entry.producer_id, entry.last_offset) for entry in entries]
    assert len(set(markers)) == len(markers)
    return set(markers)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "t-0")
    yield bench
    bench.unplug()


def refusal(bench: Bench, producer: int, **how: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        bench.end(producer, commit=True, **how)
    return caught.value.code


def test_the_last_stable_offset_is_that_of_the_oldest_open_transaction(bench: Bench) -> None:
    partition = bench.partition
    bench.send(9, transactional=False)
    partition.write()
    assert partition.last_stable_offset == 1
    assert not partition.producers.transactional
    bench.send(1)
    bench.send(2)
    bench.send(1)
    assert partition.last_stable_offset == 1
    partition.write()
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
    bench.end(1, commit=False)
    assert partition.last_stable_offset == 1, "the marker is not written yet"
    partition.write()
    assert partition.last_stable_offset == 2
    bench.end(2, commit=True)
    partition.write()
    assert partition.last_stable_offset == partition.high_watermark == 6
    assert partition.log.aborted_transactions(0, 6) == [AbortedTxn(1, 1, 4, 2)]
    assert partition.log.aborted_transactions(5, 6) == []


def test_markers_are_fenced_by_producer_and_by_coordinator(bench: Bench) -> None:
    bench.sequences[1] = (3, 0)
    bench.send(1)
    bench.end(1, commit=True, coordinator_epoch=5)
    bench.partition.write()
    assert refusal(bench, 1, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    bench.sequences[1] = (2, 0)
    assert refusal(bench, 1, coordinator_epoch=5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.partition.log.end_offset == 2
    bench.end(77, commit=False)  # a producer that is not known here may have had nothing to abort
    bench.partition.write()
    assert bench.partition.log.aborted_transactions(0, 9) == []


def test_a_late_marker_cannot_end_the_next_transaction(bench: Bench) -> None:
    bench.send(1)
    bench.end(1, commit=True, bump=1)
    bench.send(1)
    late = EndTxnMarker(1, 1, False, 0)
    with pytest.raises(KafkaError) as caught:
        append_marker(bench.partition, late, NOW_MS, bumps_epoch=True)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    bench.end(1, commit=True, bump=1)
    bench.partition.write()
    assert bench.partition.last_stable_offset == 4
    # The same marker again, as after a lost answer, changes nothing.
    append_marker(bench.partition, EndTxnMarker(1, 2, True, 0), NOW_MS, bumps_epoch=True)
    with pytest.raises(KafkaError) as caught:
        bench.send(1, epoch=1)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transaction_begins_only_verified(bench: Bench) -> None:
    partition = bench.partition

    def code(data: memoryview, guard: object | None = None) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            partition.append(data, NOW_MS, guard=guard)
        return caught.value.code

    assert code(bench.batch(1, 0, 0)) == ErrorCode.INVALID_TXN_STATE
    guard = partition.verifications.begin(1, 0, 0)
    append_marker(partition, EndTxnMarker(1, 0, False, 0), NOW_MS)
    assert code(bench.batch(1, 0, 0), guard) == ErrorCode.INVALID_TXN_STATE, "a marker came in between"
    first, second = partition.verifications.begin(2, 0, 0), partition.verifications.begin(2, 0, 1)
    partition.verifications.release(2, first)
    assert code(bench.batch(2, 0, 0), first) == ErrorCode.INVALID_TXN_STATE
    assert code(bench.batch(2, 0, 1), second) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = partition.verifications.begin(2, 0, 0)
    partition.append(bench.batch(2, 0, 0), NOW_MS, guard=again)
    partition.append(bench.batch(2, 0, 1), NOW_MS)  # while it is open nobody has to be asked
    assert code(bench.batch(2, 0, 2, transactional=False)) == ErrorCode.INVALID_TXN_STATE
    partition.append(bench.batch(3, 0, 0, transactional=False), NOW_MS)
    partition.write()
    assert partition.last_stable_offset == 1


def test_a_coordinators_own_batches_take_part_in_transactions(bench: Bench) -> None:
    partition = bench.partition
    marked: list[EndTxnMarker] = []
    partition.on_marker = marked.append

    def own(producer: int, epoch: int) -> memoryview:
        flags = TRANSACTIONAL if producer >= 0 else 0
        record = Record(0, NOW_MS, b"key", b"value")
        return memoryview(build_batch([record], producer_id=producer, producer_epoch=epoch, attributes=flags))

    assert append_own(partition, own(-1, -1)) == 0
    assert append_own(partition, own(5, 2)) == 1
    partition.write()
    assert partition.last_stable_offset == 1
    with pytest.raises(KafkaError) as caught:
        append_own(partition, own(5, 1))
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    marker = EndTxnMarker(5, 2, True, 0)
    append_marker(partition, marker, NOW_MS)
    partition.write()
    assert partition.last_stable_offset == 3
    assert marked == [marker]


def test_a_marker_that_is_not_written_is_undone(bench: Bench) -> None:
    partition = bench.partition
    bench.send(1)
    partition.write()
    before = partition.producers.to_bytes()
    bench.disk.free = 0
    bench.end(1, commit=False, bump=1)
    with pytest.raises(StorageError):
        partition.write()
    assert partition.producers.to_bytes() == before
    assert partition.last_stable_offset == 0
    bench.disk.repair()
    bench.clock.advance(2000)
    bench.sequences[1] = (0, 1)
    bench.end(1, commit=True)
    partition.write()
    bench.check()
    assert partition.last_stable_offset == 2


@pytest.mark.parametrize("clean", [True, False])
def test_numbers_of_an_ended_transaction_stay_used_over_a_restart(bench: Bench, clean: bool) -> None:
    def outcome(sequence: int) -> int | ErrorCode:
        try:
            return bench.append(bench.batch(1, 0, sequence))
        except KafkaError as error:
            return error.code

    def stop_and_start() -> None:
        bench.partition.write()
        if clean:
            save_producers(bench.partition.log, bench.partition.producers, sync=True)
            bench.partition.log.files.close()
            bench.checkpoint = bench.partition.log.recovery_point
        bench.unplug()
        bench.disk = FaultyDisk()
        bench.partition = bench.open(clean=clean)

    bench.send(1)
    bench.end(1, commit=False)
    stop_and_start()
    assert outcome(0) == ErrorCode.UNKNOWN_PRODUCER_ID
    bench.sequences[1] = (0, 1)
    bench.send(1)
    stop_and_start()
    assert outcome(0) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert outcome(1) == 2, "where it was appended first"


@pytest.mark.parametrize("transactional", [True, False])
def test_an_epoch_that_is_not_written_is_undone(bench: Bench, transactional: bool) -> None:
    """The producer goes on in the epoch before: it may retry there, and nothing of it is stored twice."""
    partition = bench.partition
    offsets = [bench.send(1, transactional=transactional) for _ in range(3)]
    partition.write()
    before = partition.producers.to_bytes()
    bench.disk.free = 0
    bench.sequences[1] = (1, 0)
    bench.send(1, transactional=transactional)
    with pytest.raises(StorageError):
        partition.write()
    assert partition.producers.to_bytes() == before
    bench.disk.repair()
    bench.clock.advance(2000)
    for sequence, offset in enumerate(offsets):
        again = bench.batch(1, 0, sequence, transactional=transactional)
        assert partition.append(again, NOW_MS) == (offset, -1)
    bench.sequences[1] = (0, 3)
    bench.send(1, transactional=transactional)
    partition.write()
    bench.check()


@pytest.mark.parametrize("transactional", [True, False])
def test_a_first_batch_that_is_not_written_is_not_overtaken(bench: Bench, transactional: bool) -> None:
    """What the client sent behind it comes late, when there is room again."""
    partition = bench.partition
    bench.disk.free = 0
    bench.send(1, transactional=transactional)
    with pytest.raises(StorageError):
        partition.write()
    bench.disk.repair()
    bench.clock.advance(2000)
    with pytest.raises(StorageError):  # not out of order: both will be sent again
        bench.send(1, transactional=transactional)
    bench.sequences[1] = (0, 0)
    assert [bench.send(1, transactional=transactional) for _ in range(2)] == [0, 1]
    partition.write()
    bench.check()


def test_a_batch_that_is_not_written_takes_no_guard_from_its_copy(bench: Bench) -> None:
    """A client that lost its connection sends it again, while the coordinator is still asked about both."""
    partition = bench.partition
    first, copy = partition.verifications.begin(1, 0, 0), partition.verifications.begin(1, 0, 0)
    bench.disk.free = 0
    partition.append(bench.batch(1, 0, 0), NOW_MS, guard=first)
    partition.verifications.release(1, first)
    with pytest.raises(StorageError):
        partition.write()
    bench.disk.repair()
    bench.clock.advance(2000)
    assert partition.append(bench.batch(1, 0, 0), NOW_MS, guard=copy) == (0, -1)


def test_records_deleted_from_under_a_transaction_do_not_hold_readers_back(bench: Bench) -> None:
    bench.send(1)
    bench.send(9, transactional=False)
    bench.partition.write()
    bench.partition.log.advance_start(2)
    assert bench.partition.last_stable_offset == 2


def open_at_the_last_snapshot(bench: Bench) -> None:
    """A transaction is open in the newest snapshot and ends right behind it."""
    partition = bench.partition
    bench.send(1)
    partition.write()
    partition.log.roll()
    bench.end(1, commit=True)
    bench.send(1)
    bench.end(1, commit=True)
    bench.send(9, transactional=False)
    bench.sync()


def test_what_was_deleted_from_a_segment_still_counts_for_its_producers(bench: Bench) -> None:
    """The marker is behind the newest snapshot and before the start of the log."""
    open_at_the_last_snapshot(bench)
    bench.partition.log.advance_start(4)
    bench.start_offset = 4
    bench.unplug()
    bench.partition = bench.open(clean=False)
    assert bench.partition.last_stable_offset == bench.partition.high_watermark == 5
    bench.send(1)  # with the number that comes next


def test_producers_of_deleted_batches_are_known_by_snapshots_beyond_the_recovery_point(bench: Bench) -> None:
    """All that are kept are younger than the checkpoint of the recovery point."""
    bench.send(9, transactional=False)
    bench.sync()
    bench.send(8, transactional=False)
    bench.partition.write()
    log = bench.partition.log
    for number in range(4):
        log.roll()
        if number == 0:
            log.delete_front(1)
            bench.start_offset = log.start_offset
        bench.send(7, transactional=False)
        bench.partition.write()
        log.files.datasync()
    assert bench.checkpoint < bench.start_offset == log.begin_offset
    assert min(taken_at for taken_at, _ in log.files.snapshots()) > log.begin_offset
    bench.unplug()
    bench.partition = bench.open(clean=False)
    assert {each.producer_id: each.last_sequence for each in bench.partition.producers} == {9: 0, 8: 0, 7: 3}


def test_a_snapshot_says_nothing_of_a_log_that_was_begun_anew(bench: Bench) -> None:
    """As a follower does that has nothing of what its leader still has."""
    open_at_the_last_snapshot(bench)
    partition = bench.partition
    partition.log.files.truncate_fully_and_start_at(100)
    partition.epochs.forget_from(0)
    partition.producers = load_producers(partition.log, partition.epochs)
    partition.truncated()
    partition.epochs.assign(0, 100)
    bench.send(9, transactional=False)
    bench.sync()
    bench.start_offset = 100
    bench.unplug()
    bench.partition = bench.open(clean=False)
    assert [state.producer_id for state in bench.partition.producers] == [9]
    assert bench.partition.last_stable_offset == bench.partition.high_watermark == 101


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_snapshot_where_the_log_begins_is_as_good_as_what_was_deleted(
    bench: Bench, is_synced: bool
) -> None:
    """However little of the log was synced: what lies before is gone, and needs no looking at.

    Nor was anything of the second segment: no file has the leader epoch, and it is read from the log.
    """
    bench.send(1)
    if is_synced:
        bench.sync()
    bench.send(1)
    bench.end(1, commit=True)
    bench.partition.write()
    bench.partition.log.roll()
    bench.send(9, transactional=False)
    bench.partition.write()
    bench.partition.log.advance_start(3)
    bench.start_offset = 3
    bench.unplug()
    bench.partition = bench.open(clean=False)
    assert bench.partition.last_stable_offset == bench.partition.high_watermark == 4
    assert {state.producer_id for state in bench.partition.producers} == {1, 9}
    assert bench.partition.epochs.entries == [(0, 3)]
    bench.send(1)


def test_producers_whose_messages_are_deleted_are_known_though_the_leader_epochs_are_lost(
    bench: Bench,
) -> None:
    """The epochs are read from where the log begins, the producers from a snapshot behind that."""
    bench.send(1, transactional=False)
    bench.partition.write()
    bench.partition.log.roll()
    bench.send(9, transactional=False)
    bench.partition.write()
    bench.partition.log.roll()
    bench.send(9, transactional=False)
    bench.sync()
    bench.partition.log.advance_start(1)
    bench.start_offset = 1
    bench.unplug()
    for name in (LEADER_EPOCHS, "00000000000000000001.snapshot"):
        (bench.path / name).unlink(missing_ok=True)
    bench.partition = bench.open(clean=False)
    assert bench.partition.epochs.entries == [(0, 1)]
    assert bench.append(bench.batch(1, 0, 0, transactional=False)) == 0
    assert bench.append(bench.batch(9, 0, 1, transactional=False)) == 2
    assert bench.partition.log.end_offset == 3, "they are repeats"


def test_producers_in_transactions_are_not_forgotten(bench: Bench) -> None:
    bench.send(1)
    bench.send(2, transactional=False)
    assert bench.partition.producers.expire(0, 1000, 2) == 0
    assert bench.partition.producers.expire(1000, 1000, 2) == 1
    assert [state.producer_id for state in bench.partition.producers] == [1]


def test_producers_that_send_a_batch_again_are_not_forgotten(bench: Bench) -> None:
    bench.send(1, transactional=False)
    partition = bench.partition
    partition.write()
    for time_ms in range(0, 5000, 500):
        assert bench.append(bench.batch(1, 0, 0, transactional=False)) == 0
        assert partition.producers.expire(time_ms, 1000, partition.high_watermark) == 0


# -- random histories --------------------------------------------------------------------------------------


def random_step(bench: Bench, chance: random.Random) -> None:
    producer, kind = chance.randrange(5), chance.random()
    log = bench.partition.log
    in_transaction = any(s.producer_id == producer and s.in_transaction for s in bench.partition.producers)
    if kind < 0.45:
        bench.send(producer, transactional=in_transaction or chance.random() < 0.8)
    elif kind < 0.75:
        bench.end(producer, commit=chance.random() < 0.4, bump=chance.randrange(2))
    elif kind < 0.8:
        bench.sync()
    elif kind < 0.85:
        bench.partition.write()
        log.files.datasync()  # and the power may be lost before the checkpoint is written
    elif kind < 0.9:
        log.roll()
    elif kind < 0.92:
        bench.delete_front()
    elif kind < 0.93:
        bench.delete_records(chance.randint(log.start_offset, log.end_offset))
    elif kind < 0.95:
        fail_to_write(bench)
    else:
        restart(bench, chance)


def fail_to_write(bench: Bench) -> None:
    """What was queued is gone; clients find out what is there and go on with it."""
    bench.partition.write()
    clients = dict(bench.sequences)
    bench.disk.break_path("append", ".log")
    with contextlib.suppress(StorageError):  # told now if a segment is full, and told again
        bench.send(4)
        bench.end(4, commit=False, bump=1)
    with pytest.raises(StorageError):
        bench.partition.write()
    bench.sequences = clients
    bench.disk.repair()
    bench.clock.advance(2000)


def restart(bench: Bench, chance: random.Random) -> None:
    partition = bench.partition
    clean = chance.random() < 0.3
    partition.write()
    if clean:
        save_producers(partition.log, partition.producers, sync=True)
        partition.log.files.close()
        bench.checkpoint = partition.log.recovery_point
    elif chance.random() < 0.5:
        bench.disk.crash(lambda most: chance.randint(0, most))
    bench.unplug()
    bench.disk = FaultyDisk()
    before = {state.producer_id: state for state in partition.producers}
    bench.partition = bench.open(clean=clean)
    if clean:
        assert {state.producer_id: state for state in bench.partition.producers} == before
    for producer, (epoch, _) in list(bench.sequences.items()):
        known = next((s for s in bench.partition.producers if s.producer_id == producer), None)
        bench.sequences[producer] = (known.producer_epoch, known.next_sequence) if known else (epoch, 0)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_the_partition_agrees_with_its_log(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    bench.sync()
    for number in range(150):
        random_step(bench, chance)
        if number % 5 == 0:
            bench.partition.write()
            bench.check()
    bench.partition.write()
    bench.check()


def test_a_snapshot_of_producers_that_may_not_be_on_the_disk_is_taken_again(tmp_path: Path) -> None:
    """A process that died has not synced it. A stop would leave it so, and a loss of power then take it."""
    bench = Bench(tmp_path)
    bench.send(1, transactional=False)
    bench.sync()
    save_producers(bench.partition.log, bench.partition.producers)
    bench.unplug()
    bench.partition = bench.open(clean=False)
    assert bench.partition.log.end_offset == 1
    assert not bench.partition.log.has_snapshot
    save_producers(bench.partition.log, bench.partition.producers, sync=True)
    assert bench.partition.log.has_snapshot
    bench.partition.log.files.close()
    bench.partition = bench.open(clean=True)
    assert bench.partition.log.has_snapshot
