"""Merging small files: what is merged, and that a crash at any step loses and doubles nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from forebay.spark.pipelines.archiving.compact import (
    GRACE_S,
    Merge,
    archive_files,
    conclude,
    finish,
    finish_merges,
    notes,
    plan,
    stage,
)
from forebay.spark.pipelines.archiving.index import ALWAYS, read_index
from forebay.spark.pipelines.archiving.layout import data_files, require_position
from forebay.spark.pipelines.lake import File, Lake, LakeError
from support.spark.archives import MINUTE_US, SIX_US, Message, make_archive, seen_by_anyone

LATER_S = SIX_US / 1_000_000 + 3600 * 24
STEPS = 9
"""Changes of files that a merge of four makes."""
FOLDER = "date=2025-11-15/hour=06"


def files(*sizes: int, folder: str = FOLDER) -> list[File]:
    return [File(f"{folder}/{number:03}.parquet", size) for number, size in enumerate(sizes)]


def sizes_of(merges: list[Merge], among: list[File]) -> list[list[int]]:
    known = {file.path: file.size for file in among}
    return [[known[path] for path in merge.inputs] for merge in merges]


def test_neighbours_are_merged_up_to_the_size_that_is_wanted() -> None:
    among = files(40, 40, 40, 500, 30, 90, 20)
    assert sizes_of(plan(among, 100, LATER_S), among) == [[40, 40], [40, 30]]


def test_one_file_is_left_alone() -> None:
    assert plan(files(5), 100, LATER_S) == []
    assert plan([*files(5), *files(5, folder="date=2025-11-15/hour=07")], 100, LATER_S) == []


def test_an_hour_is_merged_once_it_has_been_closed_for_a_while() -> None:
    closed_s = SIX_US / 1_000_000 + 3600 + GRACE_S
    assert plan(files(1, 1), 100, closed_s - 1) == []
    assert len(plan(files(1, 1), 100, closed_s)) == 1


class CrashingLake(Lake):
    """Fails at its n-th change of a file."""

    def __init__(self, location: str, changes: int) -> None:
        super().__init__(location)
        self._changes = changes

    def _crash(self) -> None:
        self._changes -= 1
        if self._changes < 0:
            raise KeyboardInterrupt

    def write(self, *arguments: Any) -> None:
        self._crash()
        super().write(*arguments)

    def move(self, *arguments: Any) -> None:
        self._crash()
        super().move(*arguments)

    def delete(self, *arguments: Any) -> None:
        self._crash()
        super().delete(*arguments)


def archive_of_four(folder: Path) -> tuple[Lake, Merge, list[tuple[int, int]]]:
    batches = [[Message(n % 2, n, SIX_US + n * MINUTE_US)] for n in range(4)]
    lake = make_archive(folder, *batches)
    (merge,) = plan(data_files(lake.list(), require_position(lake)), 1 << 20, LATER_S)
    return lake, merge, seen_by_anyone(folder)


def execute(lake: Lake, merge: Merge) -> None:
    conclude(lake, stage(lake, merge))


def seen_by_us(lake: Lake) -> list[tuple[int, int]]:
    paths = archive_files(lake, require_position(lake))
    return sorted((row["partition"], row["offset"]) for path in paths for row in _rows(lake, path))


def _rows(lake: Lake, path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(lake.path(path)).read(["partition", "offset"]).to_pylist()
    return rows


def test_a_merge_keeps_every_message(tmp_path: Path) -> None:
    lake, merge, before = archive_of_four(tmp_path)
    execute(lake, merge)
    assert [file.path for file in lake.list()] == [merge.target]
    assert seen_by_anyone(tmp_path) == before == seen_by_us(lake)
    assert lake.list("_forebay/compaction") == []
    spans = read_index(lake, [merge.target], ALWAYS)
    assert [(span.partitions, span.offsets) for span in spans] == [((0, 1), (0, 3))]


@pytest.mark.parametrize("changes", range(STEPS + 1))
def test_a_crash_at_any_step_loses_and_doubles_nothing(tmp_path: Path, changes: int) -> None:
    lake, merge, before = archive_of_four(tmp_path)
    crashing = CrashingLake(lake.location, changes)
    try:
        execute(crashing, merge)
    except KeyboardInterrupt:
        crashed = True
    else:
        crashed = False
    assert crashed == (changes < STEPS), "the number of steps has changed: so must the range of this test"
    assert seen_by_us(lake) == before
    assert len(set(seen_by_anyone(tmp_path))) == len(seen_by_anyone(tmp_path)), "somebody saw a message twice"
    finish_merges(lake)
    assert seen_by_anyone(tmp_path) == before == seen_by_us(lake)
    assert notes(lake) == []


def test_a_merge_can_be_finished_twice(tmp_path: Path) -> None:
    lake, merge, before = archive_of_four(tmp_path)
    execute(lake, merge)
    finish(lake, merge)
    assert seen_by_anyone(tmp_path) == before


def test_a_note_says_what_it_replaces(tmp_path: Path) -> None:
    lake, merge, _ = archive_of_four(tmp_path)
    lake.write(merge.note, merge.to_json())
    assert notes(lake) == [replace(merge, staged=merge.merged)]
    assert json.loads(merge.to_json())["target"] == merge.target


def test_a_note_whose_merged_file_is_gone_deletes_nothing(tmp_path: Path) -> None:
    lake, merge, before = archive_of_four(tmp_path)
    lake.write(merge.note, merge.to_json())
    with pytest.raises(LakeError, match="names a merged file that is gone"):
        finish_merges(lake)
    assert seen_by_anyone(tmp_path) == before
