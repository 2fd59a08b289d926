"""Statistics of a topic or an archive: one pass over it, then small questions to its result.

The pass groups the messages in five ways at once (by partition, minute, size, key, and key with a hash of
the value) with grouping sets, so the data is read and shuffled once however large it is. Everything
that leaves Spark is small: a row per partition, per size class and per minute (or hour or day, when there are
many), and the largest keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from forebay.lazy import dataclass
from forebay.spark.pipelines.archiving.compact import LOCK, archive_files
from forebay.spark.pipelines.archiving.layout import require_position
from forebay.spark.pipelines.brokers import Brokers
from forebay.spark.pipelines.jobs import PipelineError, Summary
from forebay.spark.pipelines.lake import Lake
from forebay.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

TOP_KEYS = 20
TOP_DUPLICATES = 10
POINTS_MAX = 3000
"""Points of the time line: above it, minutes become hours, and hours days."""
_UNITS = (("minute", 60), ("hour", 3600), ("day", 86_400))
_FIRST_S = datetime.min.replace(tzinfo=UTC).timestamp()
_LAST_S = datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()
_MINUTES = int(_FIRST_S // 60), int(_LAST_S // 60)
"""Whatever is before or after is counted with these."""
_READ_COLUMNS = ("partition", "offset", "timestamp", "key", "value")

_PASS = """
SELECT grouping_id(partition, minute, size_class, key, hash) AS grouping,
       partition, minute, size_class, key, hash,
       count(*) AS messages, sum(bytes) AS bytes,
       min(offset) AS first_offset, max(offset) AS last_offset,
       min(micros) AS first_us, max(micros) AS last_us,
       count_if(key IS NULL) AS without_key, count_if(no_value) AS without_value
FROM {rows}
GROUP BY GROUPING SETS ((partition), (minute), (size_class), (key), (key, hash))
"""
# A bit is set for each column that a grouping does not use, from left to right.
_BY_PARTITION, _BY_MINUTE, _BY_SIZE, _BY_KEY, _BY_HASH = 0b01111, 0b10111, 0b11011, 0b11101, 0b11100


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStats:
    partition: int
    messages: int
    bytes: int
    first_offset: int
    last_offset: int
    missing_offsets: int
    """Offsets within these bounds that hold no message: markers of transactions, what compaction removed."""
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStats:
    key: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStats:
    bytes_from: int
    bytes_until: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStats:
    at: datetime
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    source: str
    messages: int
    bytes: int
    """Of keys and values, as the producers gave them."""
    stored_bytes: int
    """The bytes in the brokers' logs (one replica) and in their object store, or in the archive's files."""
    without_key: int
    without_value: int
    partitions: tuple[PartitionStats, ...]
    time_unit: str
    times: tuple[TimeStats, ...]
    quiet_s: int
    """The longest stretch without a message, in whole time units."""
    sizes: tuple[SizeStats, ...]
    keys: int
    top_keys: tuple[KeyStats, ...]
    duplicates: int
    """Messages whose key and value were there before."""
    top_duplicates: tuple[KeyStats, ...]

    @property
    def compression_ratio(self) -> float:
        return self.bytes / self.stored_bytes if self.stored_bytes else 0.0

    @property
    def skew(self) -> float:
        """The largest partition against the mean: 1 is even."""
        counts = [found.messages for found in self.partitions]
        return max(counts) * len(counts) / sum(counts) if counts else 0.0

    @property
    def top_key_share(self) -> float:
        return self.top_keys[0].messages / self.messages if self.top_keys else 0.0

    @property
    def missing_offsets(self) -> int:
        return sum(found.missing_offsets for found in self.partitions)

    def summary(self, report: str | None = None, *, full: bool = False) -> Summary:
        """Tells what a person wants to know first, or everything."""
        facts = self.to_dict() if full else dict(self.facts())
        return Summary(
            title=f"stats of {self.source}", facts={**facts, **({"report": report} if report else {})}
        )

    def facts(self) -> Mapping[str, Any]:
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "stored bytes": self.stored_bytes,
            "compression ratio": round(self.compression_ratio, 2),
            "partitions": len(self.partitions),
            "skew": round(self.skew, 2),
            "keys": self.keys,
            "top key share": f"{self.top_key_share:.1%}",
            "without key": self.without_key,
            "without value": self.without_value,
            "missing offsets": self.missing_offsets,
            "duplicates": self.duplicates,
            "longest quiet": f"{self.quiet_s} s",
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        derived = ("compression_ratio", "skew", "top_key_share", "missing_offsets")
        values = {**asdict(self), **{name: getattr(self, name) for name in derived}}
        loaded: dict[str, Any] = json.loads(json.dumps(values, default=datetime.isoformat))
        return loaded


def topic_stats(spark: SparkSession, brokers: Brokers, topic: str) -> Stats:
    partitions = brokers.partitions(topic)
    rows = brokers.read(spark, topic).select(*_READ_COLUMNS)
    stored = _log_bytes(brokers, topic, partitions) + brokers.remote_bytes(topic)
    return _stats(rows, f"topic {topic}", stored)


def archive_stats(spark: SparkSession, location: str) -> Stats:
    lake = Lake(location)
    position = require_position(lake)
    with lake.lock(LOCK, shared=True):
        paths = archive_files(lake, position)
        if not paths:
            raise PipelineError(f"the archive {lake.location} has no messages yet")
        rows = spark.read.parquet(*(lake.uri(path) for path in paths)).select(*_READ_COLUMNS)
        stored = sum(lake.files.get_file_info(lake.path(path)).size for path in paths)
        return _stats(rows, f"archive of {position.topic} in {lake.location}", stored)


def _log_bytes(brokers: Brokers, topic: str, partitions: int) -> int:
    """The bytes that leaders have on disk, each asked for its own partitions."""
    cluster = brokers.cluster()

    def ask(partition: int) -> int:
        wanted = DescribableLogDirTopic(topic=topic, partitions=[partition])
        answer = cluster.leader(topic, partition).ask(DescribeLogDirsRequest(topics=[wanted]))
        return sum(
            found.partition_size
            for result in answer.results
            for named in result.topics
            for found in named.partitions
            if not found.is_future_key
        )

    return sum(cluster.attempt(lambda at=at: ask(at)) for at in range(partitions))  # type: ignore[misc]


# -- the pass -----------------------------------------------------------------------------------------------


def _stats(rows: DataFrame, source: str, stored_bytes: int) -> Stats:
    spark = rows.sparkSession
    grouped = spark.sql(_PASS, rows=_measured(rows)).persist()
    try:
        return _questions(grouped, source, stored_bytes)
    finally:
        grouped.unpersist()


def _measured(rows: DataFrame) -> DataFrame:
    size = "coalesce(length(key), 0) + coalesce(length(value), 0)"
    return rows.selectExpr(
        "partition",
        "offset",
        "unix_micros(timestamp) AS micros",
        "key",
        "value IS NULL AS no_value",
        f"{size} AS bytes",
        # 0, then a class for each power of two.
        f"CAST(CASE WHEN {size} = 0 THEN 0 ELSE 1 + floor(log2({size})) END AS INT) AS size_class",
        f"greatest(least(CAST(floor(unix_seconds(timestamp) / 60) AS LONG), {_MINUTES[1]}L), {_MINUTES[0]}L)"
        " AS minute",
        "xxhash64(key, value) AS hash",
    )


def _questions(grouped: DataFrame, source: str, stored_bytes: int) -> Stats:
    partitions = _partitions(grouped.where(f"grouping = {_BY_PARTITION}").orderBy("partition").collect())
    if not partitions:
        raise PipelineError(f"{source} has no messages: there is nothing to count")
    totals = grouped.where(f"grouping = {_BY_SIZE}").agg(
        {"messages": "sum", "bytes": "sum", "without_key": "sum", "without_value": "sum"}
    )
    total = totals.collect()[0]
    unit, seconds, times = _times(grouped.where(f"grouping = {_BY_MINUTE}"), partitions)
    by_key = grouped.where(f"grouping = {_BY_KEY} AND key IS NOT NULL")
    repeated = grouped.where(f"grouping = {_BY_HASH} AND messages > 1 AND key IS NOT NULL")
    again = repeated.selectExpr("coalesce(sum(messages - 1), 0) AS messages").collect()[0]
    return Stats(
        source=source,
        messages=total["sum(messages)"],
        bytes=total["sum(bytes)"],
        stored_bytes=stored_bytes,
        without_key=total["sum(without_key)"],
        without_value=total["sum(without_value)"],
        partitions=partitions,
        time_unit=unit,
        times=times,
        quiet_s=_quiet_s([int(point.at.timestamp()) for point in times], seconds),
        sizes=_sizes(grouped.where(f"grouping = {_BY_SIZE}").orderBy("size_class").collect()),
        keys=by_key.count(),
        top_keys=_keys(_largest(by_key, TOP_KEYS)),
        duplicates=again["messages"],
        top_duplicates=_keys(_largest(repeated, TOP_DUPLICATES)),
    )


def _largest(rows: DataFrame, count: int) -> list[Row]:
    return rows.orderBy("messages", "key", ascending=[False, True]).limit(count).collect()


def _partitions(rows: Iterable[Row]) -> tuple[PartitionStats, ...]:
    return tuple(
        PartitionStats(
            partition=row["partition"],
            messages=row["messages"],
            bytes=row["bytes"],
            first_offset=row["first_offset"],
            last_offset=row["last_offset"],
            missing_offsets=row["last_offset"] - row["first_offset"] + 1 - row["messages"],
            first_at=moment_of(row["first_us"] / 1_000_000),
            last_at=moment_of(row["last_us"] / 1_000_000),
        )
        for row in rows
    )


def _times(
    minutes: DataFrame, partitions: Iterable[PartitionStats]
) -> tuple[str, int, tuple[TimeStats, ...]]:
    """The time line, in the finest unit that keeps it short."""
    found = list(partitions)
    span_s = (max(one.last_at for one in found) - min(one.first_at for one in found)).total_seconds()
    unit, seconds = next(((name, size) for name, size in _UNITS if span_s / size < POINTS_MAX), _UNITS[-1])
    rows = (
        minutes.selectExpr(f"floor(minute * 60 / {seconds}) * {seconds} AS at", "messages", "bytes")
        .groupBy("at")
        .sum("messages", "bytes")
        .orderBy("at")
    )
    times = [
        TimeStats(at=moment_of(at), messages=messages, bytes=size) for at, messages, size in rows.collect()
    ]
    return unit, seconds, tuple(times)


def moment_of(seconds: float) -> datetime:
    """Spark would give times without a zone, in that of the driver.

    Brokers take any timestamp. One that no date can show is the nearest that can be shown.
    """
    return datetime.fromtimestamp(min(max(seconds, _FIRST_S), _LAST_S), UTC)


def _quiet_s(times_s: list[int], unit_s: int) -> int:
    steps = (later - earlier for earlier, later in pairwise(times_s))
    return max((step - unit_s for step in steps), default=0)


def _sizes(rows: Iterable[Row]) -> tuple[SizeStats, ...]:
    return tuple(
        SizeStats(
            bytes_from=_class_start(row["size_class"]),
            bytes_until=_class_start(row["size_class"] + 1),
            messages=row["messages"],
            bytes=row["bytes"],
        )
        for row in rows
    )


def _class_start(size_class: int) -> int:
    return 2 ** (size_class - 1) if size_class else 0


def _keys(rows: Iterable[Row]) -> tuple[KeyStats, ...]:
    return tuple(
        KeyStats(key=_readable(row["key"]), messages=row["messages"], bytes=row["bytes"]) for row in rows
    )


def _readable(key: bytes | bytearray) -> str:
    try:
        text = bytes(key).decode()
    except UnicodeDecodeError:
        return f"0x{bytes(key).hex()}"
    return text if text.isprintable() else f"0x{bytes(key).hex()}"
