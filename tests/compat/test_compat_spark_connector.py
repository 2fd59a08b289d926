"""Spark's own Kafka connector on a Forebay broker: batch, micro-batch and real-time mode. Needs Maven."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.spark import connector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from forebay.spark.session import session
from forebay.testing import Broker
from support.clients.wire_client import WireClient, create

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    if reason := connector.why_not():
        pytest.skip(reason)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own imports are not ours to tidy
        started = session("compatibility", "local[2]", quick=True, **{"spark.jars": connector.jars()})
    yield started
    started.stop()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(process=True) as running:
        yield running.bootstrap_servers


@pytest.fixture
def made(bootstrap: str, topic: str) -> str:
    with WireClient(bootstrap) as client:
        create(client, topic, 2)
        create(client, f"{topic}-copy", 2)
    return topic


def write(
    spark: SparkSession, bootstrap: str, topic: str, connector_name: str = "kafka", **more: str
) -> None:
    rows = spark.range(1_000, numPartitions=2).selectExpr("string(id) key", "concat('value ', id) value")
    writer = rows.write.format(connector_name).mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).options(**more).save()


def read(spark: SparkSession, bootstrap: str, topic: str, **more: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).options(**more).load()


def contents(spark: SparkSession, bootstrap: str, topic: str, **more: str) -> list[tuple[bytes, bytes]]:
    rows = read(spark, bootstrap, topic, **more).select("key", "value").collect()
    return sorted((bytes(row.key), bytes(row.value)) for row in rows)


WANTED = sorted((b"%d" % n, b"value %d" % n) for n in range(1_000))


def test_a_batch_is_written_and_read(spark: SparkSession, bootstrap: str, made: str) -> None:
    write(spark, bootstrap, made)
    assert contents(spark, bootstrap, made) == WANTED


def test_both_connectors_agree_on_rows_offsets_and_partitions(
    spark: SparkSession, bootstrap: str, made: str
) -> None:
    write(spark, bootstrap, made, "forebay")
    write(spark, bootstrap, f"{made}-copy", "kafka")
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    theirs = read(spark, bootstrap, made)
    ours = spark.read.format("forebay").option("kafka.bootstrap.servers", bootstrap)
    same = ours.option("subscribe", made).load()
    assert same.schema == theirs.schema
    assert same.select(columns).exceptAll(theirs.select(columns)).count() == 0
    # A key goes to the same partition whichever of them writes it.
    homes = [read(spark, bootstrap, name).select("key", "partition") for name in (made, f"{made}-copy")]
    assert homes[0].exceptAll(homes[1]).count() == 0


def test_an_exactly_once_write_is_seen_by_readers_of_committed_data(
    spark: SparkSession, bootstrap: str, made: str
) -> None:
    write(spark, bootstrap, made, "forebay", delivery="exactly-once")
    assert contents(spark, bootstrap, made, **{"kafka.isolation.level": "read_committed"}) == WANTED


def test_micro_batches_copy_a_topic(spark: SparkSession, bootstrap: str, made: str, tmp_path: Path) -> None:
    write(spark, bootstrap, made)
    query = copy(spark, bootstrap, made, tmp_path, lambda writer: writer.trigger(availableNow=True))
    assert query.awaitTermination(int(DEADLINE_S))
    assert contents(spark, bootstrap, f"{made}-copy") == WANTED


def test_real_time_mode_copies_a_topic(
    spark: SparkSession, bootstrap: str, made: str, tmp_path: Path
) -> None:
    write(spark, bootstrap, made)
    query = copy(spark, bootstrap, made, tmp_path, in_real_time)
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(contents(spark, bootstrap, f"{made}-copy")) < len(WANTED):
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, "real-time mode has not copied the topic"
    finally:
        query.stop()
    assert contents(spark, bootstrap, f"{made}-copy") == WANTED


def in_real_time(writer: DataStreamWriter) -> DataStreamWriter:
    # PySpark's types do not know this trigger yet.
    return writer.outputMode("update").trigger(realTime="5 seconds")  # type: ignore[call-overload,no-any-return]


def copy(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    checkpoint: Path,
    how: Callable[[DataStreamWriter], DataStreamWriter],
) -> StreamingQuery:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    writer = rows.select("key", "value").writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", f"{topic}-copy")
    return how(writer.option("checkpointLocation", str(checkpoint))).start()
