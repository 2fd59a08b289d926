"""A Spark driver to be killed: copies a topic to another, exactly once, as far as its checkpoint lets it.

    python spark_driver.py BOOTSTRAP SOURCE SINK CHECKPOINT

Ends by itself, with status 0, when all that was in the source at its start is copied.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from forebay.spark.session import session

OFFSETS_PER_TRIGGER = 300


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


if __name__ == "__main__":
    spark = session("killed driver", "local[2]", quick=True)
    query = copy(spark, *sys.argv[1:])
    query.awaitTermination()
    spark.stop()
