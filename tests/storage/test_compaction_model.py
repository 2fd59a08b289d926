"""Compaction against a plain list of messages, with transactions, and a process that dies at any change.

Whatever happens, the log holds the latest message of every key, and no message that was not written there;
a reader of committed messages sees no aborted one; and the state of the producers can be had from what is
left.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.broker.partition.producer_replay import load_producers
from forebay.core.partition.compaction.batch_filter import last_batches
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.storage.log.config import LogConfig
from forebay.storage.log.leader_epochs import LeaderEpochs
from forebay.storage.log.opening import open_log
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import TRANSACTIONAL, EndTxnMarker, build_marker, read_header, records, split
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from support.faults.mortal_disk import Died, MortalDisk
from support.machines.compacting import add_records, compact, task_for
from support.machines.manual_clock import ManualClock
from support.machines.storing import read_all
from support.machines.walks import walks

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=120, file_delete_delay_ms=0)
RETENTION_MS = 100

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"a key of more than sixteen bytes"])
VALUES = st.one_of(st.none(), st.binary(max_size=60))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)


@dataclass
class Written:
    record: Record
    producer_id: int
    outcome: str
    """plain, open, committed or aborted."""


class CompactionMachine(RuleBasedStateMachine):
    @initialize(deletes=st.sampled_from([False, False, True]))
    def begin(self, deletes: bool) -> None:
        self.deletes = deletes
        self.path = Path(tempfile.mkdtemp(prefix="forebay-clean-"))
        self.clock = ManualClock()
        self.disk = MortalDisk(max_open_files=4)
        self.written: dict[int, Written] = {}
        self.checkpoint = 0
        self.first_dirty = 0
        self.start = 0
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "path"):
            shutil.rmtree(self.path)

    def open(self) -> None:
        self.log = open_log(
            self.disk,
            str(self.path / "t-0"),
            CONFIG,
            clock=self.clock,
            start_offset=self.start,
            recovery_point=self.checkpoint,
        )
        assert self.log.offline is None
        assert not self.log.report.damage
        self.producers = load_producers(self.log, LeaderEpochs(self.disk, self.log.directory))

    # --- writing -------------------------------------------------------------------------------------------

    def put(
        self, pairs: list[tuple[bytes, bytes | None]], codec: int, producer_id: int, attributes: int
    ) -> None:
        state = next((s for s in self.producers if s.producer_id == producer_id), None)
        sequence = state.next_sequence if state else 0
        producer = (producer_id, 0, sequence) if producer_id >= 0 else (-1, -1, -1)
        self.clock.advance(1)
        now = self.clock.now_ms()
        base = add_records(
            self.log, pairs, timestamp=now, codec=codec, producer=producer, attributes=attributes
        )
        self.log.write_pending()
        header = next(header for _, header in self.log.files.scan(base) if header.base_offset == base)
        self.producers.accept(header)
        outcome = "open" if attributes else "plain"
        for number, (key, value) in enumerate(pairs):
            record = Record(base + number, now + number, key, value)
            self.written[base + number] = Written(record, producer_id, outcome)

    @rule(pairs=PAIRS, codec=st.sampled_from(list(Codec)), producer_id=st.sampled_from([-1, -1, 1]))
    def append(self, pairs: list[tuple[bytes, bytes | None]], codec: int, producer_id: int) -> None:
        self.put(pairs, codec, producer_id, 0)

    @rule(key=KEYS, count=st.integers(5, 25), producer_id=st.sampled_from([-1, -1, 1]))
    def overwrite(self, key: bytes, count: int, producer_id: int) -> None:
        """Fill segments of which nothing will be left, or but the first messages."""
        for number in range(count):
            self.put([(key, b"%d" % number + b"x" * 50)], Codec.NONE, producer_id, 0)

    @rule(pairs=PAIRS, producer_id=st.sampled_from([5, 6]))
    def append_in_transaction(self, pairs: list[tuple[bytes, bytes | None]], producer_id: int) -> None:
        self.put(pairs, Codec.NONE, producer_id, TRANSACTIONAL)

    @rule(producer_id=st.sampled_from([5, 6]), commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        if not any(s.in_transaction for s in self.producers if s.producer_id == producer_id):
            return
        marker = EndTxnMarker(producer_id, 0, commit, 0)
        made = build_marker(marker, timestamp=self.clock.now_ms(), base_offset=self.log.end_offset)
        header = read_header(made)
        self.log.append(memoryview(made), header)
        ended = self.producers.accept_marker(header, marker)
        assert ended is not None
        if not commit:
            self.log.append_aborted(
                AbortedTxn(producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
            )
        self.log.write_pending()
        for entry in self.written.values():
            if entry.producer_id == producer_id and entry.outcome == "open":
                entry.outcome = "committed" if commit else "aborted"

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def sync(self) -> None:
        self.log.files.datasync()
        self.checkpoint = self.log.recovery_point

    @rule(ms=st.sampled_from([1, RETENTION_MS, 10 * RETENTION_MS]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @precondition(lambda self: self.deletes)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.stable()))
        self.log.advance_start(self.start)

    @rule()
    def reap(self) -> None:
        for path in self.log.reap():
            self.disk.remove(path)

    # --- cleaning ------------------------------------------------------------------------------------------

    def stable(self) -> int:
        unstable = self.producers.transactions.first_unstable_offset(self.log.end_offset)
        return self.log.end_offset if unstable is None else max(unstable, self.start)

    def clean(self, buffer_bytes: int = 1 << 20) -> None:
        task = task_for(
            self.log,
            first_dirty=self.first_dirty,
            now_ms=self.clock.now_ms(),
            delete_retention_ms=RETENTION_MS,
            buffer_bytes=buffer_bytes,
            end_offset=self.stable(),
            last_batches=last_batches(self.producers),
        )
        self.first_dirty = max(compact(self.log, self.disk, task), self.first_dirty)

    @rule(buffer_bytes=st.sampled_from([192, 1 << 20, 1 << 20]))
    def compact(self, buffer_bytes: int) -> None:
        self.clean(buffer_bytes)
        before_dirty = [r.key for r in self.messages() if r.offset < min(self.first_dirty, self.stable())]
        assert len(before_dirty) == len(set(before_dirty))

    @rule(lives=st.integers(0, 40), keeps_unsynced=st.booleans(), again=st.integers(0, 12))
    def die_while_compacting(self, lives: int, keeps_unsynced: bool, again: int) -> None:
        """The process, or the machine, dies at some change of the disk, and again while the log is opened."""
        self.log.files.datasync()
        self.disk.lives = lives
        try:
            self.clean()
        except Died:
            self.start_again(keeps_unsynced, again)
        else:
            self.disk.lives = None

    def start_again(self, keeps_unsynced: bool, lives: int) -> None:
        before = self.known_producers()
        if not keeps_unsynced:
            self.disk.crash(lambda _: 0)
        self.disk = MortalDisk(max_open_files=4)
        self.disk.lives = lives
        try:
            self.open()
        except Died:
            self.disk = MortalDisk(max_open_files=4)
            self.open()
        self.disk.lives = None
        self.same_producers(before)

    @rule()
    def restart(self) -> None:
        before = self.known_producers()
        self.log.files.close()
        self.disk = MortalDisk(max_open_files=4)
        self.open()
        self.same_producers(before)

    def same_producers(self, before: dict[int, tuple[int, int, bool]]) -> None:
        if self.start == 0:  # else what told of a producer may be gone with the front of the log
            assert self.known_producers() == before

    def known_producers(self) -> dict[int, tuple[int, int, bool]]:
        return known(self.producers)

    # --- what must hold ------------------------------------------------------------------------------------

    def messages(self) -> list[Record]:
        """What a reader of committed messages gets, who leaves out what he is told was aborted."""
        data = read_all(self.log, 600)
        end = self.stable()
        aborted = sorted(
            self.log.aborted_transactions(self.log.start_offset, end), key=lambda entry: entry.first_offset
        )
        skipped: set[int] = set()
        found: list[Record] = []
        for position, header in split(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                skipped.discard(header.producer_id)
            elif header.base_offset < end and not (header.is_transactional and header.producer_id in skipped):
                found += records(data[position : position + header.size])
        return [record for record in found if self.start <= record.offset < end]

    @invariant()
    def every_message_was_written_there(self) -> None:
        if hasattr(self, "log"):
            for record in self.messages():
                entry = self.written[record.offset]
                assert record == entry.record
                assert entry.outcome in ("plain", "committed")

    @invariant()
    def the_latest_of_every_key_is_there(self) -> None:
        if hasattr(self, "log"):
            end = self.stable()
            expected: dict[bytes | None, bytes | None] = {}
            for offset, entry in sorted(self.written.items()):
                if self.start <= offset < end and entry.outcome in ("plain", "committed"):
                    expected[entry.record.key] = entry.record.value
            found = {record.key: record.value for record in self.messages()}
            assert {k: v for k, v in found.items() if v is not None} == {
                k: v for k, v in expected.items() if v is not None
            }

    @invariant()
    def every_segment_ends_where_the_next_begins(self) -> None:
        """Else a loss of power would be seen there."""
        if hasattr(self, "log"):
            for segment in self.log.sealed_segments(2**62):
                *_, last = segment.hops()
                assert last.last_offset + 1 == segment.next_base

    @invariant()
    def the_end_stays(self) -> None:
        if hasattr(self, "log"):
            assert self.log.end_offset >= max(self.written, default=-1) + 1
            assert self.log.start_offset == self.start


def known(producers: ProducerTable) -> dict[int, tuple[int, int, bool]]:
    return {
        state.producer_id: (state.producer_epoch, state.next_sequence, state.in_transaction)
        for state in producers
    }


TestCompaction, TestManyCompactions = walks(CompactionMachine, few=40, many=200, steps=40)
