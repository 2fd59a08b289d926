"""Positions: how a backlog is shared out, and how ranges are cut into tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import ConfigError
from forebay.spark.metrics import distances
from forebay.spark.source.offset_ranges import (
    IDS_KEY,
    OffsetRange,
    Offsets,
    Position,
    RangeGroup,
    TopicPartition,
    backlog,
    from_json,
    ids_in,
    joined,
    limited,
    made_anew,
    parse_offsets,
    split,
    to_json,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

sizes = st.lists(st.integers(0, 10_000), max_size=8)


def ranges_of(counts: list[int]) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", n), 5 * n, 5 * n + count) for n, count in enumerate(counts)]


def test_offsets_are_written_as_spark_writes_them() -> None:
    offsets = {B0: 7, TopicPartition("a", 10): 3, A1: 2}
    assert json.dumps(to_json(offsets)) == '{"a": {"1": 2, "10": 3}, "b": {"0": 7}}'
    assert from_json(to_json(offsets)) == offsets


def test_ids_of_topics_lie_beside_the_offsets() -> None:
    offsets = {TopicPartition("a", 1): 2}
    written = to_json(offsets, {"a": "01", "gone": "02"})
    assert written == {"a": {"1": 2}, IDS_KEY: {"a": "01"}}
    assert (from_json(written), ids_in(written)) == (offsets, {"a": "01"})
    assert ids_in(to_json(offsets)) == {}
    assert made_anew({"a": "01", "b": "02", "c": "03"}, {"a": "01", "b": "04"}) == ["b"]
    assert parse_offsets("startingOffsets", json.dumps(written)) == offsets


def test_positions_name_all_partitions() -> None:
    position = Position(by_partition=((A0, 1), (B0, 2)), option="startingOffsets")
    assert position.of([A0, B0]) == {A0: 1, B0: 2}
    with pytest.raises(ConfigError, match=r"startingOffsets.*missing a-1; not among them b-0"):
        position.of([A0, A1])
    assert Position(everywhere=-2).of([A0, A1]) == {A0: -2, A1: -2}


def test_a_limit_is_shared_by_backlog() -> None:
    start: Offsets = {A0: 0, A1: 100, B0: 50}
    end: Offsets = {A0: 900, A1: 200, B0: 50}
    assert backlog(start, end) == 1000
    assert limited(start, end, 100) == {A0: 90, A1: 110, B0: 50}
    assert limited(start, end, 1000) == end


def test_no_partition_is_starved_by_a_small_limit() -> None:
    assert limited({A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, 10) == {A0: 9, A1: 1}


@given(sizes, st.integers(1, 20_000))
def test_a_limited_batch_moves_forward_and_stays_near_its_limit(counts: list[int], rows_max: int) -> None:
    found = ranges_of(counts)
    start = {wanted.at: wanted.start for wanted in found}
    end = {wanted.at: wanted.end for wanted in found}
    reached = limited(start, end, rows_max)
    assert all(start[at] <= reached[at] <= end[at] for at in end)
    assert all(reached[at] > start[at] for at in end if end[at] > start[at])
    assert backlog(start, reached) <= rows_max + len(counts)


@given(sizes, st.integers(0, 40), st.integers(0, 3000))
def test_tasks_cover_the_ranges_exactly(counts: list[int], tasks_min: int, records_max: int) -> None:
    found = ranges_of(counts)
    tasks = split(found, tasks_min=tasks_min, records_max=records_max)
    covered = {wanted.at: [task for task in tasks if task.at == wanted.at] for wanted in found}
    for wanted in found:
        edges = [wanted.start, *(task.end for task in covered[wanted.at])]
        assert [task.start for task in covered[wanted.at]] == edges[:-1]
        assert edges[-1] == wanted.end
    assert all(task.size > 0 for task in tasks)
    assert not records_max or all(task.size <= records_max for task in tasks)
    assert len(tasks) >= min(tasks_min, sum(counts))


def test_large_ranges_are_cut_first() -> None:
    tasks = split([OffsetRange(A0, 0, 100), OffsetRange(A1, 0, 10)], tasks_min=4, records_max=0)
    assert [task.size for task in tasks] == [33, 33, 34, 10]
    assert split([OffsetRange(A0, 0, 3)], tasks_min=9, records_max=0) == [
        OffsetRange(A0, 0, 1),
        OffsetRange(A0, 1, 2),
        OffsetRange(A0, 2, 3),
    ]


@given(st.lists(st.integers(1, 10_000), max_size=80), st.integers(1, 40), st.integers(0, 3000))
def test_many_small_ranges_share_tasks(counts: list[int], more_than: int, records_min: int) -> None:
    ranges = ranges_of(counts)
    tasks = joined(ranges, more_than=more_than, records_min=records_min)
    groups = [task.ranges if isinstance(task, RangeGroup) else (task,) for task in tasks]
    assert [found for group in groups for found in group] == ranges, "each once, in order"
    if len(ranges) <= more_than or not records_min:
        assert len(tasks) == len(ranges)
        return
    wanted = max(records_min, -(-sum(counts) // more_than))
    sizes_ = [sum(found.size for found in group) for group in groups]
    assert all(size <= wanted or len(group) == 1 for size, group in zip(sizes_, groups, strict=True))
    assert all(one + other > wanted for one, other in pairwise(sizes_)), "neighbours would fit into one"


@pytest.mark.parametrize("form", [str, json.dumps, dict], ids=["PySpark 4.1", "JSON", "as they are"])
def test_the_offsets_of_a_progress_in_each_of_their_forms(form: Callable[[Any], Any]) -> None:
    end, latest = {"t": {"0": 5}, IDS_KEY: {"t": "id"}}, {"t": {"0": 9, "1": 2}, IDS_KEY: {"t": "id"}}
    assert distances(form(end), form(latest)) == [4, 2]
