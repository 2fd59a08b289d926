"""What Spark is given to do, the same through either connector, and how long it takes.

Every load is a function of a `Bench` and the name of a connector ("forebay" or "kafka"), and gives the rows
that it moved per second; only the floor gives milliseconds.
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

from pyspark.sql import DataFrame, SparkSession

from bench.client import Client
from bench.load import Address

PARTITIONS = 2
FLOOR_BATCHES = 30
FLOOR_WARM_UP = 5
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
    _write(bench, "forebay", source_topic(size), size, bench.rows[size])


# -- loads --------------------------------------------------------------------------------------------------


def batch_read(bench: Bench, connector: str, size: int) -> float:
    rows = _reader(bench.spark.read, bench, connector, source_topic(size)).load()
    return bench.rows[size] / _timed(lambda: rows.write.format("noop").mode("overwrite").save())


def batch_to_parquet(bench: Bench, connector: str, size: int) -> float:
    rows = _reader(bench.spark.read, bench, connector, source_topic(size)).load()
    target = bench.fresh_directory()
    took_s = _timed(lambda: rows.write.parquet(str(target)))
    shutil.rmtree(target)
    return bench.rows[size] / took_s


def stream_read(bench: Bench, connector: str, size: int) -> float:
    rows = _reader(bench.spark.readStream, bench, connector, source_topic(size)).load()
    progress = _run_stream(bench, rows)
    moved = int(sum(batch.numInputRows for batch in progress))
    assert moved == bench.rows[size], f"{moved} rows came out of {bench.rows[size]}"
    return 1000.0 * moved / float(sum(batch.durationMs["triggerExecution"] for batch in progress))


def batch_write(bench: Bench, connector: str, size: int, **options: str) -> float:
    topic = bench.fresh_topic()
    took_s = _timed(lambda: _write(bench, connector, topic, size, bench.rows[size], **options))
    bench.delete(topic)
    return bench.rows[size] / took_s


def exactly_once_write(bench: Bench, connector: str, size: int) -> float:
    return batch_write(bench, connector, size, delivery="exactly-once")


def generated(bench: Bench, size: int) -> float:
    """What making the rows takes that the writes write, without any sink."""
    rows = _rows(bench, size, bench.rows[size])
    return bench.rows[size] / _timed(lambda: rows.write.format("noop").mode("overwrite").save())


def floor_ms(bench: Bench, connector: str) -> float:
    """The median time of a micro-batch of one row."""
    topic = bench.fresh_topic(partitions=1)
    _write(bench, "forebay", topic, 10, FLOOR_BATCHES + FLOOR_WARM_UP)
    reader = _reader(bench.spark.readStream, bench, connector, topic).option("maxOffsetsPerTrigger", 1)
    progress = _run_stream(bench, reader.load())[FLOOR_WARM_UP:]
    bench.delete(topic)
    return float(statistics.median(batch.durationMs["triggerExecution"] for batch in progress))


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


def _write(bench: Bench, connector: str, topic: str, size: int, number: int, **options: str) -> None:
    writer = _rows(bench, size, number).write.format(connector).mode("append")
    writer.option("kafka.bootstrap.servers", bench.bootstrap).option("topic", topic).options(**options).save()


def _run_stream(bench: Bench, rows: DataFrame) -> list[Any]:
    """Everything that is there, and the progress of each micro-batch."""
    checkpoint = bench.fresh_directory()
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(STREAM_S_MAX), "the stream did not come to its end"
    shutil.rmtree(checkpoint, ignore_errors=True)
    return [batch for batch in query.recentProgress if batch.numInputRows]


def _timed(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
