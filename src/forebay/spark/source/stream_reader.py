"""A stream: the driver decides how far each micro-batch goes, tasks read it.

Spark asks for the latest offset at the beginning of every trigger and says where the last batch ended. That
question also says that everything before it is finished: Spark asks it after the batch is in its
commit log, after the last batch of AvailableNow too, while its own commit() comes a batch late and not at all
for the last one. So this is where finished offsets are committed to the consumer group.

Where a stream begins is looked up once. Spark asks before it plans the first batch, when it plans it, and
when it repeats it after a kill; a topic has grown by then. So the end of the first batch, which Spark
keeps, says where it begins (`BEGAN_KEY`). Until Spark has written this end to its checkpoint nothing is
remembered: a stream that is killed before that is a new one when it is started again.

What is committed is for people who watch the lag. The stream itself continues from its checkpoint, and a
group coordinator that cannot be reached for a while does not stop it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from forebay.errors import ConfigError, ErrorCode, KafkaError
from forebay.spark.arrow.schema import arrow_schema, check_columns
from forebay.spark.source.data_loss import data_loss
from forebay.spark.source.gone_partitions import not_read_to_the_end
from forebay.spark.source.offset_lookup import (
    commit_offsets,
    ends,
    offsets_at,
    partitions,
    required_partitions,
    starting_offsets,
)
from forebay.spark.source.offset_ranges import (
    EARLIEST,
    OffsetRange,
    Offsets,
    TopicPartition,
    backlog,
    began_in,
    from_json,
    ids_in,
    limited,
    made_anew,
    to_json,
    without_beginning,
)
from forebay.spark.source.options import ReadOptions
from forebay.spark.source.partition_reader import Reading, Task, tasks_of
from forebay.spark.source.remote.planning import StreamPlans
from forebay.spark.wire.connections import Cluster

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:  # PySpark 4.1 asks without a limit, and plans AvailableNow by itself
        ReadAllAvailable = ReadLimit = ReadMaxRows = ReadMinRows = None
        SupportsTriggerAvailableNow = object

log = logging.getLogger(__name__)

COMMIT_S_MAX = 5.0
"""How long a trigger is held up by a coordinator that does not answer."""

Json = dict[str, Any]


class StreamTask(InputPartition):
    """The offsets of a task, and the ids of the topics that they are of."""

    def __init__(self, value: Task, topic_ids: Mapping[str, str]) -> None:
        super().__init__(value)
        self.topic_ids = topic_ids


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(schema, headers=options.include_headers)
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)
        self._initial: Json | None = None
        self._begins = False
        """Spark asks this reader where the stream begins: its first batch is not finished."""
        self._first_end: Json | None = None
        """The first one of this run, or the last one of an earlier run."""
        self._target: Offsets | None = None
        """Where AvailableNow ends."""
        self._ids: dict[str, str] = {}
        """Of the topics, when their ends were looked up last."""
        self._latest: Offsets = {}
        self._committed: Offsets = {}
        self._last_trigger_s: float | None = None
        self._remote = StreamPlans(options.fetching.remote)

    # -- planning, on the driver ---------------------------------------------------------------------

    def initialOffset(self) -> Json:
        self._begins = True
        return self._beginning()

    def _beginning(self) -> Json:
        if self._initial is None:
            cluster, options = self._cluster(), self._options
            places = required_partitions(cluster, options.subscription)
            ids = self._ids_of(places)
            begin = self._not_behind_the_end(starting_offsets(cluster, options, places))
            self._initial = to_json(begin, ids, began=begin)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        admission = self._options.admission
        if admission.rows_min:
            return ReadMinRows(admission.rows_min)
        return ReadMaxRows(admission.rows_max) if admission.rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._find_latest()

    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:
        """How far the next batch goes; `start` itself when there is nothing to do yet."""
        if start is None:  # PySpark 4.1
            self._refuse_limits()
            self._latest = self._find_latest(self._latest)
            return self._end_without_start()
        self._latest = self._latest_after(from_json(start))
        begin = self._of_same_topics(from_json(start), ids_in(start), self._ids)
        # What is gone has no lag that anyone could watch.
        self._finished({at: offset for at, offset in begin.items() if at in self._latest})
        end = self._admitted(self._with_new(begin, self._latest), self._latest, limit)
        is_first = began_in(start) == from_json(start)
        found = to_json(end, self._ids, began=begin if is_first else None)
        # The end of the first batch has more in it, and Spark would run a batch without rows.
        return start if found == without_beginning(start) else found

    def _end_without_start(self) -> Json:
        """Where the topics end, for PySpark 4.1.

        It does not say whether this is the end of a first batch. A stream that is new has it say where it
        begins, and `partitions` uses that in a first batch only.
        """
        end = to_json(self._latest, self._ids)
        if self._first_end is None:
            self._first_end = to_json(self._latest, self._ids, began=from_json(self._beginning()))
        return self._first_end if end == without_beginning(self._first_end) else end

    def reportLatestOffset(self) -> Json | None:
        """The end that the query's progress shows, in the form that tools know from Spark's Kafka source."""
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        options = self._options
        if start == end:  # Spark asks so when a stream goes on, before it asks for anything else
            self._first_end = self._first_end or end
            return []
        until = from_json(end)
        begin = began_in(end) if self._begins else None
        if begin is None:
            begin = self._of_same_topics(from_json(start), ids_in(start), ids_in(end))
        gone = {at: begin[at] for at in begin.keys() - until.keys()}
        if gone and (lost := not_read_to_the_end(self._cluster(), gone)):
            data_loss(options.fetching, f"{', '.join(map(str, lost))} does not exist any more")
        # A batch that a run before this one has planned: its topics may have been made anew since then.
        now = self._ids or self._ids_of(partitions(self._cluster(), options.subscription))
        until = self._of_same_topics(until, ids_in(end), now)
        new = until.keys() - begin.keys()
        begin = self._with_new(begin, until)
        if options.fetching.mark_lost:
            begin |= dict.fromkeys(new, 0)  # the task that reads the first records counts those before them
        ranges = [self._range(at, begin[at], until[at]) for at in until]
        remote = self._remote.plan(self._cluster(), ranges, now)
        return [StreamTask(task, now) for task in tasks_of(ranges, options, remote)]

    def commit(self, end: Json) -> None:
        self._finished(from_json(end))

    def stop(self) -> None:
        self._cluster().close()

    # -- reading, in a task --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        ids = partition.topic_ids if isinstance(partition, StreamTask) else {}
        reading = Reading(fetching=self._options.fetching, schema=self._schema, topic_ids=ids)
        return reading.read(partition.value)

    # -- parts of the plan ---------------------------------------------------------------------------

    def _cluster(self) -> Cluster:
        fetching = self._options.fetching
        return Cluster.shared(fetching.bootstrap, fetching.connection)

    def _latest_after(self, begin: Offsets) -> Offsets:
        """Where the topics end, or where AvailableNow does."""
        if self._target is None:
            return self._find_latest(begin)
        if not _topics(begin) <= _topics(self._target):
            self._target = self._find_latest(begin)
        return self._target

    def _find_latest(self, known: Iterable[TopicPartition] = ()) -> Offsets:
        """The ends of all partitions that exist, new ones included.

        A topic of the `known` partitions that does not exist any more is lost data. Spark must not note an
        end without it before that is certain: when the topic is there again, it would be read as a new one.
        """
        options, cluster = self._options, self._cluster()
        committed = options.fetching.read_committed
        topics = _topics(known)
        try:
            found = ends(cluster, options.subscription, read_committed=committed, known=topics)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            found = ends(cluster, options.subscription, read_committed=committed)
            if lost := sorted(at for at in known if at.topic not in _topics(found)):
                data_loss(options.fetching, f"{', '.join(map(str, lost))} does not exist any more")
        self._ids = self._ids_of(found)
        return found

    def _ids_of(self, places: Iterable[TopicPartition]) -> dict[str, str]:
        """The ids of topics whose partitions were just looked up, as of the time before their offsets were.

        A topic that is made anew in between has the offsets of the new one and the id of the old one, and the
        next batch finds the difference.
        """
        return self._cluster().topic_ids({at.topic for at in places})

    def _of_same_topics(self, offsets: Offsets, before: dict[str, str], now: dict[str, str]) -> Offsets:
        """The offsets without those of topics that were deleted and made anew: these are lost data."""
        anew = made_anew(before, now)
        for topic in anew:
            data_loss(
                self._options.fetching,
                f"the topic {topic} was deleted and made anew (id {before[topic]}, now {now[topic]})",
            )
        return {at: offset for at, offset in offsets.items() if at.topic not in anew} if anew else offsets

    def _not_behind_the_end(self, begin: Offsets) -> Offsets:
        """The offsets that were looked up, not later than the end that was looked up before them.

        AvailableNow looks up the end first, and so does PySpark 4.1.
        """
        end = self._latest if self._target is None else self._target
        starting = self._options.starting
        named = {} if starting.is_timestamp else dict(starting.by_partition)
        return {
            at: offset if offset == named.get(at) else min(offset, end.get(at, offset))
            for at, offset in begin.items()
        }

    def _with_new(self, begin: Offsets, until: Offsets) -> Offsets:
        """The same, with partitions that came since then: they are read from their first record on."""
        new = until.keys() - begin.keys()
        first = offsets_at(self._cluster(), dict.fromkeys(new, EARLIEST))
        for at, offset in first.items():
            if offset > 0:
                data_loss(self._options.fetching, f"the new partition {at} starts at offset {offset}, not 0")
        return begin | first

    def _range(self, at: TopicPartition, start: int, end: int) -> OffsetRange:
        if end < start:
            data_loss(self._options.fetching, f"{at} ends at offset {end} now, before {start}")
        return OffsetRange(at, start, end)

    def _admitted(self, begin: Offsets, latest: Offsets, limit: ReadLimit | None) -> Offsets:
        """As much of the backlog as goes into one batch."""
        admission = self._options.admission
        if limit is None or isinstance(limit, ReadAllAvailable):
            return latest
        now_s = time.monotonic()
        if admission.rows_min and self._target is None and self._too_few(begin, latest, now_s):
            return {at: begin[at] for at in latest}
        self._last_trigger_s = now_s
        return limited(begin, latest, admission.rows_max) if admission.rows_max else latest

    def _refuse_limits(self) -> None:
        admission = self._options.admission
        if admission.rows_max or admission.rows_min:
            raise ConfigError(
                "maxOffsetsPerTrigger and minOffsetsPerTrigger need PySpark 4.2 or later:"
                " earlier ones do not say where a batch starts"
            )

    def _too_few(self, begin: Offsets, latest: Offsets, now_s: float) -> bool:
        """True if a batch waits for more rows; as in Spark's source, the first batch of a run never waits."""
        admission = self._options.admission
        if self._last_trigger_s is None or (now_s - self._last_trigger_s) * 1000 >= admission.delay_ms_max:
            return False
        return backlog(begin, latest) < admission.rows_min

    # -- the consumer group --------------------------------------------------------------------------

    def _finished(self, offsets: Offsets) -> None:
        """Commit to the group that everything before these offsets was processed."""
        group = self._options.commit_group
        if not group or not offsets or offsets == self._committed:
            return
        try:
            cluster = self._cluster()
            cluster.attempt(lambda: commit_offsets(cluster, group, offsets), limit_s=COMMIT_S_MAX)
        except KafkaError as error:
            if not error.code.retriable:
                raise
            log.warning("offsets were not committed, and will be with the next batch: %s", error)
        else:
            self._committed = offsets


def _topics(places: Iterable[TopicPartition]) -> set[str]:
    return {at.topic for at in places}
