"""What a replay releases, when, and in which order; without Spark."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from forebay.spark.pipelines.archiving.compact import archive_files, conclude, plan, stage
from forebay.spark.pipelines.archiving.index import ALWAYS, read_index
from forebay.spark.pipelines.archiving.layout import data_files, require_position
from forebay.spark.pipelines.archiving.source import ArchiveReader, AtRate, AtSpeed, Unhurried
from support.spark.archives import MINUTE_US, SIX_US, Message, add_batch, make_archive


class HandClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def messages(partition: int, first: int, count: int, step_us: int = MINUTE_US) -> list[Message]:
    return [Message(partition, n, SIX_US + n * step_us) for n in range(first, first + count)]


def drained(
    reader: ArchiveReader, start: dict[str, int] | None = None
) -> tuple[list[list[tuple[int, int]]], dict[str, int]]:
    """Partition and offset of the rows of each batch, as Spark would ask for them; and the end."""
    batches = []
    start = reader.initialOffset() if start is None else start
    while (end := reader.latestOffset(start)) != start:
        rows: list[tuple[int, int]] = []
        for partition in reader.partitions(start, end):
            for batch in reader.read(partition):
                rows += zip(
                    batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
                )
        batches.append(rows)
        start = end
    return batches, start


def test_each_partition_comes_in_the_order_of_its_offsets(tmp_path: Path) -> None:
    """Also where a late message lies in the files of an earlier hour."""
    late = Message(0, 50, SIX_US)
    make_archive(tmp_path, [*messages(0, 0, 50), late, *messages(1, 0, 10)], messages(0, 51, 80))
    batches, end = drained(ArchiveReader({"path": str(tmp_path), "batch_records": "25"}))
    rows = [row for batch in batches for row in batch]
    assert [offset for partition, offset in rows if partition == 0] == list(range(131))
    assert [offset for partition, offset in rows if partition == 1] == list(range(10))
    assert max(map(len, batches)) == 25
    assert end["0"] == 131


def test_a_merged_archive_is_replayed_as_before(tmp_path: Path) -> None:
    lake = make_archive(
        tmp_path, [*messages(0, 0, 50), *messages(1, 0, 30)], messages(0, 50, 30), messages(1, 30, 9)
    )
    for merge in plan(data_files(lake.list(), require_position(lake)), 1 << 20, 4e9):
        conclude(lake, stage(lake, merge))
    batches, _ = drained(ArchiveReader({"path": str(tmp_path)}))
    assert sorted(batches[0]) == [(0, n) for n in range(80)] + [(1, n) for n in range(39)]


def test_a_merged_archive_that_went_on_while_the_replay_was_stopped(tmp_path: Path) -> None:
    """Its row groups hold several partitions: what one of them has does not say where the others end."""
    lake = make_archive(
        tmp_path, [*messages(0, 0, 90), *messages(2, 60, 40)], [*messages(0, 90, 10), *messages(2, 100, 400)]
    )
    for merge in plan(data_files(lake.list(), require_position(lake)), 1 << 20, 4e9):
        conclude(lake, stage(lake, merge))
    batches, end = drained(ArchiveReader({"path": str(tmp_path)}))
    assert sum(map(len, batches)) == 540
    assert end == {"0": 100, "1": 0, "2": 500}, "further than the archive"
    add_batch(lake, [*messages(0, 100, 400), *messages(1, 0, 70)])
    batches, end = drained(ArchiveReader({"path": str(tmp_path)}), end)
    assert sorted(row for batch in batches for row in batch) == [
        *((0, n) for n in range(100, 500)),
        *((1, n) for n in range(70)),
    ]


def test_stretches_without_messages_are_leapt_over(tmp_path: Path) -> None:
    make_archive(tmp_path, messages(0, 5, 3), [Message(0, 10**9, SIX_US + MINUTE_US)])
    batches, end = drained(ArchiveReader({"path": str(tmp_path), "batch_records": "3"}))
    assert batches == [[(0, 5), (0, 6), (0, 7)], [(0, 10**9)]]
    assert end == {"0": 10**9 + 1}


def test_a_batch_is_bounded_by_bytes_and_goes_on_with_a_message_at_least(tmp_path: Path) -> None:
    lake = make_archive(tmp_path, [*messages(0, 0, 100), *messages(1, 0, 100)])
    stored = sum(span.bytes for span in read_index(lake, archive_files(lake, require_position(lake)), ALWAYS))
    for bytes_max, rows_max in ((stored // 4, 50), (1, 2)):
        reader = ArchiveReader({"path": str(tmp_path), "batch_bytes": str(bytes_max)})
        batches, _ = drained(reader)
        assert max(map(len, batches)) <= rows_max
        assert sorted(row for batch in batches for row in batch) == [
            (at, n) for at in (0, 1) for n in range(100)
        ]


def test_only_messages_of_the_time_that_was_asked_for(tmp_path: Path) -> None:
    make_archive(tmp_path, messages(0, 0, 200))
    bounds = {"from_us": str(SIX_US + 30 * MINUTE_US), "until_us": str(SIX_US + 90 * MINUTE_US)}
    batches, _ = drained(ArchiveReader({"path": str(tmp_path), **bounds}))
    assert [offset for batch in batches for _, offset in batch] == list(range(30, 90))


def test_an_empty_archive_ends_at_once(tmp_path: Path) -> None:
    make_archive(tmp_path)
    assert drained(ArchiveReader({"path": str(tmp_path)})) == ([], {})


def test_a_restart_goes_on_where_the_last_batch_ended(tmp_path: Path) -> None:
    make_archive(tmp_path, messages(0, 0, 10), messages(1, 0, 10))
    reader = ArchiveReader({"path": str(tmp_path), "batch_records": "8"})
    first = reader.latestOffset(reader.initialOffset())
    again = ArchiveReader({"path": str(tmp_path), "batch_records": "100"}).latestOffset(first)
    assert (first, again) == ({"0": 4, "1": 4}, {"0": 10, "1": 10})


@given(
    left=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    batch_records=st.integers(1, 40),
)
def test_batches_are_as_large_as_they_may_be_and_come_to_an_end(left: list[int], batch_records: int) -> None:
    ends = {str(at): count for at, count in enumerate(left)}
    starts = dict.fromkeys(ends, 0)
    pace = Unhurried(batch_records)
    for _ in range(sum(left) + 1):
        released = pace.release(ArchiveReader({"path": ""}), starts, ends)
        count = sum(released.values()) - sum(starts.values())
        assert count == min(batch_records, sum(ends.values()) - sum(starts.values()))
        assert all(starts[at] <= released[at] <= ends[at] for at in ends)
        starts = released
    assert starts == ends


def test_a_rate_is_never_exceeded(tmp_path: Path) -> None:
    clock = HandClock()
    reader = ArchiveReader({"path": str(tmp_path)})
    pace = AtRate(10, 1000, clock)
    starts, ends = {"0": 0, "1": 0}, {"0": 500, "1": 500}
    seconds = 0
    for _ in range(500):
        starts = pace.release(reader, starts, ends)
        clock.now_s += 0.1
        seconds += 1
    released = sum(starts.values())
    assert 10 * seconds * 0.1 * 0.8 <= released <= 10 * seconds * 0.1 + 10


def test_a_slow_rate_is_one_message_at_a_time(tmp_path: Path) -> None:
    clock = HandClock()
    pace = AtRate(0.5, 1000, clock)
    starts, ends = {"0": 0, "1": 0}, {"0": 3, "1": 3}
    reader = ArchiveReader({"path": str(tmp_path)})
    counts = []
    for _ in range(5):
        starts = pace.release(reader, starts, ends)
        counts.append(sum(starts.values()))
        clock.now_s += 1.0
    assert counts == [1, 1, 2, 2, 3]


def test_a_speed_follows_the_timestamps(tmp_path: Path) -> None:
    """A message a minute, sixty times as fast: one a second. Partition 1 begins ten minutes later."""
    make_archive(
        tmp_path, messages(0, 0, 30), [Message(1, n, SIX_US + (10 + n) * MINUTE_US) for n in range(5)]
    )
    clock = HandClock()
    reader = ArchiveReader({"path": str(tmp_path)})
    pace = AtSpeed(60, 1000, clock)
    start, ends = reader.initialOffset(), reader.reportLatestOffset()
    assert pace.release(reader, start, ends) == {"0": 1, "1": 0}
    clock.now_s += 9.5
    assert pace.release(reader, start, ends) == {"0": 10, "1": 0}
    clock.now_s += 2
    assert pace.release(reader, start, ends) == {"0": 12, "1": 2}


def test_a_message_waits_for_those_before_it(tmp_path: Path) -> None:
    """Order within a partition is worth more than the moment."""
    make_archive(
        tmp_path, [Message(0, 0, SIX_US), Message(0, 1, SIX_US + 9 * MINUTE_US), Message(0, 2, SIX_US)]
    )
    clock = HandClock()
    reader = ArchiveReader({"path": str(tmp_path)})
    pace = AtSpeed(1, 1000, clock)
    start, ends = reader.initialOffset(), reader.reportLatestOffset()
    assert pace.release(reader, start, ends) == {"0": 1}
    clock.now_s += 9 * 60
    assert pace.release(reader, start, ends) == {"0": 3}
