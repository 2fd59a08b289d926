"""A follower of a log that is compacted at any time: it ends with the leader's contents.

Over random histories. It stops and goes on anywhere, also within the offsets that compaction has added to a
batch, and compacts its own log as it likes. When it has everything, it may lead, in a new leader epoch.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.broker.partition.producer_replay import accept_batch, load_producers
from forebay.broker.replication import follower_append
from forebay.broker.replication.claims import claim_of
from forebay.core.cluster.restore_image import Claim
from forebay.core.partition.compaction.batch_filter import last_batches
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import LeaderEpochs
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import build_batch, read_header, split
from forebay.wire.records import Record
from support.machines.compacting import compact, messages, task_for
from support.machines.manual_clock import ManualClock
from support.machines.storing import bytes_of
from support.machines.walks import seeds

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=120, file_delete_delay_ms=0)
KEYS = [b"a", b"b", b"c", b"d"]
STEPS = 120
OTHERS = ["compact", "roll", "change", "own", "restart"]
PRODUCER = 7
NOBODY = (-1, -1, -1)


class Replica:
    def __init__(self, path: Path) -> None:
        self.disk = RealDisk()
        self.path = path
        self.first_dirty = 0
        self.open()

    def open(self) -> None:
        self.log: Log = open_log(self.disk, str(self.path), CONFIG, clock=ManualClock(), clean=True)
        self.epochs = LeaderEpochs(self.disk, str(self.path))
        self.producers: ProducerTable = load_producers(self.log, self.epochs)
        self.partition: Any = SimpleNamespace(
            log=self.log, epochs=self.epochs, producers=self.producers, high_watermark=0, waiting=None
        )

    def restart(self) -> None:
        self.epochs.datasync()
        self.log.files.close()
        self.open()

    def write(self, epoch: int, keys: list[bytes], producer: tuple[int, int, int], value: bytes) -> None:
        base = self.log.end_offset
        made = build_batch(
            [Record(base + number, 1000, key, value) for number, key in enumerate(keys)],
            base_offset=base,
            partition_leader_epoch=epoch,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
        )
        header = read_header(made)
        self.epochs.assign(epoch, base)
        self.log.append(memoryview(made), header)
        accept_batch(self.producers, memoryview(made), header)
        self.log.write_pending()

    def compact(self, end_offset: int) -> None:
        task = task_for(
            self.log,
            first_dirty=self.first_dirty,
            end_offset=end_offset,
            last_batches=last_batches(self.producers),
        )
        self.first_dirty = max(compact(self.log, self.disk, task), self.first_dirty)

    def follow(self, leader: Replica, max_bytes: int) -> None:
        end = self.log.end_offset
        epoch = self.epochs.epoch_at(end - 1) if end else -1
        if epoch >= 0:
            known, epoch_end = leader.epochs.end_offset_for(epoch, leader.log.end_offset)
            assert known == epoch and epoch_end >= end, "it would cut off what it copied"
        found = leader.log.read(end, max_bytes)
        if found.range is None:
            return
        data = memoryview(bytearray(bytes_of(found.range)))
        for position, header in split(data):
            batch = data[position : position + header.size]
            if header.base_offset >= self.log.end_offset:
                follower_append._append_batch(self.partition, batch, header)
            elif header.last_offset >= self.log.end_offset:
                follower_append._append_rest(self.partition, batch, header)
        self.log.write_pending()

    def table(self) -> dict[bytes | None, Record]:
        return {record.key: record for record in messages(self.log)}

    def next_sequence(self) -> int:
        return next((each.next_sequence for each in self.producers if each.producer_id == PRODUCER), 0)


class History:
    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.leader, self.follower = Replica(path / "1"), Replica(path / "2")
        self.epoch = self.written = 0
        self.latest: dict[bytes, tuple[int, bytes]] = {}

    def write(self, keys: list[bytes], size: int = 0, *, has_producer: bool = False) -> None:
        self.written += 1
        value = b"%d" % self.written + b"x" * size
        producer = (PRODUCER, 0, self.leader.next_sequence()) if has_producer else (-1, -1, -1)
        for number, key in enumerate(keys):
            self.latest[key] = self.leader.log.end_offset + number, value
        self.leader.write(self.epoch, keys, producer, value)

    def write_some(self) -> None:
        chance = self.chance
        keys = chance.choices(KEYS, [1, 1, 8, 8], k=chance.randint(1, 3))
        self.write(keys, chance.choice([0, 0, 0, 150]), has_producer=chance.random() < 0.4)

    def follow(self) -> None:
        self.follower.follow(self.leader, self.chance.choice([1, 200, 5000]))

    def catch_up(self) -> None:
        while self.follower.log.end_offset < self.leader.log.end_offset:
            before = self.follower.log.end_offset
            self.follower.follow(self.leader, 5000)
            assert self.follower.log.end_offset > before

    def next_epoch(self) -> None:
        self.epoch += 1
        self.leader.epochs.assign(self.epoch, self.leader.log.end_offset)

    def lose_the_end_of_a_segment(self) -> None:
        """Messages that stay, and others behind them that do not; the follower may have come that far."""
        self.write([self.chance.choice([b"a", b"b"])])
        if self.chance.random() < 0.6:
            self.catch_up()
        if self.chance.random() < 0.3:
            self.next_epoch()
        for _ in range(self.chance.randint(1, 4)):
            self.write([b"c"])
            if self.chance.random() < 0.2:
                self.follow()
        self.leader.log.roll()
        self.write([b"c"], 450)
        self.leader.log.roll()
        if self.chance.random() < 0.7:
            self.leader.compact(self.leader.log.end_offset)

    def change_leaders(self) -> None:
        if self.follower.log.end_offset == self.leader.log.end_offset:
            self.leader, self.follower = self.follower, self.leader
            self.next_epoch()

    def step(self) -> None:
        way = self.chance.choice(["write"] * 6 + ["follow"] * 3 + ["end"] * 2 + OTHERS)
        match way:
            case "write":
                self.write_some()
            case "follow":
                self.follow()
            case "end":
                self.lose_the_end_of_a_segment()
            case "roll":
                self.leader.log.roll()
            case "compact":
                self.leader.compact(self.leader.log.end_offset)
            case "own":
                self.follower.log.roll()
                self.follower.compact(self.follower.log.end_offset)
            case "restart":
                self.chance.choice([self.leader, self.follower]).restart()
            case "change":
                self.change_leaders()

    def check(self, replica: Replica) -> None:
        assert {key: (each.offset, each.value) for key, each in replica.table().items()} == self.latest
        assert replica.next_sequence() == self.leader.next_sequence()
        for segment, after in pairwise(replica.log.segments()):
            assert segment.next_offset == after.base_offset
        for offset in range(0, replica.log.end_offset, 5):
            shown = {each.key: (each.offset, each.value) for each in messages(replica.log, offset)}
            expected = {key: found for key, found in self.latest.items() if found[0] >= offset}
            assert {key: shown.get(key) for key in expected} == expected


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_a_follower_of_a_compacted_log_ends_with_its_contents(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    for _ in range(STEPS):
        history.step()
    history.catch_up()
    for replica in (history.leader, history.follower):
        replica.restart()
        history.check(replica)


def claim(replica: Replica, high_watermark: int) -> Claim:
    log, epochs = replica.log, replica.epochs
    partition: Any = SimpleNamespace(
        log=log,
        epochs=epochs,
        config=SimpleNamespace(compacted=True),
        high_watermark=high_watermark,
        last_epoch=epochs.last_between(log.start_offset, log.end_offset),
    )
    return claim_of(partition)


def test_after_a_restore_neither_is_left_out_for_lacking_what_compaction_took_away(tmp_path: Path) -> None:
    leader, copy = Replica(tmp_path / "1"), Replica(tmp_path / "2")
    for epoch, key in enumerate([b"a", b"b", b"b", b"c"]):
        for _ in range(12):
            leader.write(epoch, [key], NOBODY, b"x" * 150)
    leader.compact(leader.log.end_offset)
    while copy.log.end_offset < leader.log.end_offset:
        copy.follow(leader, 5000)
    assert copy.epochs.entries != leader.epochs.entries
    end_offset = leader.log.end_offset
    for known in range(end_offset + 1):
        assert claim(leader, end_offset).has_committed(claim(copy, known))
        assert claim(copy, end_offset).has_committed(claim(leader, known))
    behind = claim(copy, 30)._replace(end_offset=30)
    assert behind.has_committed(claim(leader, 30))
    assert not behind.has_committed(claim(leader, 31))
