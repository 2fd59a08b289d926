"""Archives in an object store: no attempt that fails, repeats or comes late loses or doubles a message.

The store is moto's server, reached by pyarrow's S3 file system, as an archive's URI is.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from forebay.spark.pipelines.archiving import hour_files
from forebay.spark.pipelines.archiving.batches import BatchWriter
from forebay.spark.pipelines.archiving.beginning import begin
from forebay.spark.pipelines.archiving.compact import (
    Merge,
    archive_files,
    conclude,
    finish_merges,
    notes,
    plan,
    stage,
)
from forebay.spark.pipelines.archiving.hour_files import Written, publish, write_hours
from forebay.spark.pipelines.archiving.layout import batch_file, data_files, require_position
from forebay.spark.pipelines.archiving.tables.table import open_table
from forebay.spark.pipelines.lake import Lake
from support.spark.archives import (
    MINUTE_US,
    QUERY,
    SIX_US,
    Message,
    batch_of,
    make_archive,
    record_batch,
    seen_in,
    write_without_spark,
)
from support.spark.object_store import ObjectStore, running_object_store

LATER_S = SIX_US / 1_000_000 + 3600 * 24
MESSAGES = [Message(n % 2, n, SIX_US + n * MINUTE_US) for n in range(6)]
REFUSED = r"gate is shut|ACCESS_DENIED|403"
EVERYTHING = sorted((one.partition, one.offset) for one in MESSAGES)


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with running_object_store() as started:
        yield started


def archive_of_two(store: ObjectStore) -> tuple[Lake, Merge]:
    lake = make_archive(store.lake(), MESSAGES[:3], MESSAGES[3:])
    (merge,) = plan(data_files(lake.list(), require_position(lake)), 1 << 20, LATER_S)
    return lake, merge


def seen_by_us(lake: Lake) -> list[tuple[int, int]]:
    return seen_in(lake, archive_files(lake, require_position(lake)))


def seen_by_anyone(lake: Lake) -> list[tuple[int, int]]:
    return seen_in(lake, [file.path for file in lake.list()])


def test_a_file_that_is_given_up_does_no_harm_to_that_of_another(store: ObjectStore) -> None:
    lake = store.lake()
    lake.write("a/b.txt", b"whole")
    with contextlib.suppress(RuntimeError), lake.create("a/b.txt") as stream:
        stream.write(b"half")
        raise RuntimeError
    assert lake.read("a/b.txt") == b"whole"


# -- merges ------------------------------------------------------------------------------------------------


def test_a_merge_is_interrupted_before_any_write(store: ObjectStore) -> None:
    lake, merge = archive_of_two(store)
    before = store.gate.requests
    conclude(lake, stage(lake, merge))
    moments = store.moments(before)
    assert seen_by_anyone(lake) == seen_by_us(lake) == EVERYTHING
    assert len(moments) > 10, "requests were not counted"
    untouched, merge = archive_of_two(store)
    for requests in moments:
        lake = store.copy_of(untouched)
        with store.shut_after(requests), pytest.raises(OSError, match=REFUSED):
            conclude(lake, stage(lake, merge))
        assert seen_by_us(lake) == EVERYTHING, f"after {requests} requests"
        anyone = seen_by_anyone(lake)  # which asks the store for every file
        assert set(anyone) <= set(EVERYTHING)
        assert len(set(anyone)) == len(anyone), f"doubled after {requests}"
        finish_merges(lake)
        assert seen_by_anyone(lake) == seen_by_us(lake) == EVERYTHING, f"after {requests} requests"
        assert notes(lake) == []


def test_a_merge_task_that_runs_again_removes_nothing(store: ObjectStore) -> None:
    """At any time: while the driver deletes the small files, and when everything is over."""
    lake, merge = archive_of_two(store)
    staged = stage(lake, merge)
    lake.write(staged.note, staged.to_json())
    lake.delete(merge.inputs[0])
    with pytest.raises(FileNotFoundError):
        stage(lake, merge)
    assert seen_by_us(lake) == EVERYTHING
    conclude(lake, staged)
    with pytest.raises(FileNotFoundError):
        stage(lake, merge)
    finish_merges(lake)
    assert seen_by_anyone(lake) == EVERYTHING


def test_a_note_of_an_earlier_version_is_finished(store: ObjectStore) -> None:
    lake, merge = archive_of_two(store)
    staged = stage(lake, merge)
    lake.move(staged.merged, merge.merged)
    lake.write(merge.note, json.dumps({"inputs": merge.inputs, "target": merge.target}).encode())
    finish_merges(lake)
    assert seen_by_anyone(lake) == EVERYTHING


# -- batches -----------------------------------------------------------------------------------------------


def attempt(lake: Lake, batches: Iterator[pa.RecordBatch]) -> list[Written]:
    """What a task reports."""
    told = write_hours(lake, batch_file(QUERY, 0, 0), batches)
    return [Written(**row) for batch in told for row in batch.to_pylist()]


def killed() -> Iterator[pa.RecordBatch]:
    yield record_batch(MESSAGES[:2])
    raise KeyboardInterrupt


def test_the_file_of_an_attempt_outlives_all_other_attempts(store: ObjectStore) -> None:
    """An attempt that is killed, and one that ends when the batch has long counted and was merged."""
    lake = store.lake()
    begin(lake, "orders", "parquet", 2)
    publish(lake, attempt(lake, iter([record_batch(MESSAGES)])))
    with pytest.raises(KeyboardInterrupt):
        attempt(lake, killed())
    assert seen_by_anyone(lake) == EVERYTHING
    attempt(lake, iter([record_batch(MESSAGES)]))
    assert seen_by_anyone(lake) == EVERYTHING


def run_batches(lake: Lake) -> None:
    position = begin(lake, "orders", "parquet", 2)
    writer = BatchWriter(lake, open_table(lake, position), position)
    writer(batch_of(MESSAGES), 0)


def test_an_archive_is_interrupted_before_any_write(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hour_files, "write", write_without_spark)
    lake = store.lake()
    before = store.gate.requests
    run_batches(lake)
    moments = store.moments(before)
    assert seen_by_anyone(lake) == EVERYTHING
    assert len(moments) > 10, "requests were not counted"
    for requests in moments:
        lake = store.lake()
        with store.shut_after(requests), pytest.raises(OSError, match=REFUSED):
            run_batches(lake)
        anyone = seen_by_anyone(lake)
        assert len(set(anyone)) == len(anyone), f"doubled after {requests}"
        run_batches(lake)
        assert seen_by_anyone(lake) == seen_by_us(lake) == EVERYTHING, f"after {requests} requests"
