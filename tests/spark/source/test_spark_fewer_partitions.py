"""Topics that get fewer partitions while they are read and written: every row once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from forebay.spark.sink.options import Columns, WriteOptions
from forebay.spark.sink.producer import Limits, Producer, new_identity
from forebay.spark.sink.task import TaskSink
from forebay.spark.source.data_loss import DataLoss
from forebay.spark.wire.connections import Cluster
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.brokers.replicated import until
from support.clients.view_calls import make_view
from support.clients.wire_client import WireClient, create, read_all
from support.compat.folding import delete_closed, set_partitions
from support.spark.reading import add, batch_reader, make_topic, micro_batch, stream_reader, value, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

BEFORE, AFTER = 12, 4
EACH = 6
"""Records of a partition, two thirds of which have a key."""
BEGIN = {"startingOffsets": "earliest"}


@pytest.fixture
def quick_broker(start_broker: StartBroker) -> BrokerProcess:
    """Takes closed partitions away as soon as they are empty."""
    return start_broker("forebay.fold.grace.ms=0", "log.retention.check.interval.ms=200")


def send_to_all(bootstrap: str, topic: str, first: int) -> list[bytes]:
    """As a producer does that knows the old count."""
    with WireClient(bootstrap) as client:
        for partition in range(BEFORE):
            add(client, topic, partition, EACH, first)
    return everything(first)


def everything(first: int = 0) -> list[bytes]:
    return [value(partition, first + n) for partition in range(BEFORE) for n in range(EACH)]


def take_away(bootstrap: str, topic: str) -> None:
    until(lambda: delete_closed(bootstrap, topic, AFTER), "the closed partitions go")


def test_a_stream_goes_on_without_what_it_has_read(quick_broker: BrokerProcess, topic: str) -> None:
    bootstrap = quick_broker.bootstrap
    make_topic(bootstrap, topic, *[EACH] * BEFORE, retention_ms="-1")  # their times are of long ago
    options = {"subscribe": topic, "kafka_group_id": f"{topic}-group", **BEGIN}
    reader = stream_reader(bootstrap, **options)
    beginning = reader.initialOffset()
    found, end = micro_batch(reader, beginning)
    assert found == sorted(everything())
    set_partitions(bootstrap, topic, AFTER)
    more = send_to_all(bootstrap, topic, EACH)
    assert values(batch_reader(bootstrap, subscribe=topic)) == sorted(everything() + more)
    found, end = micro_batch(reader, end)
    assert found == sorted(more)
    take_away(bootstrap, topic)
    open_ends = {topic: {str(index): EACH + EACH * BEFORE // AFTER for index in range(AFTER)}}
    assert micro_batch(reader, end) == ([], open_ends)
    # A query that is started again knows only how far it has come.
    assert micro_batch(stream_reader(bootstrap, **options), end) == ([], open_ends)
    assert micro_batch(reader, open_ends) == ([], open_ends)
    with pytest.raises(DataLoss, match=f"{topic}-4, .*{topic}-11 does not exist any more"):
        micro_batch(stream_reader(bootstrap, **options), beginning)
    reader.stop()


def test_a_producer_that_knows_the_old_count(quick_broker: BrokerProcess, topic: str) -> None:
    """A worker keeps what it knows of topics from task to task, and forgets it when something fails."""
    bootstrap = quick_broker.bootstrap
    with WireClient(bootstrap) as client, Cluster(bootstrap, {"kafka.retry.backoff.ms": "10"}) as cluster:
        create(client, topic, BEFORE)
        options = WriteOptions(bootstrap="", topic=topic, limits=Limits())
        producer = Producer(cluster, new_identity(cluster), Limits())
        task = TaskSink(producer, options, Columns(value=0, partition=1), task=0)

        def write(text: bytes) -> None:
            rows = {"value": pa.array([text], pa.binary()), "partition": pa.array([7], pa.int32())}
            task.write(iter([pa.record_batch(rows)]))

        write(b"before")
        set_partitions(bootstrap, topic, AFTER)
        write(b"closed")
        take_away(bootstrap, topic)
        write(b"gone")
        cluster.forget()
        write(b"forgotten")
        assert [text for _, text in read_all(client, topic, 7 % AFTER)] == [b"closed", b"gone", b"forgotten"]


def test_exactly_once_from_a_shrinking_topic_and_a_view_of_it(
    spark: SparkSession, quick_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """The topic that is written to gets fewer partitions, too."""
    bootstrap, view, copy = quick_broker.bootstrap, f"{topic}-keyed", f"{topic}-copy"
    make_topic(bootstrap, topic, *[EACH] * BEFORE, retention_ms="-1")  # their times are of long ago
    with WireClient(bootstrap) as client:
        make_view(client, view, topic, "key IS NOT NULL")
        create(client, copy, BEFORE)
    rows = (
        spark.readStream.format("forebay")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": f"{topic},{view}", **BEGIN})
        .load()
        .selectExpr("key", "concat(topic, ' ', CAST(value AS STRING)) AS value")
    )
    written = (
        rows.writeStream.format("forebay")
        .options(**{"kafka.bootstrap.servers": bootstrap, "topic": copy, "delivery": "exactly-once"})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    expected = everything()
    query = written.start()
    try:
        catch_up(query)
        for name in (topic, copy):
            set_partitions(bootstrap, name, AFTER)
        expected += send_to_all(bootstrap, topic, EACH)
        catch_up(query)
        take_away(bootstrap, topic)
        expected += send_to_all(bootstrap, topic, 2 * EACH)
        catch_up(query)
    finally:
        query.stop()
    keyed = [each for each in expected if int(each.partition(b"/")[2]) % 3]
    assert Counter(read(spark, bootstrap, copy)) == Counter(
        [f"{topic} {each.decode()}" for each in expected] + [f"{view} {each.decode()}" for each in keyed]
    )
    left = [each for each in expected if int(each.partition(b"/")[0]) < AFTER or each not in everything()]
    assert Counter(read(spark, bootstrap, topic)) == Counter(each.decode() for each in left)
    shown = [each for each in left if int(each.partition(b"/")[2]) % 3]
    assert Counter(read(spark, bootstrap, view)) == Counter(each.decode() for each in shown)


def catch_up(query: StreamingQuery) -> None:
    """Twice: a trigger that had looked for data just before the first call may be what ends it."""
    query.processAllAvailable()
    query.processAllAvailable()


def read(spark: SparkSession, bootstrap: str, topic: str) -> list[str]:
    reader = spark.read.format("forebay").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", topic).option("kafka.isolation.level", "read_committed")
    return [row.value for row in reader.load().selectExpr("CAST(value AS STRING) AS value").collect()]
