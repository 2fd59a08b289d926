"""Directories that outlive topics: whole files or none, what counts in an archive, who may touch it."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

import pytest

from forebay.spark.pipelines.archiving.hour_files import write_hours
from forebay.spark.pipelines.archiving.layout import (
    POSITION,
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


def test_the_rows_of_a_task_go_to_the_files_of_their_hours(lake: Lake, tmp_path: Path) -> None:
    messages = [Message(at, n, SIX_US + 25 * MINUTE_US * n) for at in (0, 1) for n in range(5)]
    told = [
        row
        for batch in write_hours(lake, "x.parquet", iter([record_batch(messages)]))
        for row in batch.to_pylist()
    ]
    assert [(row["path"][-18:], row["partition"], row["rows"], row["last_offset"]) for row in told] == [
        ("/hour=06/x.parquet", 0, 3, 2),
        ("/hour=06/x.parquet", 1, 3, 2),
        ("/hour=07/x.parquet", 0, 2, 4),
        ("/hour=07/x.parquet", 1, 2, 4),
    ]
    assert {row["path"]: row["bytes"] for row in told} == {file.path: file.size for file in lake.list()}
    assert seen_by_anyone(tmp_path / "lake") == sorted((one.partition, one.offset) for one in messages)


def test_a_task_that_runs_twice_replaces_its_files(lake: Lake, tmp_path: Path) -> None:
    messages = [Message(0, n, SIX_US) for n in range(5)]
    for _ in range(2):
        list(write_hours(lake, "x.parquet", iter([record_batch(messages)])))
    assert seen_by_anyone(tmp_path / "lake") == [(0, n) for n in range(5)]


def test_an_archive_made_by_hand_is_one(tmp_path: Path) -> None:
    lake = make_archive(tmp_path, [Message(0, 0, SIX_US)], [Message(2, 7, SIX_US)])
    position = require_position(lake)
    assert (position.partitions, position.next_offsets) == (3, {"0": 1, "2": 8})
    assert len(data_files(lake.list(), position)) == 2
