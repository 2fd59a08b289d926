"""The Spark driver of the kill story: two streams with state, each into a topic, exactly once.

    python tests/support/spark/story_driver.py MASTER BOOTSTRAP CHECKPOINTS JVM_OPTIONS

Ends by itself, with status 0, when all that was in the topics at its start has been read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from forebay.spark.session import DRIVER_OPTIONS, session
from support.spark import driver as spark_driver
from support.spark.kill_story import (
    DELAY_S,
    OFFSETS_PER_TRIGGER,
    ORDERS,
    PAID,
    PAID_WITHIN_S,
    PAYMENTS,
    TOTALS,
    USERS,
)

API_TIMEOUT_MS = 60_000
EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"


class Streams:
    def __init__(self, spark: SparkSession, bootstrap: str, checkpoints: Path) -> None:
        self._spark, self._bootstrap, self._checkpoints = spark, bootstrap, checkpoints

    def start(self) -> list[StreamingQuery]:
        return [self._write(self._paid(), PAID), self._write(self._totals(), TOTALS)]

    def _paid(self) -> DataFrame:
        """Both joins: a stream with a stream, and with a table."""
        payments = self._stream(PAYMENTS, "of BIGINT, paid INT, at BIGINT")
        payments = payments.withColumnRenamed("time", "paid_time")
        in_time = F.expr(f"of = id AND paid_time BETWEEN time AND time + INTERVAL {PAID_WITHIN_S} SECONDS")
        paid = self._orders().join(payments, in_time)
        return self._with_country(paid).select("id", "country", "paid")

    def _totals(self) -> DataFrame:
        minute = F.window("time", "1 minute")
        counted = self._with_country(self._orders()).groupBy(minute.alias("w"), "country")
        totals = counted.agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
        number = (F.unix_timestamp("w.start") / 60).cast("int").alias("minute")
        return totals.select(number, "country", "orders", "amount")

    def _orders(self) -> DataFrame:
        orders = self._stream(ORDERS, "id BIGINT, user STRING, amount INT, at BIGINT")
        return orders.dropDuplicatesWithinWatermark(["id"])

    def _with_country(self, rows: DataFrame) -> DataFrame:
        read = self._spark.read.format("forebay").options(**self._source(USERS)).load()
        users = _fields(read, "name STRING, country STRING")
        return rows.join(users, rows["user"] == users["name"], "left")

    def _stream(self, topic: str, schema: str) -> DataFrame:
        reader = self._spark.readStream.format("forebay").options(**self._source(topic))
        reader = reader.option("startingOffsets", "earliest").option(
            "maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER
        )
        rows = _fields(reader.load(), schema)
        return rows.withColumn("time", F.timestamp_seconds("at")).withWatermark("time", f"{DELAY_S} seconds")

    def _write(self, rows: DataFrame, topic: str) -> StreamingQuery:
        value = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value")
        writer = rows.select(value).writeStream.format("forebay").options(**self._common())
        writer = writer.option("topic", topic).option("delivery", "exactly-once").queryName(topic)
        checkpoint = str(self._checkpoints / topic)
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    def _source(self, topic: str) -> dict[str, str]:
        return {**self._common(), "subscribe": topic}

    def _common(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._bootstrap,
            "kafka.default.api.timeout.ms": str(API_TIMEOUT_MS),
        }


def _fields(rows: DataFrame, schema: str) -> DataFrame:
    return rows.select(F.from_json(F.col("value").cast("string"), schema).alias("v")).select("v.*")


def main(master: str, bootstrap: str, checkpoints: str, jvm_options: str) -> None:
    settings = {
        DRIVER_OPTIONS: jvm_options,
        EXECUTOR_OPTIONS: jvm_options,
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
        # A machine that has no time for us for a minute is no reason to give up.
        "spark.network.timeout": "600s",
        "spark.python.authenticate.socketTimeout": "300s",
        # A killed executor is not the application's fault, however many there are.
        "spark.deploy.maxExecutorRetries": -1,
    }
    spark = session("kill story", master, quick=True, **settings)
    for query in Streams(spark, bootstrap, Path(checkpoints)).start():
        query.awaitTermination()
    spark_driver.end(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
