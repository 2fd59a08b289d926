"""A batch read: the driver finds out which offsets are meant, tasks read them.

Spark (4.1 to 4.3) asks a Python source for its plan once for each `load()`, in the first action, and keeps
it for as long as the DataFrame lives. So a DataFrame is the topic as it was then: all of its actions agree,
and a task that Spark repeats reads the same rows again. It does not show what came later, and fails when
retention has taken what it should read.

With `refreshOffsets=true`, and where it is part of a stream (the static side of a join, in every
micro-batch), the offsets of the plan do not count: each task looks them up when it runs. Which partitions
a task reads depends on their numbers only, so that tasks that look at different moments agree, also when
partitions have been added. Such tasks do not read the same rows again when Spark repeats them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from forebay.errors import ErrorCode, KafkaError
from forebay.spark.arrow.schema import arrow_schema, check_columns
from forebay.spark.source.data_loss import DataLoss, data_loss
from forebay.spark.source.offset_lookup import (
    NOT_FOUND,
    offsets_at,
    required_partitions,
    resolve,
    starting_offsets,
)
from forebay.spark.source.offset_ranges import LATEST, OffsetRange, Offsets, TopicPartition
from forebay.spark.source.options import ReadOptions
from forebay.spark.source.partition_reader import Reading, Task, tasks_of
from forebay.spark.source.remote.planning import RemotePlan, look_up
from forebay.spark.source.remote.store_topics import plan_without_brokers
from forebay.spark.source.remote_options import ONLY
from forebay.spark.wire.connections import Cluster

QUERY_ID = "sql.streaming.queryId"
REFRESHED_TASKS_MAX = 256
"""More partitions than this share tasks where their sizes are not known beforehand."""
_ADVICE = (
    "; the offsets of a DataFrame are those of its first action: load() it again, or set refreshOffsets=true"
    " to look them up in every action"
)


class BatchTask(InputPartition):
    """The share of a task: these offsets, or its share of all partitions as they are when it runs."""

    def __init__(
        self,
        value: Task | None,
        share: Share,
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(value)
        self.share = share
        self.topic_ids = topic_ids or {}


class Share(NamedTuple):
    """One of several parts of all partitions."""

    number: int
    shares: int

    def includes(self, at: TopicPartition) -> bool:
        return (at.partition + crc32(at.topic.encode())) % self.shares == self.number


ALL = Share(0, 1)


class TopicReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(schema, headers=options.include_headers)
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        if self._options.refresh:
            places = required_partitions(self._cluster(), self._options.subscription)
            chosen = [at for at in places if self._options.selection.includes(at)]
            count = min(len(chosen), REFRESHED_TASKS_MAX)
            return [BatchTask(None, Share(n, count)) for n in range(count)]
        if not self._options.fetching.bootstrap:
            return self._planned_without_brokers()
        ranges, remote = self._with_remote(self._ranges())
        tasks = tasks_of(ranges, self._options, remote)
        ids = self._cluster().topic_ids({wanted.at.topic for wanted in ranges})
        return [BatchTask(task, Share(n, len(tasks)), ids) for n, task in enumerate(tasks)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark makes one task when there are none: 4.1 without a partition, later with an empty one.
        planned = None if partition is None else partition.value
        share = partition.share if isinstance(partition, BatchTask) else ALL
        refresh = self._options.refresh
        if refresh or (refresh is None and self._options.fetching.bootstrap and _in_stream()):
            ranges, remote = self._with_remote(self._ranges(share))
            for wanted in ranges:
                yield from self._reading().read(wanted if remote is None else remote.attached(wanted))
            return
        if planned is None:
            return
        try:
            yield from self._reading(partition).read(planned)
        except DataLoss as error:
            raise DataLoss(f"{error}{_ADVICE}") from None

    def _planned_without_brokers(self) -> list[BatchTask]:
        ranges, remote = plan_without_brokers(self._options)
        if remote is None:
            return []
        tasks = tasks_of(
            remote.cut(remote.only(ranges, self._options.starting.given_offsets())), self._options, remote
        )
        return [BatchTask(task, Share(n, len(tasks))) for n, task in enumerate(tasks)]

    def _reading(self, partition: InputPartition | None = None) -> Reading:
        return Reading(
            fetching=self._options.fetching,
            schema=self._schema,
            rows=self._options.selection.rows,
            topic_ids=partition.topic_ids if isinstance(partition, BatchTask) else {},
        )

    def _cluster(self) -> Cluster:
        fetching = self._options.fetching
        return Cluster.shared(fetching.bootstrap, fetching.connection)

    def _with_remote(self, ranges: list[OffsetRange]) -> tuple[list[OffsetRange], RemotePlan | None]:
        """The ranges, cut where segments in an object store begin, and the plan to read these."""
        options = self._options.fetching.remote
        found = look_up(self._cluster(), options, [wanted.at for wanted in ranges if wanted.size > 0])
        if options.read == ONLY:
            given = self._options.starting.given_offsets()
            ranges = [] if found is None else found.only(ranges, given)
        return ranges if found is None else found.cut(ranges), found

    # -- offsets -------------------------------------------------------------------------------------

    def _ranges(self, share: Share = ALL) -> list[OffsetRange]:
        cluster = self._cluster()
        places = self._places(cluster, share)
        try:
            start, end = self._edges(cluster, places)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            # A partition that was closed has gone meanwhile.
            places = self._places(cluster, share)
            start, end = self._edges(cluster, places)
        selection = self._options.selection
        chosen = [at for at in places if share.includes(at) and selection.includes(at)]
        low, high = selection.offsets.low, selection.offsets.high
        if low is not None:
            start = {at: max(start[at], low) for at in chosen}
        if high is not None:
            end = {at: min(end[at], high + 1) for at in chosen}
        return self._not_older(cluster, [OffsetRange(at, start[at], end[at]) for at in chosen])

    def _places(self, cluster: Cluster, share: Share) -> list[TopicPartition]:
        """Those of a share; all of them where offsets are given by partition, which must name all."""
        places = required_partitions(cluster, self._options.subscription)
        if self._options.starting.by_partition or self._options.ending.by_partition:
            return places
        return [at for at in places if share.includes(at)]

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


def _in_stream() -> bool:
    """True in a task of a micro-batch."""
    context = TaskContext.get()
    return context is not None and bool(context.getLocalProperty(QUERY_ID))
