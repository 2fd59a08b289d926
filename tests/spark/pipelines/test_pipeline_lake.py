"""Directories that outlive topics: whole files or none, what counts in an archive, who may touch it."""

from __future__ import annotations

import contextlib
import os
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from forebay.spark.pipelines.archiving import hour_files
from forebay.spark.pipelines.archiving.hour_files import Written, publish, write_hours
from forebay.spark.pipelines.archiving.index import ALWAYS, Slice, TimeRange, read_index
from forebay.spark.pipelines.archiving.layout import (
    POSITION,
    UNKNOWN_HOUR,
    Position,
    batch_file,
    data_files,
    hour_folder,
    hour_of,
    leftovers,
    read_position,
    require_position,
)
from forebay.spark.pipelines.lake import File, Lake, LakeError
from support.spark.archives import (
    MINUTE_US,
    QUERY,
    SIX_US,
    Message,
    make_archive,
    record_batch,
    seen_by_anyone,
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def test_a_file_appears_when_it_is_whole(lake: Lake) -> None:
    with lake.create("a/b.txt") as stream:
        stream.write(b"half")
        assert not lake.exists("a/b.txt")
        stream.write(b" and half")
    assert lake.read("a/b.txt") == b"half and half"


def test_a_file_that_fails_leaves_nothing(lake: Lake) -> None:
    lake.write("a.txt", b"old")
    with contextlib.suppress(RuntimeError), lake.create("a.txt") as stream:
        stream.write(b"new")
        raise RuntimeError
    assert lake.read("a.txt") == b"old"
    assert not any(Path(lake.path("_forebay/scratch")).iterdir())


def test_what_is_ours_and_what_is_hidden_is_not_listed(lake: Lake) -> None:
    for path in ("x/1.parquet", "_forebay/2.json", "x/.3.crc", "x/_4"):
        lake.write(path, b"-")
    assert lake.list() == [File("x/1.parquet", 1)]
    assert lake.list("_forebay") == [File("_forebay/2.json", 1)]


def test_scratch_of_killed_writers_goes_after_a_day(lake: Lake) -> None:
    lake.write("_forebay/scratch/old", b"")
    lake.write("_forebay/scratch/new", b"")
    os.utime(lake.path("_forebay/scratch/old"), (1, 1))
    lake.clear_scratch()
    assert [path.name for path in Path(lake.path("_forebay/scratch")).iterdir()] == ["new"]


def test_readers_share_a_lock_and_keep_a_writer_out(lake: Lake) -> None:
    readers = [lake.lock("compaction", shared=True) for _ in range(2)]
    with pytest.raises(LakeError, match="in use by another process"):
        lake.lock("compaction")
    for reader in readers:
        reader.release()
    lake.lock("compaction").release()


def test_a_uri_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="nowhere://x cannot be opened"):
        Lake("nowhere://x")
    assert Lake(tmp_path.as_uri()).is_local


def test_a_position_is_read_as_it_was_written(lake: Lake) -> None:
    position = Position(topic="orders", partitions=2).after("q", 3, {1: 41}, 4)
    lake.write(POSITION, position.to_json())
    assert read_position(lake) == position
    assert position.next_offsets == {"1": 42}
    assert position.partitions == 4


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"version": 99}', b'{"version": 1, "x": 2}'])
def test_a_position_that_cannot_be_understood(lake: Lake, content: bytes) -> None:
    lake.write(POSITION, content)
    with pytest.raises(LakeError, match=r"position\.json cannot be understood"):
        read_position(lake)


def test_a_directory_that_is_no_archive(lake: Lake) -> None:
    with pytest.raises(LakeError, match="is no archive: `forebay pipeline archive TOPIC --to"):
        require_position(lake)


def test_only_files_of_batches_that_count_are_data() -> None:
    folder = hour_folder(SIX_US)
    assert folder == "date=2025-11-15/hour=06"
    other = str(uuid.UUID(int=2))
    names = [
        batch_file(QUERY, 0, 0),
        batch_file(QUERY, 1, 0),
        batch_file(other, 0, 0),
        "compacted-0123456789abcdef.parquet",
    ]
    files = [File(f"{folder}/{name}", 1) for name in [*names, "stranger.parquet"]]
    position = Position(topic="orders", partitions=1, batches={QUERY: 0})
    assert data_files(files, position) == [files[0], files[3]]
    assert leftovers(files, position) == [files[1], files[2]]


def test_times_before_1970_have_an_hour_too() -> None:
    folder = hour_folder(-1)
    assert folder == "date=1969-12-31/hour=23"
    moment = hour_of(f"{folder}/x.parquet")
    assert moment is not None
    assert moment.timestamp() == -3600


def written(lake: Lake, name: str, messages: list[Message]) -> list[Written]:
    """What a task reports that has these messages."""
    told = write_hours(lake, name, iter([record_batch(messages)]))
    return [Written(**row) for batch in told for row in batch.to_pylist()]


def test_the_rows_of_a_task_go_to_the_files_of_their_hours(lake: Lake, tmp_path: Path) -> None:
    messages = [Message(at, n, SIX_US + 25 * MINUTE_US * n) for at in (0, 1) for n in range(5)]
    told = written(lake, "x.parquet", messages)
    assert [(one.path[-18:], one.partition, one.rows, one.last_offset) for one in told] == [
        ("/hour=06/x.parquet", 0, 3, 2),
        ("/hour=06/x.parquet", 1, 3, 2),
        ("/hour=07/x.parquet", 0, 2, 4),
        ("/hour=07/x.parquet", 1, 2, 4),
    ]
    assert lake.list() == [], "seen before the driver has heard of it"
    publish(lake, told)
    assert {one.path: one.bytes for one in told} == {file.path: file.size for file in lake.list()}
    assert seen_by_anyone(tmp_path / "lake") == sorted((one.partition, one.offset) for one in messages)


def test_a_task_that_runs_twice_is_seen_once(lake: Lake, tmp_path: Path) -> None:
    messages = [Message(0, n, SIX_US) for n in range(5)]
    for _ in range(2):
        publish(lake, written(lake, "x.parquet", messages))
    written(lake, "x.parquet", messages)
    assert seen_by_anyone(tmp_path / "lake") == [(0, n) for n in range(5)]


def test_a_large_hour_has_several_files(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hour_files, "FILE_BYTES", 1)
    messages = [Message(0, n, SIX_US) for n in range(3)]
    name = batch_file(QUERY, 0, 0)
    batches = (record_batch([message]) for message in messages)
    told = [row for batch in write_hours(lake, name, batches) for row in batch.to_pylist()]
    publish(lake, [Written(**row) for row in told])
    assert seen_by_anyone(tmp_path / "lake") == [(0, n) for n in range(3)]
    position = Position(topic="orders", partitions=1, batches={QUERY: 0})
    assert len(data_files(lake.list(), position)) == 3
    assert len(leftovers(lake.list(), Position(topic="orders", partitions=1))) == 3


@pytest.mark.parametrize(
    ("year", "folder"),
    [
        (1, "date=0001-01-01/hour=00"),
        (999, "date=0999-01-01/hour=00"),
        (9999, "date=9999-01-01/hour=00"),
    ],
)
def test_a_year_has_four_digits(lake: Lake, year: int, folder: str) -> None:
    start = datetime(year, 1, 1, tzinfo=UTC)
    start_us = (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert hour_folder(start_us) == folder
    assert hour_of(f"{folder}/x.parquet") == start
    publish(lake, written(lake, batch_file(QUERY, 0, 0), [Message(0, 0, start_us + 1)]))
    position = Position(topic="orders", partitions=1, batches={QUERY: 0})
    assert leftovers(lake.list(), position) == []
    assert [file.path.rpartition("/")[0] for file in data_files(lake.list(), position)] == [folder]
    (span,) = read_index(lake, [file.path for file in lake.list()], ALWAYS)
    assert span.times_us == (start_us + 1, start_us + 1)


def test_files_of_earlier_versions_with_a_short_year_count() -> None:
    file = File(f"date=1-01-01/hour=00/{batch_file(QUERY, 0, 0)}", 1)
    position = Position(topic="orders", partitions=1, batches={QUERY: 0})
    assert (data_files([file], position), leftovers([file], position)) == ([file], [])
    assert hour_of(file.path) == datetime(1, 1, 1, tzinfo=UTC)


def test_hours_that_no_date_can_show_are_in_one_folder(tmp_path: Path) -> None:
    """Before the year 1, in 1970, and two hours after 9999: no file replaces another."""
    year_us = 365 * 24 * 3600 * 1_000_000
    times_us = [-3000 * year_us, 0, 9000 * year_us, 9001 * year_us]
    messages = [Message(0, n, time_us) for n, time_us in enumerate(times_us)]
    lake = make_archive(tmp_path, messages)
    assert sorted({file.path.rpartition("/")[0] for file in lake.list()}) == [
        "date=1970-01-01/hour=00",
        UNKNOWN_HOUR,
    ]
    position = require_position(lake)
    assert leftovers(lake.list(), position) == []
    assert seen_by_anyone(tmp_path) == [(0, n) for n in range(4)]
    paths = [file.path for file in data_files(lake.list(), position)]
    spans = read_index(lake, paths, TimeRange(from_us=1))
    assert sorted(span.offsets[0] for span in spans) == [0, 2, 3], "not the one of 1970"
    found = Slice(
        location=lake.location,
        partition=0,
        start=0,
        end=4,
        times=TimeRange(from_us=1),
        spans=tuple(spans),
    )
    assert found.timeline()[1].tolist() == times_us[2:]
    read_as_null = ds.dataset(tmp_path, format="parquet", partitioning="hive").to_table(
        columns=["date", "hour"]
    )
    assert sorted(read_as_null.column("hour").to_pylist(), key=str) == [0, None, None, None]


def test_an_archive_made_by_hand_is_one(tmp_path: Path) -> None:
    lake = make_archive(tmp_path, [Message(0, 0, SIX_US)], [Message(2, 7, SIX_US)])
    position = require_position(lake)
    assert (position.partitions, position.next_offsets) == (3, {"0": 1, "2": 8})
    assert len(data_files(lake.list(), position)) == 2


def test_a_new_name_outlasts_a_power_cut(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, its folder, and the folders above it that may be new."""
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda number: synced.append(str(Path(f"/proc/self/fd/{number}").readlink()))
    )
    lake.write("a/b/c.txt", b"-")
    root = lake.location
    assert synced[0].startswith(f"{root}/_forebay/scratch/")
    assert synced[1:] == [f"{root}/a/b", f"{root}/a", root]


def test_a_directory_is_removed_with_what_was_left_of_an_earlier_one(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    lake.remove()
    for name in ("lake", "lake.removed"):
        (tmp_path / name / "a").mkdir(parents=True)
        (tmp_path / name / "a" / "b").touch()
    lake.remove()
    assert list(tmp_path.iterdir()) == []
