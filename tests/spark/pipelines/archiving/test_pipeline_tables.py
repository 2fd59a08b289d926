"""Archives as tables, without Spark: which files are in them, wherever they lie."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from forebay.spark.pipelines.archiving import compact as compacting
from forebay.spark.pipelines.archiving.compact import Merge, stage
from forebay.spark.pipelines.archiving.hour_files import Written, publish, write_hours
from forebay.spark.pipelines.archiving.layout import DELTA, ICEBERG, POSITION, Position, batch_file
from forebay.spark.pipelines.archiving.tables import iceberg
from forebay.spark.pipelines.archiving.tables.delta import Delta
from forebay.spark.pipelines.archiving.tables.iceberg import Iceberg
from forebay.spark.pipelines.archiving.tables.table import open_table
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.lake import Lake
from support.spark.archives import MINUTE_US, QUERY, SIX_US, Message, make_archive, record_batch, seen_in
from support.spark.delta_deletes import delete_first_row
from support.spark.iceberg_deletes import delete_row

OTHER_QUERY = str(uuid.UUID(int=2))


def written(lake: Lake, batch: int) -> list[Written]:
    """The files of a batch: two messages, in two hours."""
    messages = [Message(0, 2 * batch + n, SIX_US + (60 * n + batch) * MINUTE_US) for n in range(2)]
    told = write_hours(lake, batch_file(QUERY, batch, 0), iter([record_batch(messages)]))
    files = [Written(**row) for reported in told for row in reported.to_pylist()]
    publish(lake, files)
    return files


def merged(lake: Lake, merge: Merge) -> Merge:
    """The merged file is where it belongs."""
    lake.move(stage(lake, merge).merged, merge.target)
    return merge


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
@pytest.mark.parametrize("name", ["lake", "my lake", "übersicht"])
def test_the_files_of_a_table_are_found_in_any_directory(tmp_path: Path, form: str, name: str) -> None:
    lake = Lake(str(tmp_path / name))
    position = Position(topic="orders", format=form, partitions=1)
    for batch in range(2):
        open_table(lake, position).add(written(lake, batch), QUERY, batch)
    table = Delta(lake) if form == DELTA else Iceberg(lake, position.topic)
    everything = [(0, n) for n in range(4)]
    assert seen_in(lake, table.paths()) == everything
    if isinstance(table, Delta):
        assert table.compact(1 << 20)["new files"] == 2
        assert seen_in(lake, table.paths()) == everything


def test_an_iceberg_table_knows_its_last_batch_after_its_snapshots_have_expired(tmp_path: Path) -> None:
    """A merge makes the last snapshot somebody else's, and maintenance keeps only that one."""
    lake = Lake(str(tmp_path))
    table = Iceberg(lake, "orders")
    for batch in range(2):
        table.add(written(lake, batch), QUERY, batch)
    merge = Merge(inputs=tuple(sorted(table.paths())[:2]), target="date=2025-11-15/hour=06/merged.parquet")
    table.replace(merge.inputs, [merged(lake, merge).target])
    expired = table.table().maintenance.expire_snapshots()
    expired.older_than(datetime.now(UTC) + timedelta(hours=1)).commit()
    assert len(table.table().snapshots()) == 1
    assert [table.holds(QUERY, batch) for batch in range(3)] == [True, True, False]
    assert not table.holds(OTHER_QUERY, 0)
    assert seen_in(lake, table.paths()) == [(0, n) for n in range(4)]


def test_an_iceberg_table_of_an_earlier_version_knows_its_batches_by_its_snapshots(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    table = Iceberg(lake, "orders")
    table.add(written(lake, 0), QUERY, 0)
    with table.table().transaction() as change:
        change.remove_properties("forebay.query", "forebay.batch")
    assert [table.holds(QUERY, batch) for batch in range(2)] == [True, False]
    table.add(written(lake, 1), OTHER_QUERY, 7)
    assert [table.holds(*each) for each in ((QUERY, 0), (QUERY, 1), (OTHER_QUERY, 7), (OTHER_QUERY, 8))] == [
        True,
        False,
        True,
        False,
    ]


def test_a_delta_table_knows_its_last_batch_after_its_log_was_cleaned(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    table = Delta(lake)
    for batch in range(2):
        table.add(written(lake, batch), QUERY, batch)
    table.compact(1 << 20)
    own = DeltaTable(lake.location)
    own.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    own.create_checkpoint()
    own.cleanup_metadata()
    assert [table.holds(QUERY, batch) for batch in range(3)] == [True, True, False]


def test_a_merge_in_an_iceberg_table_goes_on_when_the_archive_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path))
    table = Iceberg(lake, "orders")
    for batch in range(2):
        table.add(written(lake, batch), QUERY, batch)
    merge = Merge(inputs=tuple(sorted(table.paths())[:2]), target="date=2025-11-15/hour=06/merged.parquet")
    merged(lake, merge)
    begin = Iceberg._tasks
    others = iter([2, 3])

    def added_meanwhile(self: Iceberg, loaded: Any) -> Any:
        found = begin(self, loaded)
        for batch in itertools.islice(others, 1):
            Iceberg(lake, "orders").add(written(lake, batch), QUERY, batch)
        return found

    with monkeypatch.context() as changing:
        changing.setattr(Iceberg, "_tasks", added_meanwhile)
        table.replace(merge.inputs, [merge.target])
    assert next(others, None) is None
    assert merge.target in table.paths() and not set(merge.inputs) & set(table.paths())
    assert seen_in(lake, table.paths()) == [(0, n) for n in range(8)]


def test_an_attempt_at_a_merge_that_comes_too_late_does_not_touch_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be cut off in the middle of its file, when the table has that of another attempt."""
    lake = make_archive(tmp_path)
    lake.write(POSITION, Position(topic="orders", format=ICEBERG, partitions=1).to_json())
    table = Iceberg(lake, "orders")
    for batch in range(2):
        table.add(written(lake, batch), QUERY, batch)
    attempts: list[Callable[[], Merge]] = []

    def at_once(_spark: Any, _lake: Lake, merges: Sequence[Merge], work: Any) -> list[Merge]:
        attempts.extend(partial(work, lake, merge) for merge in merges)
        return [attempt() for attempt in attempts]

    with monkeypatch.context() as here:
        here.setattr(compacting, "_on_executors", at_once)
        assert compacting.compact(None, str(tmp_path)).facts["new files"] == 2  # type: ignore[arg-type]
    before = {path: (tmp_path / path).stat().st_ino for path in table.paths()}
    late = [attempt() for attempt in attempts]
    assert {path: (tmp_path / path).stat().st_ino for path in table.paths()} == before
    assert seen_in(lake, table.paths()) == [(0, n) for n in range(4)]
    with monkeypatch.context() as here:
        here.setattr(compacting, "_on_executors", at_once)
        compacting.compact(None, str(tmp_path))  # type: ignore[arg-type]
    assert not any(lake.exists(merge.merged) for merge in late)


def test_an_iceberg_table_has_its_hours_also_if_its_maker_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_table: Any) -> None:
        raise InterruptedError

    with monkeypatch.context() as killing:
        killing.setattr(iceberg, "_partition", killed)
        with pytest.raises(InterruptedError):
            Iceberg(Lake(str(tmp_path)), "orders").table()
    made = Iceberg(Lake(str(tmp_path)), "orders").table()
    assert [field.name for field in made.spec().fields] == ["hour"]


def test_rows_that_were_deleted_from_an_iceberg_table_do_not_come_back(tmp_path: Path) -> None:
    """Trino, Flink and Spark may note deletions beside the files, which still have the rows."""
    lake = Lake(str(tmp_path))
    table = Iceberg(lake, "orders")
    for batch in range(3):
        table.add(written(lake, batch), QUERY, batch)
    first, second, third = sorted(path for path in table.paths() if "hour=06" in path)
    inputs = (first, second)
    merge = merged(lake, Merge(inputs=inputs, target="date=2025-11-15/hour=06/merged.parquet"))
    delete_row(table.table(), lake.uri(second), 0)
    left = table.table().scan().to_arrow()
    assert sorted(left["offset"].to_pylist()) == [0, 1, 3, 4, 5]
    with pytest.raises(PipelineError, match=r"rows were deleted from the table archive\.orders"):
        table.paths()
    assert {first, third} == {file.path for file in table.files() if "hour=06" in file.path}
    with pytest.raises(PipelineError, match="changed while its files were merged"):
        table.replace(merge.inputs, [merge.target])
    assert table.table().scan().to_arrow().equals(left)


def test_rows_that_were_deleted_from_a_delta_table_do_not_come_back(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    table = Delta(lake)
    for batch in range(2):
        table.add(written(lake, batch), QUERY, batch)
    (first, _) = sorted(path for path in table.paths() if "hour=06" in path)
    delete_first_row(tmp_path, first)
    with pytest.raises(PipelineError, match="rows were deleted from the Delta table"):
        table.paths()
    table.add(written(lake, 2), QUERY, 2)
    table.compact(1 << 20)
    assert seen_in(lake, table.paths()) == [(0, n) for n in range(1, 6)]
