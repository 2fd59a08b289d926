"""Rows that Spark writes, as an independent client reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition
from confluent_kafka import KafkaError as ClientError
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import BinaryType

from forebay.spark.sink.transactions.batch_decisions import Ledger
from forebay.spark.sink.transactions.coordinator_choice import state_partition_of
from forebay.spark.sink.transactions.participants import transactional_id_of
from forebay.spark.wire.connections import Cluster
from forebay.testing import Broker
from forebay.wire.messages.list_groups import ListGroupsRequest
from forebay.wire.messages.list_transactions import ListTransactionsRequest
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_consumer, know
from support.clients.wire_client import WireClient, append, batch, create
from support.spark.writing import wait_until_closed

HEADERS = "array<struct<key: string, value: binary>>"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(process=True, settings={"transaction.state.log.num.partitions": 4}) as running:
        yield running.bootstrap_servers


@pytest.fixture
def made(bootstrap: str, topic: str) -> str:
    """The name of a topic with three partitions."""
    make(bootstrap, topic)
    return topic


def make(bootstrap: str, topic: str, partitions: int = 3) -> None:
    with WireClient(bootstrap) as client:
        create(client, topic, partitions)


def write(rows: DataFrame, bootstrap: str, **options: str) -> None:
    named = {name.replace("_", "."): value for name, value in options.items()}
    rows.write.format("forebay").mode("append").option("kafka.bootstrap.servers", bootstrap).options(
        **named
    ).save()


def messages(bootstrap: str, topic: str, partitions: int = 3) -> list[Message]:
    """All committed messages, by partition and offset."""
    consumer = confluent_consumer(
        bootstrap, isolation_level="read_committed", enable_partition_eof=True, fetch_wait_max_ms=20
    )
    left, found = set(range(partitions)), []
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        know(consumer, {topic})
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in left])
        while left:
            assert time.monotonic() < deadline, f"the end of {topic} was not reached"
            for message in consumer.consume(1_000, 0.02):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == ClientError._PARTITION_EOF:
                    left.discard(message.partition() or 0)
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))


def texts(bootstrap: str, topic: str) -> list[str]:
    return sorted((message.value() or b"").decode() for message in messages(bootstrap, topic))


# -- columns ------------------------------------------------------------------------------------------------


def test_every_part_of_a_row_arrives(spark: SparkSession, bootstrap: str, made: str) -> None:
    rows: list[tuple[Any, ...]] = [
        ("key", "value", 2, [("a", b"1"), ("b", None), ("a", b"2")], 1_700_000_000_123),
        (None, "no key", 0, None, 1_700_000_000_000),
        ("tombstone", None, 1, [], 1_700_000_000_999),
        (None, None, 1, None, 1_699_999_999_000),
        ("ключ", "значение", 1, [("ü", b"\x00\xff")], 1_700_000_001_000),
    ]
    schema = f"key string, value string, partition int, headers {HEADERS}, ms long"
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    write(frame.withColumn("timestamp", F.timestamp_millis("ms")), bootstrap, topic=made)

    got = {
        (each.partition(), each.key(), each.value()): (each.headers() or [], each.timestamp()[1])
        for each in messages(bootstrap, made)
    }
    wanted = {
        (partition, key and key.encode(), value and value.encode()): (headers or [], ms)
        for key, value, partition, headers, ms in rows
    }
    assert got == wanted


@pytest.mark.parametrize("headers", ["array(null)", "array(named_struct('key', null, 'value', X'00'))"])
def test_a_header_without_a_key_is_refused_before_anything_is_written(
    spark: SparkSession, bootstrap: str, made: str, headers: str
) -> None:
    frame = spark.range(3).coalesce(1).selectExpr("'v' value", f"cast({headers} AS {HEADERS}) headers")
    with pytest.raises(PySparkException, match="a header is null or has a null key"):
        write(frame, bootstrap, topic=made)
    assert texts(bootstrap, made) == []


def test_keys_choose_partitions_and_rows_keep_their_order(
    spark: SparkSession, bootstrap: str, made: str
) -> None:
    frame = (
        spark.range(3_000).coalesce(1).selectExpr("cast(string(id % 7) as binary) key", "string(id) value")
    )
    write(frame, bootstrap, topic=made, kafka_batch_size="2000")
    by_key: dict[bytes, list[tuple[int, int]]] = {}
    for each in messages(bootstrap, made):
        by_key.setdefault(each.key() or b"", []).append((each.partition() or 0, int(each.value() or b"")))
    for found in by_key.values():
        assert len({partition for partition, _ in found}) == 1
        assert [number for _, number in found] == sorted(number for _, number in found)
    assert sum(map(len, by_key.values())) == 3_000


def test_rows_choose_their_topic_unless_the_option_does(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    for name in ("a", "b", "c"):
        make(bootstrap, f"{topic}-{name}")
    frame = spark.range(10).selectExpr(
        "string(id) value", f"if(id < 3, '{topic}-a', '{topic}-b') topic", "42 other"
    )
    write(frame, bootstrap)
    assert texts(bootstrap, f"{topic}-a") == ["0", "1", "2"]
    assert texts(bootstrap, f"{topic}-b") == ["3", "4", "5", "6", "7", "8", "9"]
    write(frame, bootstrap, topic=f"{topic}-c")
    assert len(texts(bootstrap, f"{topic}-c")) == 10


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_by_others(spark: SparkSession, bootstrap: str, made: str, codec: str) -> None:
    frame = spark.range(500).coalesce(1).selectExpr("concat('value ', id) value")
    write(frame, bootstrap, topic=made, kafka_compression_type=codec)
    assert texts(bootstrap, made) == sorted(f"value {n}" for n in range(500))


# -- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "options", "message"),
    [
        ("id as value", {"topic": "t"}, "column value is bigint"),
        ("string(id) as key", {"topic": "t"}, "there is no column value"),
        ("string(id) as value", {}, "Give the option topic"),
        ("string(id) as value", {"topic": "t", "tpoic": "t"}, "option tpoic is not known"),
    ],
)
def test_a_mistake_is_reported_when_the_write_is_planned(
    spark: SparkSession, bootstrap: str, select: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        write(spark.range(1).selectExpr(select), bootstrap, **options)


def test_a_row_without_a_topic_fails_the_write(spark: SparkSession, bootstrap: str) -> None:
    frame = spark.range(1).selectExpr("string(id) value", "cast(null as string) topic")
    with pytest.raises(PySparkException, match="a row has no topic"):
        write(frame, bootstrap)


# -- delivery -----------------------------------------------------------------------------------------------


def test_an_exactly_once_write_that_fails_is_not_seen_at_all(
    spark: SparkSession, bootstrap: str, made: str
) -> None:
    good = spark.range(1_000, numPartitions=2).selectExpr("string(id) value", "cast(null as int) partition")
    bad = good.withColumn("partition", F.expr("if(value = '999', 77, null)"))
    with pytest.raises(PySparkException, match="partition 77"):
        write(bad, bootstrap, topic=made, delivery="exactly-once")
    wait_until_closed(bootstrap, made, 3)
    assert messages(bootstrap, made) == []
    write(good, bootstrap, topic=made, delivery="exactly-once")
    assert len(texts(bootstrap, made)) == 1_000


def test_a_write_without_an_id_leaves_nothing_behind(spark: SparkSession, bootstrap: str, made: str) -> None:
    before = traces(bootstrap)
    frame = spark.range(100, numPartitions=2).selectExpr("string(id) value")
    write(frame, bootstrap, topic=made, delivery="exactly-once")
    assert texts(bootstrap, made) == sorted(map(str, range(100)))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while left := traces(bootstrap) - before:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def traces(bootstrap: str) -> set[str]:
    """The groups and transactional ids that the broker knows."""
    with Cluster(bootstrap) as cluster:
        groups = cluster.any().ask(ListGroupsRequest()).groups
        ids = cluster.any().ask(ListTransactionsRequest()).transaction_states
    return {each.group_id for each in groups} | {each.transactional_id for each in ids}


def test_a_job_with_an_id_is_done_once(spark: SparkSession, bootstrap: str, made: str) -> None:
    frame = spark.range(100, numPartitions=2).selectExpr("string(id) value")
    for _ in range(2):
        write(frame, bootstrap, topic=made, delivery="exactly-once", jobId=f"{made} of today")
    assert texts(bootstrap, made) == sorted(map(str, range(100)))


def test_the_tasks_of_a_write_share_a_coordinator(spark: SparkSession, bootstrap: str, made: str) -> None:
    frame = spark.range(100, numPartitions=5).selectExpr("string(id) value")
    write(frame, bootstrap, topic=made, delivery="exactly-once", jobId=made)
    with Cluster(bootstrap) as cluster:
        home, decision = state_partition_of(cluster, f"spark-sink-{made}"), Ledger(cluster, made).read()
    assert home is not None and decision is not None
    assert home.partitions == 4
    assert decision.participants == (), "the record of a finished job is short"
    tasks = [each for each in traces(bootstrap) if each.startswith(transactional_id_of(made, ""))]
    assert len(tasks) == 5
    assert all(home.holds(each) for each in tasks)


def stream(spark: SparkSession, bootstrap: str, source: str, sink: str, checkpoint: Path) -> StreamingQuery:
    rows = (
        spark.readStream.format("forebay")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 60)
        .load()
    )
    return (
        rows.select("key", "value")
        .writeStream.format("forebay")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_goes_on_where_its_checkpoint_says(
    spark: SparkSession, bootstrap: str, made: str, tmp_path: Path
) -> None:
    source = f"{made}-source"
    make(bootstrap, source)
    for first in (0, 100):
        frame = spark.range(first, first + 100).selectExpr("string(id) key", "string(id) value")
        write(frame, bootstrap, topic=source)
        assert stream(spark, bootstrap, source, made, tmp_path).awaitTermination(300)
    # Spark loses its note that the last batch was committed, and repeats it.
    commits = sorted((int(path.name), path) for path in (tmp_path / "commits").glob("[0-9]*"))
    assert len(commits) >= 4
    last, path = commits[-1]
    path.unlink()
    path.with_name(f".{last}.crc").unlink()
    assert stream(spark, bootstrap, source, made, tmp_path).awaitTermination(300)
    assert texts(bootstrap, made) == sorted(map(str, range(200)))


def awkward(bootstrap: str) -> Callable[[str], Column]:
    """A column that hangs at one row, and fails at another as soon as a transaction is open.

    It is a function within a function so that its code goes to the workers, which cannot import tests.
    """

    def pass_on(value: bytes) -> bytes:
        import time

        from forebay.spark.sink.transactions.batch_decisions import open_ids
        from forebay.spark.wire.connections import Cluster

        if value == b"hang":
            time.sleep(600)
        if value == b"fail":
            with Cluster(bootstrap) as cluster:
                while not any(each.startswith("spark-") for each in open_ids(cluster)):
                    time.sleep(0.05)
            raise ValueError("a bad row")
        return value

    return F.udf(pass_on, BinaryType(), useArrow=False)


def test_a_stream_that_fails_leaves_no_transaction_of_a_killed_task_open(
    spark: SparkSession, bootstrap: str, made: str, tmp_path: Path
) -> None:
    """No task tells the driver anything: one fails, the other has written rows and waits for more."""
    source = f"{made}-source"
    make(bootstrap, source, 2)
    with WireClient(bootstrap) as client:
        append(client, source, batch(b"fail"), partition=0)
        for _ in range(25):  # Spark moves ten thousand rows at a time, the sink writes them by megabytes
            append(client, source, batch(*[bytes(1_000)] * 1_000), partition=1)
        append(client, source, batch(b"hang"), partition=1)
    rows = (
        spark.readStream.format("forebay")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        rows.select(awkward(bootstrap)("value").alias("value"))
        .writeStream.format("forebay")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", made)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="a bad row"):
        query.awaitTermination(300)
    wait_until_closed(bootstrap, made, 3)
    assert messages(bootstrap, made) == []
