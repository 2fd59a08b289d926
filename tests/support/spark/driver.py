"""A Spark driver to be killed: copies a topic to another, exactly once, as far as its checkpoint lets it.

    python tests/support/spark/driver.py BOOTSTRAP SOURCE SINK CHECKPOINT JVM_OPTIONS

Ends by itself, with status 0, when all that was in the source at its start is copied.
"""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from forebay.spark.session import DRIVER_OPTIONS, session

OFFSETS_PER_TRIGGER = 300
STOP_SECONDS_MAX = 60


def copy(spark: SparkSession, bootstrap: str, source: str, sink: str, checkpoint: str) -> StreamingQuery:
    rows = (
        spark.readStream.format("forebay")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load()
    )
    return (
        rows.select("key", "value")
        .writeStream.format("forebay")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("delivery", "exactly-once")
        .option("kafka.batch.size", 2_000)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def end(session: SparkSession) -> None:
    """End the JVM too, and what is left of the connections to it."""
    gateway: Any = session.sparkContext._gateway
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(STOP_SECONDS_MAX)
        SparkContext._gateway = SparkContext._jvm = None
        del gateway
        gc.collect()


def main(bootstrap: str, source: str, sink: str, checkpoint: str, jvm_options: str) -> None:
    spark = session("killed driver", "local[2]", quick=True, **{DRIVER_OPTIONS: jvm_options})
    copy(spark, bootstrap, source, sink, checkpoint).awaitTermination()
    end(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
