"""Streams through Spark itself: every record once, over new partitions, restarts and triggers."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from forebay.client import Admin
from forebay.spark.metrics import PrometheusListener, distances, offsets_behind
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient
from support.spark.reading import add, make_topic, value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_SECONDS = 300


class Copy:
    """A stream from a topic into Parquet files, which Spark's checkpoint keeps exact."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, topic: str, directory: Path) -> None:
        self._spark = spark
        self._options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        self._files = str(directory / "files")
        self._checkpoint = str(directory / "checkpoint")

    def start(self, trigger: dict[str, Any], **options: Any) -> StreamingQuery:
        source = self._spark.readStream.format("forebay").options(**self._options, **options).load()
        sink = source.writeStream.format("parquet").option("checkpointLocation", self._checkpoint)
        return sink.trigger(**trigger).start(self._files)

    def available_now(self, **options: Any) -> StreamingQuery:
        query = self.start({"availableNow": True}, **options)
        assert query.awaitTermination(WAIT_SECONDS)
        return query

    def values(self) -> list[bytes]:
        return sorted(bytes(row.value) for row in self._spark.read.parquet(self._files).collect())


def catch_up(query: StreamingQuery) -> None:
    """Twice: a trigger that had looked for data just before the first call may be what ends it."""
    query.processAllAvailable()
    query.processAllAvailable()


def wait_for_page(listener: PrometheusListener, line: str) -> str:
    """What Prometheus gets, when it says so."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics", timeout=30) as answer:
            page: str = answer.read().decode()
        if line in page:
            return page
        assert time.monotonic() < deadline, page
        time.sleep(0.1)


def test_a_running_stream_sees_new_records_and_new_partitions(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(broker.bootstrap, topic, 30, 10)
    copy = Copy(spark, broker, topic, tmp_path)
    group = f"{topic}-group"
    listener = PrometheusListener(port=0)
    spark.streams.addListener(listener)
    query = copy.start({"processingTime": "0 seconds"}, maxOffsetsPerTrigger=25, **{"kafka.group.id": group})
    try:
        catch_up(query)
        with Admin(broker.bootstrap) as admin, WireClient(broker.bootstrap) as client:
            admin.add_partitions(topic, 3)
            add(client, topic, 2, 5)
            catch_up(query)
            assert admin.committed(group) == {(topic, 0): 30, (topic, 1): 10, (topic, 2): 5}
        page = wait_for_page(
            listener, f'forebay_spark_offsets_behind_latest_max{{query="{query.id}",source="0"}} 0'
        )
        assert f'forebay_spark_batch_id{{query="{query.id}"}}' in page
        backlogs = [
            sum(distances(progress.sources[0].endOffset, progress.sources[0].latestOffset))
            for progress in query.recentProgress
            if progress.numInputRows
        ]
        first = next(progress for progress in query.recentProgress if progress.numInputRows)
    finally:
        query.stop()
        spark.streams.removeListener(listener)
        listener.close()
    assert backlogs == [16, 0, 0]
    assert offsets_behind(first["sources"][0]) == (4, 12, 8.0)
    everything = [value(p, n) for p, count in enumerate((30, 10, 5)) for n in range(count)]
    assert copy.values() == sorted(everything)


def test_available_now_again_and_again(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(broker.bootstrap, topic, 12, 3)
    copy = Copy(spark, broker, topic, tmp_path)
    group = f"{topic}-group"
    first = copy.available_now(maxOffsetsPerTrigger=10, **{"kafka.group.id": group})
    assert [progress.numInputRows for progress in first.recentProgress] == [10, 5]
    with Admin(broker.bootstrap) as admin, WireClient(broker.bootstrap) as client:
        # The last batch too, for which Spark's own commit never comes.
        assert admin.committed(group) == {(topic, 0): 12, (topic, 1): 3}
        add(client, topic, 1, 4, first=3)
        copy.available_now(**{"kafka.group.id": group})
        assert admin.committed(group) == {(topic, 0): 12, (topic, 1): 7}
    assert copy.values() == sorted(value(p, n) for p, count in enumerate((12, 7)) for n in range(count))


def test_a_stream_whose_topic_was_deleted_says_so(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(broker.bootstrap, topic, 2)
    copy = Copy(spark, broker, topic, tmp_path)
    copy.available_now()
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic(topic)
    with pytest.raises(StreamingQueryException, match=r"does not exist any more[\s\S]*failOnDataLoss=false"):
        copy.available_now()
    copy.available_now(failOnDataLoss=False)
    assert copy.values() == [value(0, 0), value(0, 1)]
