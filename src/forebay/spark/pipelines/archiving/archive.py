"""A topic into a lake, each message once: two weeks in the brokers become years in files.

Spark reads what is committed, batch by batch. The tasks write the files of a batch (hour_files.py), and when
all are there the driver says that the batch counts: in position.json, and for Iceberg and Delta in the
table's own log first (tables/). A batch that Spark repeats after a crash is either known to count, and
passed over, or its files are removed and written again (beginning.py).

The checkpoint lies in the archive. If it is lost, position.json still knows where to go on.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from forebay.lazy import dataclass
from forebay.spark.pipelines.archiving.batches import BatchWriter
from forebay.spark.pipelines.archiving.beginning import begin
from forebay.spark.pipelines.archiving.decoded import DecodeSettings
from forebay.spark.pipelines.archiving.layout import CHECKPOINT, PARQUET, Position, read_position
from forebay.spark.pipelines.archiving.letters import Letters, are_written
from forebay.spark.pipelines.archiving.tables.catalogs import CatalogSettings
from forebay.spark.pipelines.archiving.tables.table import open_table
from forebay.spark.pipelines.brokers import NO_TOLERANCE, Brokers, Tolerance
from forebay.spark.pipelines.jobs import ONCE, Job, PipelineError, Trigger, query_name
from forebay.spark.pipelines.lake import Lake, absolute
from forebay.spark.pipelines.versions import require_limited_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_RECORDS = 1_000_000
"""Offsets of a batch: enough for files of a good size, little enough to repeat after a crash."""
SHORT_RECORDS = 1_000_000
"""A JVM that compiles less saves ten seconds of CPU time at its start, and has lost them after about so many
messages."""
EARLIEST = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    format: str = PARQUET
    trigger: Trigger = ONCE
    checkpoint: str | None = None
    """Where Spark keeps its checkpoint; inside the archive unless given."""
    batch_records: int = BATCH_RECORDS
    group: str | None = None
    """A consumer group that shows the lag."""
    decode: DecodeSettings | None = None
    """Values of a schema registry get a column more, with their fields."""
    dead_letters: str | None = None
    """A topic for the values that do not fit their schema. They are in the archive, too, without fields."""
    catalog: CatalogSettings | None = None
    """Of an Iceberg table; a file in the archive unless given."""
    tolerance: Tolerance = NO_TOLERANCE
    """Things that the archive may pass over."""


def archive(
    spark: SparkSession, brokers: Brokers, topic: str, to: str, settings: ArchiveSettings | None = None
) -> Job:
    """Start archiving a topic into a directory; the job reports the progress."""
    settings = settings or ArchiveSettings()
    require_limited_batches("an archive")
    partitions = brokers.partitions(topic)
    lake = Lake(to)
    lock = lake.lock("archive")
    try:
        position = begin(
            lake,
            topic,
            settings.format,
            partitions,
            settings.decode,
            topic_id=brokers.topic_id(topic),
            catalog=settings.catalog,
            letters_written=partial(are_written, brokers),
        )
        letters = letters_of(brokers, topic, settings.dead_letters, is_decoded=position.decoded is not None)
        table = open_table(lake, position, settings.catalog)
        writer = BatchWriter(lake, table, position, settings.decode, letters)
        start = _starting_offsets(topic, position, partitions)
        rows = _stream(spark, brokers, topic, start, settings)
        checkpoint = absolute(settings.checkpoint or lake.uri(CHECKPOINT))
        stream = rows.writeStream.queryName(query_name(f"archive {topic}", checkpoint)).foreachBatch(writer)
        stream = stream.option("checkpointLocation", checkpoint)
        query = settings.trigger.apply(stream).start()
    except BaseException:
        lock.release()
        raise
    ends = settings.trigger.once
    return Job(f"archive of {topic}", query, writer.facts, ends=ends, closed=lock.release)


def letters_of(brokers: Brokers, topic: str, to: str | None, *, is_decoded: bool) -> Letters | None:
    """The writer of an archive's dead letters; an error if they cannot go there."""
    if to is None:
        return None
    if not is_decoded:
        raise PipelineError(
            "the dead letters of an archive are values that do not fit their schema: add --decode and"
            " --registry, or leave out --dead-letters"
        )
    letters = Letters(brokers, to)
    letters.check(topic)
    return letters


def is_short(brokers: Brokers, topic: str, to: str) -> bool:
    """True if so little is to be archived that the start of Spark is most of it."""
    position = read_position(Lake(to))
    return brokers.offsets_left(topic, {} if position is None else position.next_offsets) <= SHORT_RECORDS


def _stream(
    spark: SparkSession, brokers: Brokers, topic: str, start: str, settings: ArchiveSettings
) -> DataFrame:
    group = {} if settings.group is None else {"kafka.group.id": settings.group}
    return brokers.read_tolerantly(
        spark,
        topic,
        settings.tolerance,
        startingOffsets=start,
        includeHeaders="true",
        maxOffsetsPerTrigger=str(settings.batch_records),
        **group,
    )


def _starting_offsets(topic: str, position: Position, partitions: int) -> str:
    """Where the archive ends, in the partitions that the topic has now, which may be fewer than it had.

    Spark uses it only when there is no checkpoint.
    """
    known = position.next_offsets
    offsets = {str(at): known.get(str(at), EARLIEST) for at in range(partitions)}
    return json.dumps({topic: offsets}) if known else "earliest"
