"""Compaction of a log on the disk: what is left, where it is, and who can still read it."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.broker.partition.producer_replay import reload_producers
from forebay.core.partition.batch_rules import place
from forebay.core.partition.compaction.batch_filter import LastBatches, last_batches
from forebay.core.views.copying import copy_batches, gap_batch, source_epoch
from forebay.errors import StorageError
from forebay.storage.log.compaction.cleaner import Cleaner
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.segment.batch_parts import CorruptBatch
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.storage.real_disk import RealDisk
from forebay.wire.batch import HEADER_SIZE, TRANSACTIONAL, assemble, build_batch, read_header
from forebay.wire.compression import Codec, OutputTooLarge
from forebay.wire.record_spans import rest_of
from forebay.wire.records import Record
from support.faults.faulty_disk import FaultyDisk
from support.machines.compacting import add_marker, add_records, compact, messages, table, task_for
from support.machines.manual_clock import ManualClock
from support.machines.storing import bytes_of, find_timestamp, headers, largest_timestamp, read_all

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=50)


class Bench:
    def __init__(self, path: Path, **options: bool) -> None:
        self.path = path
        self.disk = RealDisk()
        self.clock = ManualClock()
        self.log = self.open(**options)
        self.first_dirty = 0

    def open(self, **options: int) -> Log:
        return open_log(self.disk, str(self.path), CONFIG, clock=self.clock, **options)  # type: ignore[arg-type]

    def put(self, pairs: str, **options: int) -> None:
        """One batch: 'a=1 b=2 c=' where nothing after the = deletes the key."""
        parsed = [pair.split("=") for pair in pairs.split()]
        add_records(
            self.log,
            [(key.encode(), value.encode() or None) for key, value in parsed],
            **options,  # type: ignore[arg-type]
        )
        self.log.write_pending()

    def compact(self, **options: int) -> None:
        task = task_for(self.log, first_dirty=self.first_dirty, **options)  # type: ignore[arg-type]
        self.first_dirty = compact(self.log, self.disk, task)

    def left(self) -> list[tuple[int, str]]:
        return [
            (record.offset, f"{(record.key or b'').decode()}={(record.value or b'').decode()}")
            for record in messages(self.log)
        ]

    def names(self, suffix: str) -> list[str]:
        return sorted(path.name for path in self.path.iterdir() if path.name.endswith(suffix))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "t-0")


def test_the_latest_of_each_key_stays_at_its_offset_and_time(bench: Bench) -> None:
    bench.put("a=1 b=1 c=1", timestamp=100)
    bench.put("a=2", timestamp=200)
    bench.put("b=2 a=3", timestamp=300)
    bench.log.roll()
    bench.compact()
    assert bench.left() == [(2, "c=1"), (4, "b=2"), (5, "a=3")]
    assert [record.timestamp for record in messages(bench.log)] == [102, 300, 301]
    assert bench.log.end_offset == 6
    assert bench.first_dirty == 6


def test_a_gap_between_segments_is_clean(tmp_path: Path) -> None:
    """As a follower left it that began a segment at the offset of the next batch of a compacted log."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    for offset, key in ((0, b"a"), (50, b"a"), (90, b"b")):
        made = build_batch([Record(offset, 1000, key, b"%d" % offset)], base_offset=offset)
        (directory / f"{offset:020d}.log").write_bytes(made)
    bench = Bench(directory, clean=True)
    bench.log.roll()
    bench.compact(end_offset=50)
    assert bench.first_dirty == 50
    bench.compact(buffer_bytes=1)  # room for one key
    assert bench.first_dirty == 90
    bench.compact()
    assert bench.first_dirty == bench.log.end_offset == 91
    assert bench.left() == [(50, "a=50"), (90, "b=90")]


def test_segments_of_which_nothing_is_left_leave_no_empty_ones_behind(bench: Bench) -> None:
    """A fetch would return nothing but a placeholder of each, and clients do not walk over many of those."""
    value = "x" * 900  # each batch fills a segment
    for number in range(20):
        bench.put(f"a={number}{value}")
        if number in (5, 6):
            bench.put(f"k{number}=1")
    bench.log.roll()
    bench.compact()
    expected = [(6, "k5=1"), (8, "k6=1"), (21, f"a=19{value}")]
    assert bench.left() == expected
    assert len(list(bench.log.stretches(0))) == 3, "every segment has a message"
    assert bench.log.start_offset == 0 and bench.first_dirty == bench.log.end_offset == 22
    bench.log.files.close()
    bench.log = bench.open()
    assert bench.left() == expected
    for offset in range(22):
        assert messages(bench.log, offset) == [each for each in messages(bench.log) if each.offset >= offset]


@pytest.mark.parametrize("producer", [(-1, -1, -1), (7, 0, 0)])
def test_a_segment_ends_with_a_batch_that_has_messages(bench: Bench, producer: tuple[int, int, int]) -> None:
    """kafka-go begins again with the first message when a batch without messages ends a response."""
    add_records(bench.log, [(b"a", b"1"), (b"b", b"1")], producer=producer)
    bench.put("b=2")
    bench.put("b=3")
    bench.log.roll()
    bench.put(f"b=4 c={'x' * 900}")
    bench.log.roll()
    bench.compact()
    found = headers(read_all(bench.log))
    assert [(each.base_offset, each.last_offset, each.record_count) for each in found] == [
        (0, 3, 1),
        (4, 5, 2),
    ]
    assert found[0].producer_id == -1, "its last sequence number would be another one"
    expected = [(0, "a=1"), (4, "b=4"), (5, f"c={'x' * 900}")]
    assert bench.left() == expected
    bench.log.files.close()
    bench.log = bench.open()
    assert bench.left() == expected


def test_a_batch_that_lies_about_its_offsets_does_not_come_true_at_the_end_of_a_segment(bench: Bench) -> None:
    """Its record has the offset 3. It is nobody's, and would be if the batch reached to the offset 4."""
    made = build_batch([Record(3, 1000, b"a", b"lie")], base_offset=0, partition_leader_epoch=0)
    lie = assemble(read_header(made)._replace(last_offset_delta=0), bytes(made[HEADER_SIZE:]))
    bench.log.append(memoryview(lie), read_header(lie))
    for number in range(1, 5):
        bench.put(f"b={number}")
    bench.log.roll()
    bench.put(f"b=5 c={'x' * 900}")
    bench.log.roll()
    bench.compact()
    found = headers(read_all(bench.log))
    assert [(each.base_offset, each.last_offset, each.record_count) for each in found] == [
        (0, 0, 1),
        (4, 4, 0),
        (5, 6, 2),
    ]


def test_the_end_of_a_compacted_view_tells_the_epoch_of_its_source(bench: Bench) -> None:
    """A view that was told a lower one would take its source for one that has lost messages."""
    for epoch, key in ((1, b"a"), (2, b"b"), (3, b"b")):
        end = bench.log.end_offset
        made = build_batch([Record(end, 1000, key, b"1")], base_offset=end, partition_leader_epoch=epoch)
        (stored,) = copy_batches(memoryview(made), end, (), 1 << 20).batches
        view = memoryview(stored)
        bench.log.append(view, place(view, read_header(view), end, 0))
    bench.log.roll()
    bench.put(f"b=4 c={'x' * 900}")
    bench.log.roll()
    bench.compact()
    first, _ = headers(read_all(bench.log))
    assert (first.base_offset, first.last_offset, source_epoch(first)) == (0, 2, 3)
    assert source_epoch(read_header(rest_of(first, 1))) == 3


def test_the_last_segments_keep_one_place_if_nothing_is_left_of_them(bench: Bench) -> None:
    for number in range(10):
        bench.put(f"a={number}{'x' * 900}")
    bench.log.roll()
    bench.put("a=last")
    bench.log.roll()
    bench.put("b=1")
    bench.compact()
    assert bench.left() == [(10, "a=last"), (11, "b=1")]
    bench.put("a=now")
    bench.log.roll()
    bench.put("b=2")
    bench.compact(end_offset=11)
    bench.compact()
    assert bench.left() == [(11, "b=1"), (12, "a=now"), (13, "b=2")]
    assert bench.log.start_offset == 0


def test_the_active_segment_stays_as_it_is(bench: Bench) -> None:
    bench.put("a=1")
    bench.log.roll()
    bench.put("a=2 a=3")
    bench.compact()
    assert bench.left() == [(0, "a=1"), (1, "a=2"), (2, "a=3")]
    bench.log.roll()
    bench.compact()
    assert bench.left() == [(2, "a=3")]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_codec_and_what_it_says_of_its_producer(bench: Bench, codec: int) -> None:
    pairs = [(b"k%d" % n, b"value %d" % n) for n in range(10)]
    add_records(bench.log, pairs, codec=codec, producer=(7, 2, 40))
    bench.put("k3=new k4=new")
    bench.log.roll()
    bench.compact()
    header = headers(read_all(bench.log))[0]
    assert (header.codec, header.record_count) == (codec, 8)
    assert (header.base_offset, header.last_offset, header.last_sequence) == (0, 9, 49)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert [offset for offset, _ in bench.left()] == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]
    assert header.max_timestamp == 1009


def test_a_batch_that_loses_nothing_keeps_its_bytes(bench: Bench) -> None:
    bench.put("a=1")
    bench.put("b=1 c=1")
    bench.log.roll()
    before = read_all(bench.log)
    sealed = bench.log.sealed_segments(100)
    bench.compact()
    assert read_all(bench.log) == before
    assert bench.log.sealed_segments(100) == sealed  # nothing changed, so nothing was swapped
    assert bench.names(".cleaned") == []


def test_a_deleted_key_can_be_seen_for_a_while(bench: Bench) -> None:
    bench.put("a=1 b=1", timestamp=500)
    bench.put("a= c=1", timestamp=600)
    bench.log.roll()
    bench.compact(now_ms=10_000, delete_retention_ms=1000)
    assert bench.left() == [(1, "b=1"), (2, "a="), (3, "c=1")]
    assert [record.timestamp for record in messages(bench.log)] == [501, 600, 601]
    horizons = [header.delete_horizon_ms for header in headers(read_all(bench.log))]
    assert horizons == [None, 11_000]

    bench.compact(now_ms=10_999)
    assert len(bench.left()) == 3
    bench.compact(now_ms=11_000, forgets_deletions=False)  # a replica is away that has not seen it
    assert len(bench.left()) == 3
    bench.compact(now_ms=11_000)
    assert bench.left() == [(1, "b=1"), (3, "c=1")]
    assert [record.timestamp for record in messages(bench.log)] == [501, 601]


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 10_000])
def test_a_deleted_key_can_be_seen_for_as_long_as_can_be_said(bench: Bench, retention_ms: int) -> None:
    bench.put("a=1 b=1", timestamp=500)
    bench.put("a= c=1", timestamp=0)
    add_marker(bench.log, 6, commit=True)
    bench.log.roll()
    for now_ms in (10_000, 2**62):
        bench.compact(now_ms=now_ms, delete_retention_ms=retention_ms)
        assert bench.left() == [(1, "b=1"), (2, "a="), (3, "c=1")]
        assert [record.timestamp for record in messages(bench.log)] == [501, 0, 1]
        found = headers(read_all(bench.log))
        assert [header.delete_horizon_ms for header in found] == [None, 2**63 - 1, 2**63 - 1]


def test_a_batch_without_messages_goes_unless_something_needs_it(bench: Bench) -> None:
    add_records(bench.log, [(b"a", b"1")], producer=(1, 0, 0))
    add_records(bench.log, [(b"a", b"2")], producer=(1, 0, 1), codec=Codec.ZSTD)
    add_records(bench.log, [(b"a", b"3")], producer=(2, 0, 0))
    bench.put("a=4")
    bench.log.roll()
    bench.put("a=5")
    bench.log.roll()
    bench.compact(last_batches=LastBatches(offsets=frozenset([1])))  # type: ignore[arg-type]
    found = headers(read_all(bench.log))
    assert [(h.base_offset, h.record_count, h.producer_id, h.last_sequence) for h in found] == [
        (1, 0, 1, 1),  # the last of producer 1
        (4, 1, -1, -1),
    ]
    assert found[0].codec == Codec.NONE
    assert bench.left() == [(4, "a=5")]


def test_batches_that_may_be_sent_again_stay_recognisable_by_the_log_alone(bench: Bench) -> None:
    for number in range(7):
        add_records(bench.log, [(b"a", b"%d" % number)], producer=(1, 0, number))
    bench.log.roll()
    bench.put("a=7")
    bench.log.roll()
    known = reload_producers(bench.log)
    bench.compact(last_batches=last_batches(known))  # type: ignore[arg-type]
    assert bench.left() == [(7, "a=7")]
    state, before = reload_producers(bench.log).find(1), known.find(1)
    assert state is not None and before is not None
    assert [each.base_sequence for each in state.batches] == [2, 3, 4, 5, 6]
    assert [each.last_offset for each in state.batches] == [each.last_offset for each in before.batches]


def test_a_segment_goes_on_ending_where_the_next_begins(bench: Bench) -> None:
    for number in range(8):
        bench.put(f"a={number} b={number}")
        if number % 4 == 3:
            bench.log.roll()
    big = "c=" + "x" * 900
    bench.put(big)
    bench.log.roll()
    bench.put("a=8 b=8")
    bench.log.roll()
    bench.compact()
    ends = [
        headers(read_all_of(bench, info.base_offset))[-1].next_offset for info in bench.log.segments()[:-1]
    ]
    assert ends == [info.next_offset for info in bench.log.segments()[:-1]]
    assert bench.left() == [(16, big), (17, "a=8"), (18, "b=8")]
    # Without any recovery point, nothing is taken for lost.
    bench.log.files.close()
    bench.log = bench.open(recovery_point=0)
    assert bench.log.report.truncated_bytes == 0
    assert bench.left() == [(16, big), (17, "a=8"), (18, "b=8")]


def read_all_of(bench: Bench, base_offset: int) -> bytes:
    return bytes_of(bench.log.read(base_offset, 1 << 20).range)


def test_small_segments_grow_together(bench: Bench) -> None:
    for number in range(60):
        bench.put(f"k{number % 3}={number}")
    bench.log.roll()
    segments = len(bench.log.segments())
    bench.compact()
    bench.compact()
    assert len(bench.log.segments()) < segments
    assert [key_value for _, key_value in bench.left()] == ["k0=57", "k1=58", "k2=59"]
    assert bench.log.segments()[0].base_offset == 0


def test_a_log_with_more_keys_than_memory_takes_several_passes(bench: Bench) -> None:
    for number in range(40):
        bench.put(f"k{number % 20}={number} m=x")
    bench.log.roll()
    passes = 0
    while bench.first_dirty < bench.log.end_offset:
        before = bench.first_dirty
        bench.compact(buffer_bytes=192 * 5)
        assert bench.first_dirty > before
        passes += 1
    assert passes > 3
    assert [key_value for _, key_value in bench.left()] == [f"k{n % 20}={n}" for n in range(20, 40)] + ["m=x"]


def test_every_offset_can_be_asked_for(bench: Bench) -> None:
    for number in range(50):
        bench.put(f"k{number % 7}={number} k{number % 5}=x")
    bench.log.roll()
    bench.put("k1=last")
    bench.compact()
    everything = bench.left()
    for offset in range(bench.log.end_offset + 1):
        found = [record.offset for record in messages(bench.log, offset)]
        assert found == [at for at, _ in everything if at >= offset]


def test_what_lies_before_the_start_of_the_log_goes(bench: Bench) -> None:
    bench.put("a=1 b=1 c=1")
    bench.log.roll()
    bench.put("d=1")
    bench.log.advance_start(2)
    bench.compact()
    assert bench.left() == [(2, "c=1"), (3, "d=1")]
    assert headers(read_all_of(bench, 2))[0].record_count == 1


def test_offsets_by_time_are_found_in_what_is_left(bench: Bench) -> None:
    bench.put("a=1", timestamp=5000)
    bench.put("b=1", timestamp=6000)
    bench.log.roll()
    bench.put("a=2", timestamp=5500)
    bench.log.roll()
    bench.put("b=2", timestamp=5400)
    bench.log.roll()
    bench.compact()
    assert find_timestamp(bench.log, 5000) == (5500, 2)
    assert find_timestamp(bench.log, 5501) is None
    assert largest_timestamp(bench.log) == (5500, 2)


def test_a_reader_in_the_middle_of_a_segment_is_not_cut_off(bench: Bench) -> None:
    bench.put("a=1")
    bench.put("a=2")
    bench.log.roll()
    held = bench.log.read(0, 1000)
    before = bytes_of(held.range)
    bench.compact()
    assert bytes_of(held.range) == before
    assert bench.names(".deleted")
    assert bench.log.reap() == []
    bench.clock.advance(50)
    for path in bench.log.reap():
        bench.disk.remove(path)
    assert bench.names(".deleted") == []
    assert bench.left() == [(1, "a=2")]


def test_damage_is_not_rewritten(bench: Bench) -> None:
    bench.put("a=1 b=1")
    bench.put("a=2")
    bench.log.roll()
    path = bench.path / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptBatch):
        bench.compact()
    assert bench.names(".cleaned") == []
    assert path.read_bytes() == data


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path / "t-0"), CONFIG)
    for number in range(30):
        add_records(log, [(b"k%d" % (number % 2), b"x" * 40)])
    log.roll()
    before = read_all(log)
    task = task_for(log)
    disk.free = 0
    with pytest.raises(OSError, match="No space"):
        compact(log, disk, task)
    disk.repair()
    assert read_all(log) == before
    assert not [path for path in (tmp_path / "t-0").iterdir() if path.name.endswith(".cleaned")]
    compact(log, disk, task_for(log))
    assert len(messages(log)) == 2


def test_a_swap_gives_way_when_its_segments_are_gone(bench: Bench) -> None:
    bench.put("a=1")
    bench.put("a=2")
    bench.log.roll()
    bench.put("a=3")
    task = task_for(bench.log)
    assert task is not None
    cleaner = Cleaner(bench.disk, bench.log.directory, task)
    (group,) = cleaner.read_keys([])
    rewritten = cleaner.rewrite(group)
    assert rewritten is not None
    new = rewritten.new
    bench.log.files.truncate_to(1)
    assert not bench.log.begin_swap(group, new, generation=bench.log.generation)
    assert bench.names(".cleaned") == []
    assert bench.left() == [(0, "a=1")]


@pytest.mark.parametrize("adopted", [False, True])
def test_a_swap_is_settled_before_the_log_is_cut(bench: Bench, adopted: bool) -> None:
    bench.put("a=1")
    bench.put("a=2")
    bench.log.roll()
    bench.put("b=3")
    bench.log.roll()
    bench.put("b=4")
    task = task_for(bench.log, end_offset=2)
    assert task is not None
    cleaner = Cleaner(bench.disk, bench.log.directory, task)
    (group,) = cleaner.read_keys([])
    rewritten = cleaner.rewrite(group)
    assert rewritten is not None
    new = rewritten.new
    assert bench.log.begin_swap(group, new, generation=bench.log.generation)
    if adopted:
        assert bench.log.adopt_swap()
    bench.log.files.truncate_to(3)
    assert bench.names(".swap") == []
    assert not bench.log.adopt_swap()
    bench.log.end_swap()
    expected = [(1, "a=2"), (2, "b=3")] if adopted else [(0, "a=1"), (1, "a=2"), (2, "b=3")]
    assert bench.left() == expected
    bench.log = bench.open()
    assert bench.left() == expected


def test_a_swap_gives_way_when_the_log_was_cut_behind_it(tmp_path: Path) -> None:
    """What takes the place of a message may be gone, and the message must not go with it."""
    log = open_log(RealDisk(), str(tmp_path / "t-0"), CONFIG)
    for value in (b"1", b"2"):
        add_records(log, [(b"a", value), (b"b" + value, b"x" * 600)])
        log.roll()
    add_records(log, [(b"c", b"3")])
    task = task_for(log)
    assert task is not None
    cleaner, generation = Cleaner(RealDisk(), log.directory, task), log.generation
    first, _ = cleaner.read_keys([])
    rewritten = cleaner.rewrite(first)
    assert rewritten is not None
    new = rewritten.new
    log.files.truncate_to(2)
    assert not log.begin_swap(first, new, generation=generation)
    assert (b"a", b"1") in [(record.key, record.value) for record in messages(log)]


class Refusing(FaultyDisk):
    """A disk that refuses the nth step of a swap, as often as it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.refused: int | None = None

    def check(self, operation: str, path: str) -> None:
        if operation in ("rename", "fsync_dir") and not path.endswith(".cleaned"):
            if self.steps == self.refused:
                raise OSError(errno.EIO, "refused", path)
            self.steps += 1
        super().check(operation, path)


def steps_of_a_swap() -> int:
    """Two syncs; and renames of the four files of each of two old segments, and of the new one."""
    return 2 + 3 * 4


@pytest.mark.parametrize("refused", range(steps_of_a_swap()))
@pytest.mark.parametrize("how", ["goes on", "reopened", "cut", "reaped"])
def test_a_swap_goes_on_where_the_disk_refused_it(tmp_path: Path, refused: int, how: str) -> None:
    disk, clock = Refusing(), ManualClock()

    def opened() -> Log:
        return open_log(disk, str(tmp_path / "t-0"), CONFIG, clock=clock)

    log = opened()
    for value in (b"1", b"2"):
        add_records(log, [(b"a", value), (b"b", value)])
        log.roll()
    add_records(log, [(b"a", b"3")])
    log.write_pending()
    log.files.datasync()
    task = task_for(log)
    assert task is not None
    cleaner = Cleaner(disk, log.directory, task)
    (group,) = cleaner.read_keys([])
    rewritten = cleaner.rewrite(group)
    assert rewritten is not None
    new = rewritten.new
    assert log.begin_swap(group, new, generation=log.generation)
    disk.steps, disk.refused = 0, refused

    def end_swap() -> None:
        log.files.sync_names()
        assert log.adopt_swap()
        log.files.sync_names()
        log.end_swap()

    with pytest.raises(OSError, match="refused"):
        end_swap()
    assert log.swap_pending
    assert table(log) == {b"a": b"3", b"b": b"2"}
    with pytest.raises(OSError, match="refused"):
        end_swap()
    if how == "reaped":
        clock.advance(1000)
        for path in log.reap():
            disk.remove(path)
    disk.refused = None
    if how == "reopened":
        log = opened()
    elif how == "cut":
        log.files.truncate_to(4)
        add_records(log, [(b"a", b"3")])
        log.write_pending()
    else:
        end_swap()
    assert not log.swap_pending
    assert table(log) == {b"a": b"3", b"b": b"2"}
    log.roll()
    compact(log, disk, task_for(log))
    clock.advance(1000)
    for path in log.reap():
        disk.remove(path)
    log.files.close()
    assert not [name for name in disk.list(log.directory) if name.endswith((".swap", ".cleaned", ".deleted"))]
    log = opened()
    assert [(record.offset, record.key) for record in messages(log)] == [(3, b"b"), (4, b"a")]


def test_a_deleted_segment_in_mid_swap_stays_deleted(bench: Bench) -> None:
    bench.put("a=1")
    bench.put("a=2")
    bench.log.roll()
    bench.put("b=3")
    task = task_for(bench.log)
    assert task is not None
    cleaner = Cleaner(bench.disk, bench.log.directory, task)
    (group,) = cleaner.read_keys([])
    rewritten = cleaner.rewrite(group)
    assert rewritten is not None
    new = rewritten.new
    assert bench.log.begin_swap(group, new, generation=bench.log.generation)
    assert bench.log.adopt_swap()
    bench.log.delete_front(1)
    bench.log.end_swap()
    assert bench.left() == [(2, "b=3")]
    bench.clock.advance(50)
    assert len(bench.log.reap()) == 8
    bench.log.files.close()
    assert [name for name in bench.names(".log") if name.startswith("00000000000000000000")] == []


# --- transactions ------------------------------------------------------------------------------------------


def transactional(bench: Bench, pair: str, producer_id: int, sequence: int = 0) -> int:
    key, value = pair.split("=")
    return add_records(
        bench.log,
        [(key.encode(), value.encode())],
        producer=(producer_id, 0, sequence),
        attributes=TRANSACTIONAL,
    )


def abort(bench: Bench, producer_id: int, first_offset: int) -> None:
    last = add_marker(bench.log, producer_id, commit=False)
    bench.log.append_aborted(AbortedTxn(producer_id, first_offset, last, last + 1))


def test_aborted_messages_go_and_do_not_hide_older_ones(bench: Bench) -> None:
    bench.put("a=1 b=1")
    first = transactional(bench, "a=2", 5)
    transactional(bench, "b=2", 6)
    abort(bench, 5, first)
    add_marker(bench.log, 6, commit=True)
    transactional(bench, "c=1", 5, 1)
    add_marker(bench.log, 5, commit=True)
    bench.log.roll()
    bench.compact()
    assert bench.left() == [(0, "a=1"), (3, "b=2"), (6, "c=1")]


def test_an_abort_behind_the_cleaned_segments_counts(bench: Bench) -> None:
    bench.put("a=1")
    first = transactional(bench, "a=2", 5)
    bench.log.roll()
    abort(bench, 5, first)
    bench.log.write_pending()
    bench.compact()
    assert bench.left() == [(0, "a=1")]
    assert len(bench.log.aborted_transactions(0, 100)) == 1


def test_markers_outlive_their_transactions_for_a_while(bench: Bench) -> None:
    first = transactional(bench, "a=1", 5)
    abort(bench, 5, first)
    transactional(bench, "b=1", 6)
    add_marker(bench.log, 6, commit=True)
    bench.put("b=2")
    bench.log.roll()

    def markers() -> list[int]:
        return [header.base_offset for header in headers(read_all(bench.log)) if header.is_control]

    bench.compact(now_ms=1000, delete_retention_ms=500)
    assert bench.left() == [(4, "b=2")]
    assert markers() == [1, 3]
    assert [entry.producer_id for entry in bench.log.aborted_transactions(0, 100)] == [5]
    bench.compact(now_ms=2000, delete_retention_ms=500)  # nothing of them is left: the clock begins
    assert markers() == [1, 3]
    assert bench.log.aborted_transactions(0, 100) == []
    bench.compact(now_ms=2499)
    assert markers() == [1, 3]
    bench.compact(now_ms=2500)
    assert markers() == []
    assert bench.left() == [(4, "b=2")]


def test_the_last_marker_of_a_producer_stays(bench: Bench) -> None:
    for _ in range(3):
        add_marker(bench.log, 5, commit=True)
    bench.put("a=1")
    bench.log.roll()
    needed = LastBatches(epochs=frozenset([(5, 0)]))
    bench.compact(last_batches=needed, delete_retention_ms=0)  # type: ignore[arg-type]
    bench.first_dirty = 0
    bench.compact(last_batches=needed, now_ms=1)  # type: ignore[arg-type]
    assert [header.base_offset for header in headers(read_all(bench.log)) if header.is_control] == [2]


def test_a_task_stops_when_its_pace_says_so(bench: Bench) -> None:
    bench.put("a=1")
    bench.put("a=2")
    bench.log.roll()
    task = task_for(bench.log)
    assert task is not None

    def pace(_: int) -> None:
        raise StorageError("stop")

    with pytest.raises(StorageError, match="stop"):
        Cleaner(bench.disk, bench.log.directory, task, pace).read_keys([])
    assert table(bench.log) == {b"a": b"2"}
    assert read_header(read_all(bench.log)).base_offset == 0


def test_a_batch_that_consumers_can_read_and_the_broker_may_not_unpack_ends_the_cleaning(
    tmp_path: Path,
) -> None:
    """If it just stayed, a deletion behind it would go before the value that it deletes."""
    bench = Bench(tmp_path)
    add_records(bench.log, [(b"a", bytes(5_000))], codec=Codec.ZSTD)
    bench.put("b=1")
    bench.put("a=")
    bench.log.roll()
    before = bench.left()
    bench.log.configure(replace(CONFIG, decompress_max_bytes=4_000))
    for _ in range(2):
        with pytest.raises(OutputTooLarge):
            bench.compact(now_ms=1, delete_retention_ms=0)
    assert bench.left() == before
    bench.log.configure(CONFIG)
    for now_ms in (2, 3):
        bench.compact(now_ms=now_ms, delete_retention_ms=0)
    assert [text for _, text in bench.left()] == ["b=1"]


def test_what_stands_for_gaps_in_a_view_goes_but_for_the_last_of_a_segment(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put("a=1")
    for number in range(1, 60):
        start = bench.log.end_offset
        batch = memoryview(gap_batch(start, start + 10, epoch=3, timestamp=number))
        bench.log.append(batch, read_header(batch))
    bench.put("b=2")
    bench.log.roll()
    end = bench.log.end_offset
    bench.compact()
    bench.log.roll()
    bench.compact()
    assert [text for _, text in bench.left()] == ["a=1", "b=2"]
    gaps = [header for header in headers(read_all(bench.log)) if header.is_control]
    assert len(gaps) <= len(bench.log.segments()), "they stay for ever"
    assert bench.log.end_offset == end
    # The end of the log says how far the source was read, and in which of its epochs.
    batch = memoryview(gap_batch(end, end + 10, epoch=4, timestamp=99))
    bench.log.append(batch, read_header(batch))
    bench.log.write_pending()
    bench.log.roll()
    bench.compact()
    assert source_epoch(headers(read_all(bench.log))[-1]) == 4
    assert bench.log.end_offset == end + 10
