from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.storage.log.segment.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from forebay.storage.real_disk import RealDisk

steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50), st.booleans()), max_size=40)


@given(steps, st.integers(-5, 2100), st.integers(0, 200))
def test_lookups_do_not_care_where_entries_are(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]], target: int, zeros: int
) -> None:
    """Some entries are in the file, some in memory, and the file may end in zeros that were preallocated."""
    path = tmp_path_factory.mktemp("index") / "a.index"
    index = SparseIndex(RealDisk().open(str(path)), OFFSET_ENTRY)
    entries: list[tuple[int, int]] = []
    key = value = 0
    for key_step, value_step, flush in steps:
        key, value = key + key_step, value + value_step
        entries.append((key, value))
        index.append(key, value)
        if flush:
            index.flush()
    check(index, entries, target)
    index.flush()
    assert path.exists() == bool(entries)
    with path.open("ab") as file:
        file.write(bytes(zeros))
    check(SparseIndex(RealDisk().open(str(path)), OFFSET_ENTRY), entries, target)
    assert path.stat().st_size == 8 * len(entries)


def check(index: SparseIndex, entries: list[tuple[int, int]], target: int) -> None:
    below = [entry for entry in entries if entry[0] <= target]
    assert index.floor(target) == (below[-1] if below else None)
    below = [entry for entry in entries if entry[1] <= target]
    assert index.floor_value(target) == (below[-1] if below else None)
    assert len(index) == len(entries)
    assert index.last() == (entries[-1] if entries else None)


def test_entries_of_what_was_never_written_are_forgotten(tmp_path: Path) -> None:
    index = SparseIndex(RealDisk().open(f"{tmp_path}/a.timeindex"), TIME_ENTRY)
    for timestamp, offset in ((5, 10), (6, 20), (7, 30)):
        index.append(timestamp, offset)
    index.drop_from_value(20)
    assert (len(index), index.last()) == (1, (5, 10))
    index.flush()
    index.clear()
    assert (len(index), index.last(), index.floor(100)) == (0, None, None)
