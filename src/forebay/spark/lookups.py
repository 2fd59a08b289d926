"""A compacted topic as a table: the newest value of each key, looked up whenever it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def lookup(
    spark: SparkSession, topic: str, *, bootstrap: str, options: Mapping[str, str] | None = None
) -> DataFrame:
    """The newest value of each key of a topic, with its `timestamp`, `partition` and `offset`.

    Keys whose newest value is null are deleted, and messages without a key are left out. What is read is what
    the topic has when the DataFrame is used: in every action, and in every micro-batch of a stream that is
    joined with it. `options` are those of a read; only committed messages are read unless they say otherwise.
    """
    from pyspark.sql import functions as F

    least = {"kafka.isolation.level": "read_committed", **(options or {})}
    given = {**least, "kafka.bootstrap.servers": bootstrap, "subscribe": topic, "refreshOffsets": "true"}
    columns = "key BINARY, value BINARY, partition INT, offset LONG, timestamp TIMESTAMP"
    rows = spark.read.format("forebay").schema(columns).options(**given).load().where("key IS NOT NULL")
    kept = F.struct("value", "timestamp", "partition", "offset")
    # The offsets of two partitions say nothing about each other. A key is in two of them where partitions
    # were added: there the time decides.
    each = rows.groupBy("key", "partition").agg(F.max_by(kept, "offset").alias("newest"))
    order = F.struct("newest.timestamp", "newest.partition")
    newest = each.groupBy("key").agg(F.max_by("newest", order).alias("newest"))
    return newest.select("key", "newest.*").where("value IS NOT NULL")
