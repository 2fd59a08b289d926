"""What Spark is given to do, the same through either connector, and how long it takes.

Every load is a function of a `Bench` and the name of a connector ("forebay" or "kafka"), and gives the rows
that it moved per second; only the shortest micro-batches are milliseconds.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from bench.client import Client
from bench.server import Address

PARTITIONS = 2
FLOOR_BATCHES = 25
FLOOR_WARM_UP = 5
TRICKLE_S = 0.2
"""From one row to the next, when they come one at a time."""
STREAM_S_MAX = 300


@dataclass(slots=True)
class Bench:
    spark: SparkSession
    address: Address
    scratch: Path
    rows: dict[int, int]
    """How many rows of each size."""
    _names: Iterator[int] = field(default_factory=count)

    @property
    def bootstrap(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    def fresh_topic(self, partitions: int = PARTITIONS) -> str:
        name = f"spark-{next(self._names)}"
        with Client(self.address) as client:
            client.create_topic(name, partitions=partitions)
        return name

    def delete(self, topic: str) -> None:
        with Client(self.address) as client:
            client.delete_topic(topic)

    def fresh_directory(self) -> Path:
        return self.scratch / f"spark-{next(self._names)}"


def source_topic(size: int) -> str:
    return f"source-{size}"


def fill(bench: Bench, size: int) -> None:
    """The topic that reads of this size are measured with."""
    with Client(bench.address) as client:
        client.create_topic(source_topic(size), partitions=PARTITIONS)
    write(bench, "forebay", source_topic(size), size, bench.rows[size])


# -- loads --------------------------------------------------------------------------------------------------


def batch_read(bench: Bench, connector: str, size: int) -> float:
    rows = _reader(bench.spark.read, bench, connector, source_topic(size)).load()
    return bench.rows[size] / timed(lambda: rows.write.format("noop").mode("overwrite").save())


def batch_to_parquet(bench: Bench, connector: str, size: int) -> float:
    rows = _reader(bench.spark.read, bench, connector, source_topic(size)).load()
    target = bench.fresh_directory()
    took_s = timed(lambda: rows.write.parquet(str(target)))
    shutil.rmtree(target)
    return bench.rows[size] / took_s


def stream_read(bench: Bench, connector: str, size: int) -> float:
    rows = _reader(bench.spark.readStream, bench, connector, source_topic(size)).load()
    return _stream_rate(bench, size, rows.writeStream.format("noop"))


def batch_write(bench: Bench, connector: str, size: int, **options: str) -> float:
    topic = bench.fresh_topic()
    took_s = timed(lambda: write(bench, connector, topic, size, bench.rows[size], **options))
    bench.delete(topic)
    return bench.rows[size] / took_s


def stream_copy(bench: Bench, connector: str, size: int) -> float:
    """A streaming query from one topic to another."""
    rows = _reader(bench.spark.readStream, bench, connector, source_topic(size)).load()
    topic = bench.fresh_topic()
    sink = rows.select("key", "value").writeStream.format(connector)
    rate = _stream_rate(bench, size, sink.option("topic", topic))
    bench.delete(topic)
    return rate


def exactly_once_write(bench: Bench, connector: str, size: int) -> float:
    return batch_write(bench, connector, size, delivery="exactly-once")


def generated(bench: Bench, size: int) -> float:
    """What making the rows takes that the writes write, without any sink."""
    rows = _rows(bench, size, bench.rows[size])
    return bench.rows[size] / timed(lambda: rows.write.format("noop").mode("overwrite").save())


def floor_ms(bench: Bench, connector: str) -> float:
    """The median time of a micro-batch of one row, of many that wait already.

    A Java consumer fetches them all with the first, and asks the broker nothing for the others.
    """
    topic = bench.fresh_topic(partitions=1)
    write(bench, "forebay", topic, 10, FLOOR_BATCHES + FLOOR_WARM_UP)
    rows = _reader(bench.spark.readStream, bench, connector, topic).option("maxOffsetsPerTrigger", 1).load()
    progress = _run_stream(bench, rows.writeStream.format("noop"))
    bench.delete(topic)
    return _trigger_ms(progress)


def live_ms(bench: Bench, connector: str) -> float:
    """The same of a stream that keeps up: rows come one at a time, each while the query waits for it."""
    topic = bench.fresh_topic(partitions=1)
    rows = _reader(bench.spark.readStream, bench, connector, topic).load()
    checkpoint = bench.fresh_directory()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        _trickle(bench, topic)
        query.processAllAvailable()
        progress = [batch for batch in query.recentProgress if batch.numInputRows]
    finally:
        query.stop()
    shutil.rmtree(checkpoint, ignore_errors=True)
    bench.delete(topic)
    return _trigger_ms(progress)


def copy_latency_ms(bench: Bench, connector: str) -> float:
    """From sending a row to one topic until a consumer has its copy from another: the median of many rows,
    each sent when the one before has arrived."""
    source, sink = bench.fresh_topic(partitions=1), bench.fresh_topic(partitions=1)
    rows = _reader(bench.spark.readStream, bench, connector, source).load()
    checkpoint = bench.fresh_directory()
    writer = rows.select("key", "value").writeStream.format(connector).option("topic", sink)
    writer = writer.option("kafka.bootstrap.servers", bench.bootstrap)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        latencies = _round_trips(bench, source, sink)
        query.processAllAvailable()  # a batch that is stopped in its last step says so at length
    finally:
        query.stop()
    shutil.rmtree(checkpoint, ignore_errors=True)
    bench.delete(source)
    bench.delete(sink)
    return 1000 * statistics.median(latencies[FLOOR_WARM_UP:])


# -- parts --------------------------------------------------------------------------------------------------


def _reader(read: Any, bench: Bench, connector: str, topic: str) -> Any:
    return (
        read.format(connector)
        .option("kafka.bootstrap.servers", bench.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )


def _rows(bench: Bench, size: int, number: int) -> DataFrame:
    return bench.spark.range(number, numPartitions=PARTITIONS).selectExpr(
        "string(id) as key", f"rpad(string(id), {size}, '.') as value"
    )


def write(bench: Bench, connector: str, topic: str, size: int, number: int, **options: str) -> None:
    writer = _rows(bench, size, number).write.format(connector).mode("append")
    writer.option("kafka.bootstrap.servers", bench.bootstrap).option("topic", topic).options(**options).save()


def _stream_rate(bench: Bench, size: int, sink: Any) -> float:
    progress = _run_stream(bench, sink)
    moved = int(sum(batch.numInputRows for batch in progress))
    assert moved == bench.rows[size], f"{moved} rows came out of {bench.rows[size]}"
    return 1000.0 * moved / float(sum(batch.durationMs["triggerExecution"] for batch in progress))


def _trickle(bench: Bench, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 0})
    for number in range(FLOOR_BATCHES + FLOOR_WARM_UP):
        producer.produce(topic, f"{number}")
        assert not producer.flush(STREAM_S_MAX), "a row was not taken"
        time.sleep(TRICKLE_S)


def _round_trips(bench: Bench, source: str, sink: str) -> list[float]:
    """Seconds, of each row."""
    servers = {"bootstrap.servers": bench.bootstrap}
    producer = Producer({**servers, "linger.ms": 0})
    consumer = Consumer({**servers, "group.id": sink, "enable.auto.commit": False, "fetch.wait.max.ms": 1000})
    consumer.assign([TopicPartition(sink, 0, 0)])
    latencies = []
    try:
        for number in range(FLOOR_BATCHES + FLOOR_WARM_UP):
            sent = time.perf_counter()
            producer.produce(source, f"{number}")
            producer.flush(STREAM_S_MAX)
            message = consumer.poll(STREAM_S_MAX)
            assert message is not None and message.error() is None, "a row was not copied"
            assert message.value() == b"%d" % number, "rows are copied in their order"
            latencies.append(time.perf_counter() - sent)
    finally:
        consumer.close()
    return latencies


def _trigger_ms(progress: list[Any]) -> float:
    """The median micro-batch, without the first ones; a query that lags has fewer, with several rows each."""
    counted = progress[min(FLOOR_WARM_UP, len(progress) // 2) :]
    return float(statistics.median(batch.durationMs["triggerExecution"] for batch in counted))


def _run_stream(bench: Bench, sink: Any) -> list[Any]:
    """Everything that is there, and the progress of each micro-batch."""
    checkpoint = bench.fresh_directory()
    sink = sink.option("checkpointLocation", str(checkpoint)).option(
        "kafka.bootstrap.servers", bench.bootstrap
    )
    query = sink.trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_S_MAX), "the stream did not come to its end"
    shutil.rmtree(checkpoint, ignore_errors=True)
    return [batch for batch in query.recentProgress if batch.numInputRows]


def timed(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
