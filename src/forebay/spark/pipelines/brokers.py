"""Where the topics of a pipeline are, and the data source as every step uses it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.errors import ForebayError
from forebay.spark.source.offset_lookup import offsets_at
from forebay.spark.source.offset_ranges import EARLIEST, LATEST, TopicPartition
from forebay.spark.wire.connections import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SOURCE = "forebay"


class NoTopic(ForebayError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic {topic}: `forebay topic create {topic}` makes it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the data source, such as kafka.security.protocol."""

    def cluster(self) -> Cluster:
        return Cluster.shared(self.bootstrap, self.options)

    def partitions(self, topic: str) -> int:
        """How many a topic has, which must exist."""
        cluster = self.cluster()
        found = cluster.attempt(lambda: cluster.partitions(topic))
        if not found:
            raise NoTopic(topic)
        return len(found)

    def read(self, spark: SparkSession, topic: str, **options: str) -> DataFrame:
        return spark.read.format(SOURCE).options(**self._reading(topic), **options).load()

    def read_first(self, spark: SparkSession, topic: str, records: int) -> DataFrame:
        """Some of the oldest messages, about as many from each partition."""
        cluster = self.cluster()
        places = [TopicPartition(topic, at) for at in range(self.partitions(topic))]
        first = offsets_at(cluster, dict.fromkeys(places, EARLIEST))
        last = offsets_at(cluster, dict.fromkeys(places, LATEST), read_committed=True)
        share = -(-records // len(places))
        ends = {str(at.partition): min(last[at], first[at] + share) for at in places}
        return self.read(spark, topic, endingOffsets=json.dumps({topic: ends}))

    def read_stream(self, spark: SparkSession, topic: str, **options: str) -> DataFrame:
        return spark.readStream.format(SOURCE).options(**self._reading(topic), **options).load()

    def write_stream(self, rows: DataFrame, topic: str, **options: str) -> DataStreamWriter:
        """Each row once, for readers of what is committed."""
        given = {"kafka.bootstrap.servers": self.bootstrap, **self.options, "topic": topic, **options}
        return rows.writeStream.format(SOURCE).options(**{"delivery": "exactly-once", **given})

    def _reading(self, topic: str) -> dict[str, str]:
        """Only what is committed, unlike Spark's default: a pipeline has no use for what never happened."""
        isolation = {"kafka.isolation.level": "read_committed"}
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **isolation, **self.options}
