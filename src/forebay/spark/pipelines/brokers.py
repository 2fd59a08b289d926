"""Where the topics of a pipeline are, and the data source as every step uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

import pyarrow as pa

from forebay.errors import ForebayError
from forebay.lazy import dataclass
from forebay.spark.source.decode import LOST, UNREADABLE
from forebay.spark.source.offset_lookup import offsets_at
from forebay.spark.source.offset_ranges import EARLIEST, EARLIEST_LOCAL, LATEST, OffsetRange, TopicPartition
from forebay.spark.source.options import batch_options
from forebay.spark.source.partition_reader import Reading
from forebay.spark.source.remote.planning import look_up
from forebay.spark.wire.connections import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SOURCE = "forebay"
FAIL, SKIP = CHOICES = ("fail", "skip")
"""Ways to treat messages that are gone, and those that cannot be read."""
UNREADABLE_METRIC = "forebay_unreadable"
"""How the observed metrics begin that count the messages that a stream has passed over."""
LOST_METRIC = "forebay_lost"
"""How those begin that count the offsets that were gone before a stream could read them."""
ROWS, STRETCHES = "rows", "stretches"
"""The fields of the observed metrics; only lost offsets have stretches."""
_VALUES = pa.schema([("value", pa.binary())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Names what a stream may pass over."""

    on_data_loss: str = FAIL
    """Messages that were deleted before they were read."""
    on_unreadable: str = FAIL
    """Messages that nobody can decode."""

    def check(self) -> None:
        for name, value in (("on_data_loss", self.on_data_loss), ("on_unreadable", self.on_unreadable)):
            if value not in CHOICES:
                raise ForebayError(f"{name}={value}: choose {' or '.join(CHOICES)}")

    def options(self) -> dict[str, str]:
        self.check()
        return {
            "failOnDataLoss": str(self.on_data_loss == FAIL).lower(),
            "unreadableRecords": "fail" if self.on_unreadable == FAIL else "mark",
            "lostRecords": "skip" if self.on_data_loss == FAIL else "mark",
        }


NO_TOLERANCE = Tolerance()


def without_counted(rows: DataFrame, name: str, condition: str) -> DataFrame:
    """The rows for which the condition does not hold. The others are counted, as an observed metric."""
    from pyspark.sql import functions as F

    counted = F.coalesce(F.count_if(F.expr(condition)), F.lit(0)).alias(ROWS)
    return rows.observe(name, counted).where(f"NOT ({condition})")


def without_lost(rows: DataFrame, topic: str) -> DataFrame:
    """The rows of messages. Those that stand for lost offsets are counted, as an observed metric."""
    from pyspark.sql import functions as F

    is_lost = F.col("timestampType") == LOST
    offsets = F.when(is_lost, F.col("value").cast("string").cast("bigint"))
    lost = F.coalesce(F.sum(offsets), F.lit(0)).alias(ROWS)
    stretches = F.coalesce(F.count_if(is_lost), F.lit(0)).alias(STRETCHES)
    return rows.observe(f"{LOST_METRIC} {topic}", lost, stretches).where(~is_lost)


def tolerantly(rows: DataFrame, topic: str, tolerance: Tolerance) -> DataFrame:
    """The rows of a stream with the options of the tolerance: what it passes over is counted."""
    if tolerance.on_data_loss == SKIP:
        rows = without_lost(rows, topic)
    if tolerance.on_unreadable == FAIL:
        return rows
    unreadable = f"timestampType = {UNREADABLE}"
    return without_counted(rows, f"{UNREADABLE_METRIC} {topic}", unreadable)


def without_marks(rows: DataFrame) -> DataFrame:
    """The rows of messages, without those that stand for something that is passed over."""
    return rows.where(f"timestampType NOT IN ({UNREADABLE}, {LOST})")


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

    def cluster_id(self) -> str:
        """The name that brokers have for their cluster, under whichever address it is reached."""
        cluster = self.cluster()
        return cluster.attempt(lambda: cluster.refresh([])).cluster_id or self.bootstrap

    def partitions(self, topic: str) -> int:
        """How many a topic has, which must exist."""
        cluster = self.cluster()
        found = cluster.attempt(lambda: cluster.partitions(topic))
        if not found:
            raise NoTopic(topic)
        return len(found)

    def topic_id(self, topic: str) -> str:
        """The id of a topic, which must exist: another one when it was made anew. Empty without topic ids."""
        self.partitions(topic)
        return self.cluster().topic_ids([topic]).get(topic, "")

    def offsets_left(self, topic: str, begin: Mapping[str, int]) -> int:
        """How many offsets a topic has from these on, by partition; from its first where none is given."""
        cluster = self.cluster()
        places = [TopicPartition(topic, at) for at in range(self.partitions(topic))]
        first = offsets_at(cluster, dict.fromkeys(places, EARLIEST))
        last = offsets_at(cluster, dict.fromkeys(places, LATEST), read_committed=True)
        return sum(max(0, last[at] - max(first[at], begin.get(str(at.partition), 0))) for at in places)

    def remote_bytes(self, topic: str) -> int:
        """The bytes of a topic that lie in its object store and on no broker's disk."""
        places = [TopicPartition(topic, at) for at in range(self.partitions(topic))]
        cluster, remote = self.cluster(), batch_options(self._reading(topic)).fetching.remote
        found = look_up(cluster, remote, places)
        if found is None or not found.manifests:
            return 0
        local = offsets_at(cluster, dict.fromkeys(found.manifests, EARLIEST_LOCAL))
        return sum(
            segment.data_bytes
            for at, manifest in found.manifests.items()
            for segment in manifest.segments
            if segment.next_offset <= local[at]
        )

    def latest(self, topic: str) -> dict[str, int]:
        """The end of each partition of what is committed now, by its number as in JSON."""
        places = [TopicPartition(topic, at) for at in range(self.partitions(topic))]
        last = offsets_at(self.cluster(), dict.fromkeys(places, LATEST), read_committed=True)
        return {str(at.partition): offset for at, offset in sorted(last.items())}

    def read(self, spark: SparkSession, topic: str, **options: str) -> DataFrame:
        return spark.read.format(SOURCE).options(**self._reading(topic), **options).load()

    def first_values(self, topic: str, records: int, bytes_max: int) -> list[bytes]:
        """The values of some of the oldest messages, about as many from each partition; needs no Spark."""
        cluster = self.cluster()
        places = [TopicPartition(topic, at) for at in range(self.partitions(topic))]
        first = offsets_at(cluster, dict.fromkeys(places, EARLIEST))
        last = offsets_at(cluster, dict.fromkeys(places, LATEST), read_committed=True)
        share = -(-records // len(places))
        reading = self.reading(topic, _VALUES)
        found: list[bytes] = []
        for at in places:
            wanted = OffsetRange(at, first[at], min(last[at], first[at] + share))
            found += _until(reading.read(wanted), bytes_max // len(places))
        return found

    def reading(self, topic: str, schema: pa.Schema) -> Reading:
        """Reads ranges of offsets without Spark."""
        return Reading(fetching=batch_options(self._reading(topic)).fetching, schema=schema)

    def read_stream(self, spark: SparkSession, topic: str, **options: str) -> DataFrame:
        return spark.readStream.format(SOURCE).options(**self._reading(topic), **options).load()

    def read_tolerantly(
        self, spark: SparkSession, topic: str, tolerance: Tolerance, **options: str
    ) -> DataFrame:
        """A stream that passes over what the tolerance names, and counts it."""
        rows = self.read_stream(spark, topic, **tolerance.options(), **options)
        return tolerantly(rows, topic, tolerance)

    def write_stream(self, rows: DataFrame, options: Mapping[str, str]) -> DataStreamWriter:
        """Each row once, for readers of what is committed; with the options of `writing`."""
        return rows.writeStream.format(SOURCE).options(**{"delivery": "exactly-once", **options})

    def writing(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, **self.options, "topic": topic}

    def _reading(self, topic: str) -> dict[str, str]:
        """Only what is committed, unlike Spark's default: a pipeline has no use for what never happened."""
        isolation = {"kafka.isolation.level": "read_committed"}
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **isolation, **self.options}


def _until(batches: Iterator[pa.RecordBatch], bytes_max: int) -> Iterator[bytes]:
    """Values that are there, until they are enough; one at least, where there is one."""
    size = 0
    for batch in batches:
        for value in batch.column(0):
            if value.is_valid and size < bytes_max:
                size += len(value.as_buffer())
                yield value.as_py()
        if size >= bytes_max:
            return
