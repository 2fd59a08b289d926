"""A log against a plain list: any order of operations gives what the list gives."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.storage.log.config import LogConfig
from forebay.storage.log.opening import open_log
from forebay.wire.batch import read_header
from support.faults.faulty_disk import FaultyDisk
from support.machines.manual_clock import ManualClock
from support.machines.storing import add, bytes_of, find_timestamp, headers, largest_timestamp, read_all

CONFIGS = [
    LogConfig(segment_bytes=600, index_interval_bytes=150, file_delete_delay_ms=0),
    LogConfig(segment_bytes=1 << 20, index_interval_bytes=1, file_delete_delay_ms=0),
    LogConfig(segment_bytes=2000, index_interval_bytes=1 << 20, file_delete_delay_ms=0),
    LogConfig(segment_bytes=1 << 20, segment_ms=20, index_interval_bytes=300, file_delete_delay_ms=0),
]


class LogMachine(RuleBasedStateMachine):
    @initialize(config=st.sampled_from(CONFIGS), start=st.sampled_from([0, 7, 2**40]))
    def begin(self, config: LogConfig, start: int) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="forebay-log-"))
        self.config = config
        self.clock = ManualClock()
        self.disk = FaultyDisk(max_open_files=3)
        self.batches: list[bytes] = []
        self.start = start
        self.checkpoint = 0
        self.open(clean=False, recovery_point=0)

    def open(self, *, clean: bool, recovery_point: int) -> None:
        self.log = open_log(
            self.disk,
            str(self.path / "t-0"),
            self.config,
            clock=self.clock,
            start_offset=self.start,
            recovery_point=recovery_point,
            clean=clean,
        )

    def teardown(self) -> None:
        if hasattr(self, "path"):
            shutil.rmtree(self.path)

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else self.start

    def visible(self) -> list[bytes]:
        return [data for data in self.batches if read_header(data).last_offset >= self.start]

    @rule(
        sizes=st.lists(st.integers(0, 400), min_size=1, max_size=6),
        count=st.integers(1, 3),
        age=st.integers(0, 30),
    )
    def append(self, sizes: list[int], count: int, age: int) -> None:
        for size in sizes:
            self.batches.append(add(self.log, count=count, timestamp=1000 + age, value=bytes(size)))

    @rule()
    def write(self) -> None:
        self.log.write_pending()

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def sync(self) -> None:
        self.log.write_pending()
        assert self.log.files.datasync() == self.end
        self.checkpoint = self.log.recovery_point

    @rule(data=st.data(), max_bytes=st.integers(1, 3000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        visible = self.visible()
        offset = data.draw(st.integers(self.start, self.end))
        upper = data.draw(st.sampled_from([self.end, *(read_header(batch).base_offset for batch in visible)]))
        piece = self.log.read(offset, max_bytes, upper_offset=upper)
        expected = [
            batch
            for batch in visible
            if read_header(batch).last_offset >= offset and read_header(batch).base_offset < upper
        ]
        found = bytes_of(piece.range)
        assert b"".join(expected).startswith(found)
        assert bool(found) == bool(expected) or offset >= upper
        assert len(found) <= max(max_bytes, len(expected[0]) if expected else 0)
        if found:
            assert piece.next_offset == headers(found)[-1].next_offset

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(
            st.sampled_from([self.end, *(read_header(batch).base_offset for batch in self.visible())])
        )
        if offset < self.start:
            return
        self.checkpoint = min(self.checkpoint, offset)
        self.log.files.truncate_to(offset)
        self.batches = [batch for batch in self.batches if read_header(batch).base_offset < offset]

    @rule(data=st.data())
    def advance_start(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.advance_start(self.start)

    @rule(count=st.integers(0, 3))
    def delete_front(self, count: int) -> None:
        self.log.delete_front(count)
        self.start = max(self.start, self.log.segments()[0].base_offset)
        for path in self.log.reap():
            self.disk.remove(path)

    @rule(data=st.data())
    def find_timestamp(self, data: st.DataObject) -> None:
        wanted = data.draw(st.integers(999, 1035))
        expected = [found for found in self.times() if found[0] >= wanted]
        assert find_timestamp(self.log, wanted) == (expected[0] if expected else None)

    @rule()
    def find_largest_timestamp(self) -> None:
        expected = min(self.times(), key=lambda found: (-found[0], found[1]), default=None)
        assert largest_timestamp(self.log) == expected

    def times(self) -> list[tuple[int, int]]:
        return [
            (header.base_timestamp + n, header.base_offset + n)
            for header in map(read_header, self.visible())
            for n in range(header.record_count)
            if header.base_offset + n >= self.start
        ]

    @rule()
    def reopen(self) -> None:
        self.log.files.close()
        self.checkpoint = self.log.recovery_point
        self.open(clean=True, recovery_point=self.checkpoint)

    @rule()
    def kill(self) -> None:
        """The process dies, the machine does not: what was written is there, what was queued is not."""
        self.log.write_pending()
        self.log.discard()
        self.open(clean=False, recovery_point=self.checkpoint)

    @precondition(lambda self: self.start == 0)
    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        self.log.write_pending()
        synced = self.log.recovery_point
        self.disk.crash(lambda unsynced: data.draw(st.integers(0, unsynced)))
        self.disk = FaultyDisk(max_open_files=3)
        self.open(clean=False, recovery_point=self.checkpoint)
        assert synced <= self.log.end_offset <= self.end
        self.batches = [b for b in self.batches if read_header(b).base_offset < self.log.end_offset]
        assert self.end == self.log.end_offset
        self.checkpoint = min(self.checkpoint, self.log.recovery_point)

    @invariant()
    def same_as_the_list(self) -> None:
        if hasattr(self, "log"):
            assert self.log.end_offset == self.end
            assert self.log.start_offset == self.start
            assert self.log.offline is None

    @rule()
    def everything(self) -> None:
        assert read_all(self.log, 700) == b"".join(self.visible())
        assert self.log.size >= sum(map(len, self.visible()))


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
