"""A batch read: the driver finds out which offsets are meant, tasks read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from forebay.errors import ErrorCode, KafkaError
from forebay.spark.schema import arrow_schema, check_columns
from forebay.spark.source.offset_lookup import (
    NOT_FOUND,
    offsets_at,
    required_partitions,
    resolve,
    starting_offsets,
)
from forebay.spark.source.offset_ranges import LATEST, OffsetRange, Offsets, TopicPartition
from forebay.spark.source.options import ReadOptions
from forebay.spark.source.partition_reader import Reading, data_loss, tasks_of
from forebay.spark.wire.connections import Cluster


class TopicReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(schema, headers=options.include_headers)
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in tasks_of(self._ranges(), self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark makes one task when there are none: 4.1 without a partition, later with an empty one.
        wanted = None if partition is None else partition.value
        if wanted is None:
            return iter(())
        rows = self._options.selection.rows
        reading = Reading(fetching=self._options.fetching, schema=self._schema, rows=rows)
        return reading.read(wanted)

    # -- on the driver -------------------------------------------------------------------------------

    def _ranges(self) -> list[OffsetRange]:
        fetching = self._options.fetching
        cluster = Cluster.shared(fetching.bootstrap, fetching.connection)
        places = required_partitions(cluster, self._options.subscription)
        try:
            start, end = self._edges(cluster, places)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            # A partition that was closed has gone meanwhile.
            places = required_partitions(cluster, self._options.subscription)
            start, end = self._edges(cluster, places)
        selection = self._options.selection
        chosen = [at for at in places if selection.includes(at)]
        low, high = selection.offsets.low, selection.offsets.high
        if low is not None:
            start = {at: max(start[at], low) for at in chosen}
        if high is not None:
            end = {at: min(end[at], high + 1) for at in chosen}
        return self._not_older(cluster, [OffsetRange(at, start[at], end[at]) for at in chosen])

    def _edges(self, cluster: Cluster, places: Sequence[TopicPartition]) -> tuple[Offsets, Offsets]:
        options, committed = self._options, self._options.fetching.read_committed
        start = starting_offsets(cluster, options, places)
        end = resolve(cluster, options.ending, places, read_committed=committed, latest_if_unmatched=True)
        if options.ending.by_partition and not options.ending.is_timestamp:
            end = self._reachable(cluster, end)
        return start, end

    def _reachable(self, cluster: Cluster, end: Offsets) -> Offsets:
        """Ends that the user gave, but not beyond the log."""
        fetching = self._options.fetching
        latest = offsets_at(cluster, dict.fromkeys(end, LATEST), read_committed=fetching.read_committed)
        for at, offset in end.items():
            if offset > latest[at]:
                data_loss(fetching, f"endingOffsets says {offset} for {at}, which ends at {latest[at]}")
        return {at: min(offset, latest[at]) for at, offset in end.items()}

    def _not_older(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges without what is older than all that is wanted."""
        oldest = self._options.selection.timestamps_ms.low
        if oldest is None:
            return ranges
        first = offsets_at(cluster, {wanted.at: oldest for wanted in ranges})
        return [
            wanted._replace(start=max(wanted.start, first[wanted.at]))
            for wanted in ranges
            if first[wanted.at] != NOT_FOUND
        ]
