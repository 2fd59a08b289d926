"""A topic in files, each message once: over restarts, lost checkpoints and crashes, in every format."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from forebay.spark.pipelines import ArchiveSettings, Brokers, PipelineError, archive, archive_stats, compact
from forebay.spark.pipelines.archiving.batches import QUERY_ID, BatchWriter
from forebay.spark.pipelines.archiving.beginning import begin
from forebay.spark.pipelines.archiving.compact import archive_files
from forebay.spark.pipelines.archiving.hour_files import HOUR
from forebay.spark.pipelines.archiving.index import ALWAYS, Slice, read_index
from forebay.spark.pipelines.archiving.layout import (
    NEXT_POSITION,
    POSITION,
    SCHEMA,
    UNKNOWN_HOUR,
    read_position,
    require_position,
)
from forebay.spark.pipelines.archiving.tables.iceberg import Iceberg
from forebay.spark.pipelines.archiving.tables.table import open_table
from forebay.spark.pipelines.brokers import NoTopic
from forebay.spark.pipelines.lake import Lake
from support.brokers.broker_process import BrokerProcess
from support.spark.archives import MINUTE_US, QUERY, SIX_US, Message, record_batch
from support.spark.topics import NINE_MS, Found, Sent, contents, make, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

HOUR_MS = 3_600_000
LATE_US = (1 << 23) * HOUR_MS * 1000
"""An hour of 2926: a microsecond less, divided by an hour, is rounded up to it."""
TOPIC = "archived"


def messages(first: int, count: int) -> list[Sent]:
    """Over two partitions and some hours; keys and values are null at times, headers there at times."""
    return [
        Sent(
            value=None if n % 7 == 0 else b"value-%d" % n,
            key=None if n % 3 == 0 else b"key-%d" % (n % 5),
            partition=n % 2,
            timestamp_ms=NINE_MS + n * HOUR_MS // 50,
            headers=(("n", b"%d" % n), ("empty", None)) if n % 4 == 0 else (),
        )
        for n in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def brokers(broker: BrokerProcess) -> Brokers:
    make(broker.bootstrap, archived=2)
    send(broker.bootstrap, TOPIC, messages(0, 150))
    return Brokers(bootstrap=broker.bootstrap)


def in_parquet(folder: Path) -> pa.Table:
    """As any other program would read it."""
    return ds.dataset(folder, format="parquet", partitioning="hive").to_table()


def in_delta(folder: Path) -> pa.Table:
    from deltalake import DeltaTable

    return pa.table(DeltaTable(folder).to_pyarrow_table())


def in_iceberg(folder: Path) -> pa.Table:
    return Iceberg(Lake(str(folder)), TOPIC).table().scan().to_arrow()


READERS = {"parquet": in_parquet, "delta": in_delta, "iceberg": in_iceberg}


def found_in(table: pa.Table) -> list[Found]:
    rows = table.select(SCHEMA.names).cast(SCHEMA).to_pylist()
    return sorted(
        (
            Found(
                row["partition"],
                row["offset"],
                row["key"],
                row["value"],
                round(row["timestamp"].timestamp() * 1000),
                tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            )
            for row in rows
        ),
        key=lambda found: found[:2],
    )


def test_each_message_once_over_batches_merges_and_a_lost_checkpoint(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    settings = ArchiveSettings(batch_records=80, group="archiver")
    first = archive(spark, brokers, TOPIC, lake, settings).wait().facts
    assert (first["rows"], first["batches"]) == (150, 2)
    assert found_in(in_parquet(tmp_path / "lake")) == contents(brokers.bootstrap, TOPIC)
    hours = {path.parent.name for path in (tmp_path / "lake").glob("date=2025-11-15/*/*.parquet")}
    assert hours == {"hour=09", "hour=10", "hour=11"}

    merged = compact(spark, lake).facts
    assert merged["new files"] == 3 < merged["merged files"] == first["files"]

    send(brokers.bootstrap, TOPIC, messages(150, 20))
    shutil.rmtree(tmp_path / "lake" / "_forebay" / "checkpoint")
    had_more_partitions(Lake(lake))
    assert archive(spark, brokers, TOPIC, lake, settings).wait().facts["rows"] == 20
    assert found_in(in_parquet(tmp_path / "lake")) == contents(brokers.bootstrap, TOPIC)


def had_more_partitions(lake: Lake) -> None:
    """As if the topic had been given fewer since."""
    position = require_position(lake)
    count = position.partitions
    more = {**position.next_offsets, str(count): 5}
    lake.write(POSITION, replace(position, partitions=count + 1, next_offsets=more).to_json())


# -- crashes: the batches as Spark hands them over, without the time that starting queries takes ------------


class Crash(Exception):
    pass


def crash_once(monkeypatch: pytest.MonkeyPatch, method: str, path: str, after: bool) -> None:
    """Make a method of the lake fail when it is used for a path the second time, before or after its work."""
    original = getattr(Lake, method)
    uses = 0

    def crashing(self: Lake, *arguments: Any) -> Any:
        nonlocal uses
        uses += path in arguments
        armed = uses == 2 and path in arguments
        if armed and not after:
            raise Crash
        done = original(self, *arguments)
        if armed:
            raise Crash
        return done

    monkeypatch.setattr(Lake, method, crashing)


def run_batches(
    spark: SparkSession, folder: Path, format: str, batches: list[list[Message]], query: str = QUERY
) -> None:
    """A run of the archive from its first batch on, as after a crash before Spark had noted any."""
    lake = Lake(str(folder))
    position = begin(lake, TOPIC, format, 2)
    writer = BatchWriter(lake, open_table(lake, position), position)
    with in_query(spark, query):
        for number, batch in enumerate(batches):
            rows = pa.Table.from_batches([record_batch(batch)]).drop_columns(HOUR)
            writer(spark.createDataFrame(rows), number)


@contextlib.contextmanager
def in_query(spark: SparkSession, query: str) -> Iterator[None]:
    """As in a micro-batch of this query."""
    spark.sparkContext.setLocalProperty(QUERY_ID, query)
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(QUERY_ID, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("format", "method", "path", "after"),
    [
        pytest.param("parquet", "write", NEXT_POSITION, False, id="parquet-files-written"),
        pytest.param("parquet", "move", POSITION, False, id="parquet-announced"),
        pytest.param("parquet", "move", POSITION, True, id="parquet-counts-but-spark-does-not-know"),
        pytest.param("delta", "write", NEXT_POSITION, False, id="delta-files-written"),
        pytest.param("delta", "move", POSITION, False, id="delta-added-but-not-in-position"),
        pytest.param("iceberg", "write", NEXT_POSITION, False, id="iceberg-files-written"),
        pytest.param("iceberg", "move", POSITION, False, id="iceberg-added-but-not-in-position"),
    ],
)
def test_a_crash_within_a_batch_loses_and_doubles_nothing(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    method: str,
    path: str,
    after: bool,
) -> None:
    batches = [
        [Message(n % 2, n, SIX_US + n * 7 * MINUTE_US) for n in range(first, first + 10)]
        for first in (0, 10, 20)
    ]
    with monkeypatch.context() as armed:
        crash_once(armed, method, path, after)
        with pytest.raises(Crash):
            run_batches(spark, tmp_path, format, batches)
    run_batches(spark, tmp_path, format, batches)
    found = [(one.partition, one.offset) for one in found_in(READERS[format](tmp_path))]
    assert found == sorted((one.partition, one.offset) for batch in batches for one in batch)
    position = read_position(Lake(str(tmp_path)))
    assert position is not None
    assert (position.batches, position.next_offsets) == ({QUERY: 2}, {"0": 29, "1": 30})


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_merge_is_a_change_of_the_table(spark: SparkSession, tmp_path: Path, format: str) -> None:
    batches = [[Message(0, n, SIX_US + n * MINUTE_US)] for n in range(4)]
    run_batches(spark, tmp_path, format, batches)
    before = found_in(READERS[format](tmp_path))
    merged = compact(spark, str(tmp_path)).facts
    assert (merged["merged files"], merged["new files"]) == (4, 1)
    assert found_in(READERS[format](tmp_path)) == before
    lake = Lake(str(tmp_path))
    assert len(archive_files(lake, require_position(lake))) == 1
    run_batches(spark, tmp_path, format, [*batches, [Message(0, 4, SIX_US)]])
    assert [one.offset for one in found_in(READERS[format](tmp_path))] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_crash_after_the_table_has_a_batch_and_a_lost_checkpoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """Without its checkpoint Spark reads the topic again from where position.json says."""
    first, second = ([Message(0, n, SIX_US) for n in range(start, start + 5)] for start in (0, 5))
    with monkeypatch.context() as armed:
        crash_once(armed, "move", POSITION, after=False)
        with pytest.raises(Crash):
            run_batches(spark, tmp_path, format, [first])
    position = begin(Lake(str(tmp_path)), TOPIC, format, 1)
    assert (position.batches, position.next_offsets) == ({QUERY: 0}, {"0": 5})
    run_batches(spark, tmp_path, format, [second], query=str(uuid.UUID(int=2)))
    assert [one.offset for one in found_in(READERS[format](tmp_path))] == list(range(10))


@pytest.mark.parametrize("format", READERS)
def test_messages_of_any_date_stay_in_the_archive(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """The year 1 is the smallest date of .NET; the years after 9999 have no date."""
    year_us, last_us = 365 * 24 * 3600 * 1_000_000, (2**63 - 1) // 1000 * 1000
    times_us = [
        -1969 * year_us,
        -1000 * year_us,
        0,
        9000 * year_us,
        9001 * year_us,
        99_999 * year_us,
        last_us,
    ]
    times_us += [LATE_US - 1, LATE_US, -last_us]
    batch = [Message(0, n, time_us) for n, time_us in enumerate(times_us)]
    for _ in range(2):
        run_batches(spark, tmp_path, format, [batch])
        assert times_in(tmp_path) == times_us
    assert len(files_of(tmp_path, UNKNOWN_HOUR)) == 2, "for what is before and after all dates"
    (before,), (after,) = (files_of(tmp_path, f"date=2926-12-20/hour={hour:02}") for hour in (7, 8))
    assert before != after
    compact(spark, str(tmp_path))
    assert len(files_of(tmp_path, UNKNOWN_HOUR)) == 1
    assert times_in(tmp_path) == times_us
    assert READERS[format](tmp_path).num_rows == len(times_us)
    if format == "parquet":
        days = [point.at for point in archive_stats(spark, str(tmp_path)).times]
        assert days == sorted(set(days)) and (days[0].year, days[-1].year) == (1, 9999)


def times_in(folder: Path) -> list[int]:
    """The times of all messages, in the order of their offsets."""
    lake = Lake(str(folder))
    spans = read_index(lake, archive_files(lake, require_position(lake)), ALWAYS)
    found = Slice(location=lake.location, partition=0, start=0, end=99, times=ALWAYS, spans=tuple(spans))
    offsets, times_us = found.timeline()
    assert offsets.tolist() == list(range(len(offsets)))
    return list(map(int, times_us))


def files_of(folder: Path, hour: str) -> list[str]:
    lake = Lake(str(folder))
    return [path for path in archive_files(lake, require_position(lake)) if path.startswith(f"{hour}/")]


def test_a_checkpoint_of_another_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run_batches(spark, tmp_path, "parquet", [[Message(0, 0, SIX_US)]])
    lake = Lake(str(tmp_path))
    position = read_position(lake)
    assert position is not None
    refused = pytest.raises(PipelineError, match="the checkpoint does not belong to")
    with in_query(spark, QUERY), refused:
        BatchWriter(lake, open_table(lake, position), position)(spark.range(1), 7)


def test_a_directory_is_for_one_topic_and_format(tmp_path: Path) -> None:
    begin(Lake(str(tmp_path)), TOPIC, "parquet", 1)
    with pytest.raises(PipelineError, match=f"is an archive of topic {TOPIC} as parquet"):
        begin(Lake(str(tmp_path)), "other", "parquet", 1)
    with pytest.raises(PipelineError, match="give each topic and format a directory of its own"):
        begin(Lake(str(tmp_path)), TOPIC, "delta", 1)


def test_a_topic_that_is_not_there(spark: SparkSession, brokers: Brokers, tmp_path: Path) -> None:
    with pytest.raises(NoTopic, match="there is no topic nowhere: `forebay topic create nowhere` makes it"):
        archive(spark, brokers, "nowhere", str(tmp_path))
    assert not any(tmp_path.iterdir())
