"""Batch reads through Spark itself: found by name, with the documented schema, from SQL and over Connect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from forebay.client import Producer
from forebay.spark import between
from support.brokers.broker_process import BrokerProcess
from support.spark.reading import batch_reader, make_topic, moment, value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT"
)
"""As in the guide to Spark's Kafka source."""
HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def read(spark: SparkSession, broker: BrokerProcess, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("forebay").option("kafka.bootstrap.servers", broker.bootstrap)
    if "schema" in options:
        reader = reader.schema(options.pop("schema"))
    return reader.options(subscribe=topic, **options).load()


def test_the_schema_is_that_of_the_kafka_source(spark: SparkSession, broker: BrokerProcess) -> None:
    assert read(spark, broker, "any").schema == StructType.fromDDL(KAFKA_SCHEMA)
    with_headers = read(spark, broker, "any", includeHeaders=True).schema
    assert with_headers == StructType.fromDDL(f"{KAFKA_SCHEMA}, {HEADERS}")


def test_eight_partitions_and_a_part_of_them(spark: SparkSession, broker: BrokerProcess, topic: str) -> None:
    counts = (40, 0, 7, 1, 0, 30, 2, 20)
    make_topic(broker.bootstrap, topic, *counts)
    whole = read(spark, broker, topic)
    found = whole.select("partition", "offset", "value", "key").collect()
    assert sorted((row.partition, row.offset, bytes(row.value)) for row in found) == [
        (p, n, value(p, n)) for p, count in enumerate(counts) for n in range(count)
    ]
    assert {row.offset % 3 == 0 for row in found if row.key is None} == {True}
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    part = between(options, partitions=[0, 5], max_offset=11, min_time=moment(10))
    some = spark.read.format("forebay").options(**part).load()
    assert sorted(bytes(row.value) for row in some.select("value").collect()) == [
        value(p, n) for p in (0, 5) for n in (10, 11)
    ]
    assert some.rdd.getNumPartitions() == 2


@pytest.mark.parametrize("push_down", ["true", "false"])
def test_no_query_changes_another_one_of_the_same_dataframe(
    spark: SparkSession, broker: BrokerProcess, topic: str, push_down: str
) -> None:
    """Spark keeps one read plan for a DataFrame of a Python source, and all its queries use that one."""
    make_topic(broker.bootstrap, topic, 10, 5)
    own = spark.newSession()
    own.conf.set("spark.sql.python.filterPushdown.enabled", push_down)
    rows = read(own, broker, topic)
    few = rows.where("offset < 3")
    assert [few.count(), rows.count(), few.count(), rows.where("partition = 1").count()] == [6, 15, 6, 5]
    assert rows.where("offset < 3").union(rows.where("offset >= 3")).count() == 15
    assert rows.where("partition = 0").join(rows.where("partition = 1"), "offset").count() == 5
    assert rows.where(F.col("timestamp") > F.lit(moment(4))).count() == 5
    assert rows.join(few, ["partition", "offset"], "left_anti").count() == 9
    rows.createOrReplaceTempView("messages")
    counts = own.sql(
        """SELECT (SELECT count(*) FROM messages WHERE offset < 2) AS few, count(*) AS all,
           (SELECT count(*) FROM messages WHERE partition = 1) AS one FROM messages"""
    ).first()
    assert counts == (4, 15, 5)
    kept = rows.where("offset >= 8").cache()
    try:
        assert [kept.count(), rows.count(), kept.where("offset = 9").count()] == [2, 15, 1]
    finally:
        kept.unpersist()
    assert rows.groupBy("partition").count().where("partition = 0").collect() == [(0, 10)]
    assert rows.count() == 15


def test_columns_headers_nulls_and_tasks(spark: SparkSession, broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 0)
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, b"first", key="k", headers=[("a", b"1"), ("b", None)])
        producer.send(topic, None)
    found = read(
        spark, broker, topic, includeHeaders=True, schema=f"{HEADERS}, value BINARY", minPartitions=2
    )
    rows = found.withColumn("task", F.spark_partition_id()).orderBy("task").collect()
    assert [(row.value and bytes(row.value), row.task) for row in rows] == [(b"first", 0), (None, 1)]
    assert [(header.key, header.value) for header in rows[0].headers] == [("a", b"1"), ("b", None)]
    assert rows[1].headers is None


def test_many_small_partitions_are_few_tasks(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """200 partitions, one of them large, and topics by a pattern; as a table and as a stream."""
    make_topic(broker.bootstrap, f"{topic}-wide", 3000, *[2] * 199)
    for n in range(3):
        make_topic(broker.bootstrap, f"{topic}-{n}", 1)
    options: dict[str, Any] = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "startingOffsets": "earliest",
        "subscribePattern": f"{topic}-.*",
    }
    rows = spark.read.format("forebay").options(**options).load()
    assert rows.count() == 3000 + 398 + 3
    assert rows.rdd.getNumPartitions() == 3, "those before the large partition, that one, and those after it"
    for more in ({"minPartitions": 40}, {"minRecordsPerPartition": 0}):
        assert spark.read.format("forebay").options(**options, **more).load().rdd.getNumPartitions() == 203

    counted: list[tuple[int, int]] = []
    stream = spark.readStream.format("forebay").options(**options, maxRecordsPerPartition=1500).load()
    query = stream.writeStream.foreachBatch(
        lambda batch, _id: counted.append((batch.rdd.getNumPartitions(), batch.count()))
    )
    query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query.start().awaitTermination()
    assert counted == [(4, 3401)], "the large partition is cut into two"


def test_the_task_that_spark_makes_of_no_tasks(broker: BrokerProcess, topic: str) -> None:
    reader = batch_reader(broker.bootstrap, subscribe=topic)
    for nothing in (None, InputPartition(None)):
        assert list(reader.read(nothing)) == []


def test_an_empty_topic_from_sql(spark: SparkSession, broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 0, 0)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW nothing USING forebay"
        f" OPTIONS (`kafka.bootstrap.servers` '{broker.bootstrap}', subscribe '{topic}')"
    )
    assert spark.sql("SELECT count(*) AS rows FROM nothing").first() == (0,)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"startingOfsets": "earliest"}, "startingofsets is not known"), ({"assign": "{}"}, "exactly one of")],
)
def test_wrong_options_are_named(
    spark: SparkSession, broker: BrokerProcess, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        read(spark, broker, "any", **options).count()


# -- Spark Connect -----------------------------------------------------------------------------------------


@pytest.fixture
def remote(spark: SparkSession) -> Iterator[SparkSession]:
    """A client of a Connect server in the JVM that runs already: another JVM would take half a minute."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    package: Any = spark.sparkContext._jvm.org.apache.spark.sql.connect.service  # type: ignore[union-attr]
    service = getattr(getattr(package, "SparkConnectService$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    client = RemoteSession.builder.remote(f"sc://127.0.0.1:{service.localPort()}").create()
    yield client  # type: ignore[misc]
    client.stop()
    service.stop(getattr(service, "stop$default$1")(), getattr(service, "stop$default$2")())


def test_over_connect(remote: SparkSession, broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3, 2)
    found = read(remote, broker, topic)
    assert found.schema == StructType.fromDDL(KAFKA_SCHEMA)
    assert found.where("partition = 0").count() == 3
