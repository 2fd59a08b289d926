"""A topic into a lake, each message once: two weeks in the brokers become years in files.

Spark reads what is committed, batch by batch. The tasks write the files of a batch (hour_files.py), and when
all are there the driver says that the batch counts: in position.json, and for Iceberg and Delta in the
table's own log first (tables.py). A batch that Spark repeats after a crash is either known to count, and
passed over, or its files are removed and written again.

The checkpoint lies in the archive. If it is lost, position.json still knows where to go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forebay.lazy import dataclass
from forebay.spark.pipelines.archiving import hour_files
from forebay.spark.pipelines.archiving.decoded import DecodeSettings, decoding, looked_up
from forebay.spark.pipelines.archiving.hour_files import Written
from forebay.spark.pipelines.archiving.layout import (
    CHECKPOINT,
    NEXT_POSITION,
    PARQUET,
    POSITION,
    Position,
    leftovers,
    read_position,
)
from forebay.spark.pipelines.archiving.tables import Table, open_table
from forebay.spark.pipelines.brokers import NO_TOLERANCE, Brokers, Tolerance
from forebay.spark.pipelines.jobs import ONCE, Job, PipelineError, Trigger
from forebay.spark.pipelines.lake import Lake, absolute
from forebay.spark.pipelines.versions import require_limited_batches
from forebay.spark.schemas.decoding import Decoding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_RECORDS = 1_000_000
"""Offsets of a batch: enough for files of a good size, little enough to repeat after a crash."""
SHORT_RECORDS = 1_000_000
"""A JVM that compiles less saves ten seconds of CPU time at its start, and has lost them after about so many
messages."""
EARLIEST = -2
QUERY_ID = "sql.streaming.queryId"


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
    tolerance: Tolerance = NO_TOLERANCE
    """What the archive may pass over."""


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
        topic_id = brokers.topic_id(topic)
        position = begin(lake, topic, settings.format, partitions, settings.decode, topic_id=topic_id)
        how = decoding(position, settings.decode)
        writer = BatchWriter(lake, open_table(lake, position), position, how)
        start = _starting_offsets(topic, position, partitions)
        rows = _stream(spark, brokers, topic, start, settings)
        stream = rows.writeStream.queryName(f"archive {topic}").foreachBatch(writer)
        checkpoint = absolute(settings.checkpoint or lake.uri(CHECKPOINT))
        stream = stream.option("checkpointLocation", checkpoint)
        query = settings.trigger.apply(stream).start()
    except BaseException:
        lock.release()
        raise
    ends = settings.trigger.once
    return Job(f"archive of {topic}", query, writer.facts, ends=ends, closed=lock.release)


def is_short(brokers: Brokers, topic: str, to: str) -> bool:
    """Whether so little is to be archived that the start of Spark is most of it."""
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


def begin(
    lake: Lake,
    topic: str,
    format: str,
    partitions: int,
    decode: DecodeSettings | None = None,
    *,
    topic_id: str = "",
) -> Position:
    """The archive's position, with nothing left of batches that do not count."""
    position = read_position(lake)
    if position is None:
        kept = None if decode is None else looked_up(decode, topic)
        position = Position(
            topic=topic, topic_id=topic_id or None, format=format, partitions=partitions, decoded=kept
        )
        lake.write(POSITION, position.to_json())
    check_same(lake, position, topic, format, decode)
    check_not_made_anew(lake, position, topic_id)
    lake.clear_scratch()
    if format == PARQUET:
        for file in leftovers(lake.list(), position):
            lake.delete(file.path)
    else:
        # A table does not know files that were never added.
        position = _with_what_the_table_holds(lake, position)
    return replace(
        position,
        topic_id=position.topic_id or topic_id or None,
        partitions=max(position.partitions, partitions),
    )


def check_same(
    lake: Lake, position: Position, topic: str, format: str, decode: DecodeSettings | None = None
) -> None:
    if position.topic != topic or position.format != format:
        raise PipelineError(
            f"{lake.location} is an archive of topic {position.topic} as {position.format}:"
            f" give each topic and format a directory of its own"
        )
    kept = None if position.decoded is None else position.decoded["format"]
    if decode is not None and decode.format != kept:
        made = "without decoded values" if kept is None else f"with values decoded as {kept}"
        raise PipelineError(
            f"{lake.location} was made {made}: give a directory of its own, or leave out --decode"
        )


def check_not_made_anew(lake: Lake, position: Position, topic_id: str) -> None:
    """The offsets of a topic that was made anew begin at 0 again: going on would skip its first messages, and
    two messages would have the same offset in one archive."""
    if position.topic_id is not None and topic_id not in ("", position.topic_id):
        raise PipelineError(
            f"{lake.location} is an archive of a topic {position.topic} that was deleted and made anew since"
            f" (id {position.topic_id}, now {topic_id}): give the new topic a directory of its own"
        )


def _with_what_the_table_holds(lake: Lake, position: Position) -> Position:
    """Count the batch that was added to the table before a crash, and not yet counted.

    Now, not when Spark repeats the batch: if the checkpoint is lost too, Spark reads its messages again, as
    part of another batch.
    """
    announced = read_position(lake, NEXT_POSITION)
    if announced is None:
        return position
    batches = [each for each in announced.batches.items() if not position.counts(*each)]
    table = open_table(lake, position)
    if not batches or not all(table.holds(*each) for each in batches):
        return position
    lake.move(NEXT_POSITION, POSITION)
    return announced


def _starting_offsets(topic: str, position: Position, partitions: int) -> str:
    """Where the archive ends, in the partitions that the topic has now, which may be fewer than it had.

    Spark uses it only when there is no checkpoint.
    """
    known = position.next_offsets
    offsets = {str(at): known.get(str(at), EARLIEST) for at in range(partitions)}
    return json.dumps({topic: offsets}) if known else "earliest"


class BatchWriter:
    """What Spark calls with each batch, on the driver."""

    def __init__(
        self, lake: Lake, table: Table, position: Position, decoding: Decoding | None = None
    ) -> None:
        self._lake = lake
        self._table = table
        self._position = position
        self._decoding = decoding
        self._rows = 0
        self._files = 0
        self._bytes = 0

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query is not None, "Spark names the query of every batch"
        if self._position.counts(query, batch_id):
            return
        self._check_checkpoint(query, batch_id)
        if self._table.holds(query, batch_id):
            raise PipelineError(
                f"the table in {self._lake.location} has batch {batch_id}, and {POSITION} does not count it:"
                f" was {POSITION} put back to an earlier state?"
            )
        written = hour_files.write(batch, self._lake, query, batch_id, self._decoding)
        self._announce(query, batch_id, written)
        self._table.add(written, query, batch_id)
        self._finish()
        self._count(written)

    def facts(self) -> Mapping[str, Any]:
        return {
            "rows": self._rows,
            "files": self._files,
            "bytes": self._bytes,
            "archive": self._lake.location,
        }

    def _check_checkpoint(self, query: str, batch_id: int) -> None:
        """Batches have to follow each other: a hole means that the checkpoint is not of this archive."""
        if batch_id != self._position.batches.get(query, -1) + 1:
            raise PipelineError(
                f"the checkpoint does not belong to {self._lake.location}, which has no batch {batch_id - 1}"
                f" of its query: remove the checkpoint, and the archive goes on from its own position"
            )

    def _announce(self, query: str, batch_id: int, written: list[Written]) -> None:
        """Keep the next position beside the present one: the table is written in between."""
        last_offsets: dict[int, int] = {}
        for file in written:
            last_offsets[file.partition] = max(last_offsets.get(file.partition, -1), file.last_offset)
        partitions = max([self._position.partitions, *(at + 1 for at in last_offsets)])
        after = self._position.after(query, batch_id, last_offsets, partitions)
        self._lake.write(NEXT_POSITION, after.to_json())

    def _finish(self) -> None:
        self._lake.move(NEXT_POSITION, POSITION)
        position = read_position(self._lake)
        assert position is not None
        self._position = position

    def _count(self, written: list[Written]) -> None:
        sizes = {file.path: file.bytes for file in written}
        self._rows += sum(file.rows for file in written)
        self._files += len(sizes)
        self._bytes += sum(sizes.values())
