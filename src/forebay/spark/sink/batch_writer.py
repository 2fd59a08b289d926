"""The sink behind `df.write`, and what it shares with the one behind `df.writeStream`.

`delivery=at-least-once`: idempotent producers, acks=all. Every row is there when the write returns; a task
or a batch that Spark repeats is written again.

`delivery=exactly-once`: the rows of a batch become visible together, once, to readers of committed data, as
`transactions/batch_decisions.py` describes. If the driver dies before the decision, its rows are never seen.
If it dies after the decision, the brokers show all of them without it. Brokers that cannot end transactions
together need a driver for that. A streaming query has one when it is started again. A batch write that was
killed in between must be run again with the same `jobId`. With a `jobId`, a job that had succeeded writes
nothing when it is run again.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from forebay.errors import ConfigError, ForebayError
from forebay.lazy import dataclass
from forebay.spark.sink.options import Columns, WriteOptions, columns, write_options
from forebay.spark.sink.producer import Producer, new_identity
from forebay.spark.sink.task import TaskSink, rounds
from forebay.spark.sink.transactions import exactly_once, finished_jobs, stream_names
from forebay.spark.sink.transactions.exactly_once import Prepared
from forebay.spark.sink.transactions.participants import RUN_CHARACTERS, Attempt
from forebay.spark.sink.transactions.renewal import job_of, renewals
from forebay.spark.wire.connections import Cluster
from forebay.spark.worker import freeze_loaded_objects

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
EXECUTION_ID = "spark.sql.execution.root.id"
"""Of the execution that began first: all that a foreachBatch executes for a batch has that of the batch."""
LOCAL_DIRS = "SPARK_LOCAL_DIRS"
"""A directory that the driver of an application has made for itself."""
SPECULATION = "spark.speculation"
PRODUCERS_MAX = 8
PRODUCER_IDLE_S_MAX = 600.0
"""Brokers forget a producer after a day of silence; this one is forgotten long before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """The report of a task of an at-least-once write to the driver."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """A write as the driver planned it; goes to every task."""

    options: WriteOptions
    columns: Columns

    def cluster(self) -> Cluster:
        return Cluster.shared(self.options.bootstrap, self.options.connection)


def plan(schema: StructType, options: Mapping[str, str], overwrite: bool) -> SinkPlan:
    if overwrite:
        raise ConfigError('a topic cannot be overwritten: write with .mode("append")')
    chosen = write_options(options)
    return SinkPlan(chosen, columns(schema, chosen.topic))


class TopicWriter(DataSourceArrowWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        self._plan = plan(schema, options, overwrite)
        chosen = self._plan.options
        if chosen.stream_id is not None and (chosen.batch_id is None or chosen.job_id is not None):
            raise ConfigError(
                "streamId is for streams: a batch write is named by jobId, and one in foreachBatch by"
                " streamId and batchId"
            )
        self._run = uuid.uuid4().hex[:RUN_CHARACTERS]
        self._application = os.environ.get(LOCAL_DIRS, "")
        self._is_named = chosen.job_id is not None or chosen.stream_id is not None
        self._name = chosen.job_id or chosen.stream_id or uuid.uuid4().hex
        if chosen.batch_id is not None and chosen.topic is not None:
            self._name = stream_names.name_of(self._plan.cluster(), self._name, chosen.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._plan.options.exactly_once:
            return write_at_least_once(self._plan, iterator)
        batch_id = self._plan.options.batch_id
        if batch_id is None:
            return write_exactly_once(self._plan, self._name, self._run, 0, iterator)
        topic, query = self._plan.options.topic, stream_property(QUERY_ID)
        run = stream_names.run_of(self._name, self._run, query_run(self._application), topic=topic)
        return write_exactly_once(self._plan, self._name, run, batch_id, iterator, query)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._plan.options.exactly_once:
            return
        try:
            exactly_once.commit(
                self._plan.cluster(),
                prepared(messages),
                forget_name=not self._is_named,
                in_batch=self._plan.options.batch_id is not None,
            )
        except ForebayError as error:
            if self._plan.options.batch_id is not None:
                raise  # Spark repeats the batch
            # Whether it was decided may be open; only a repetition under the same name can know.
            raise ForebayError(f"{error}; to repeat the write, add the option jobId={self._name}") from error
        if self._plan.options.job_id is not None:
            finished_jobs.keep(self._plan.cluster(), self._name)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._plan.options.exactly_once:
            return
        cluster, told = self._plan.cluster(), prepared(messages)
        decided = exactly_once.abort(cluster, told)
        if len(told) < len(messages):
            exactly_once.abort_untold(cluster, self._run)
        if not self._is_named and not decided:
            exactly_once.forget(cluster, self._name)


def prepared(messages: list[WriterCommitMessage | None]) -> list[Prepared]:
    return [message for message in messages if isinstance(message, Prepared)]


def write_exactly_once(
    sink: SinkPlan, name: str, run: str, batch_id: int, batches: Iterator[pa.RecordBatch], query: str = ""
) -> Prepared:
    freeze_loaded_objects()
    _import_ahead()
    context = task_context()
    attempt = Attempt(name, run, batch_id, context.partitionId(), context.attemptNumber(), query=query)
    with renewals().working_for(job_of(sink.options, name, run)):
        done = exactly_once.prepare(sink.cluster(), sink.options, sink.columns, attempt, batches)
    speculative = context.getLocalProperty(SPECULATION) == "true"
    return replace(done, untidy=done.untidy or speculative)


def _import_ahead() -> None:
    """Spark makes an array of what a task returns, and the first one in a process imports pandas.

    By then the transaction is prepared, and a task that is killed meanwhile would leave it open.
    """
    pa.array([b""])


def task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks"
    return context


def query_run(application: str) -> str:
    """The id of this start of the query, which is Spark's job group; empty if it is not known.

    A user may have set another job group. Then it is one of this execution of the batch, whose numbers begin
    anew in each application.
    """
    context = task_context()
    try:
        return uuid.UUID(context.getLocalProperty(RUN_ID) or "").hex[:RUN_CHARACTERS]
    except ValueError:
        execution = context.getLocalProperty(EXECUTION_ID)
    if not application or not execution:
        return ""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{application} {execution}").hex[:RUN_CHARACTERS]


def stream_property(name: str) -> str:
    """A property that Spark gives the tasks of a stream."""
    value = task_context().getLocalProperty(name)
    if not value:
        raise ForebayError(f"Spark did not say its {name}: is this a stream, and PySpark 4.1 or later?")
    return str(value)


# -- at least once ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Kept:
    producer: Producer
    used_s: float


_producers: dict[tuple[object, ...], _Kept] = {}


def write_at_least_once(sink: SinkPlan, batches: Iterator[pa.RecordBatch]) -> Written:
    freeze_loaded_objects()
    filled = rounds(batches)
    first = next(filled, None)
    if first is None:
        return Written(rows=0, bytes=0)
    key = (os.getpid(), threading.get_ident(), sink.options.bootstrap, str(sink.options))
    kept = _producers.pop(key, None)
    producer = _producer(sink, kept)
    rows, size = producer.delivered.rows, producer.delivered.bytes
    try:
        writing = TaskSink(producer, sink.options, sink.columns, task_context().partitionId())
        writing.write(chain([first], filled))
    except BaseException:
        producer.abandon()
        raise
    if len(_producers) >= PRODUCERS_MAX:
        _producers.clear()
    _producers[key] = _Kept(producer, time.monotonic())
    return Written(rows=producer.delivered.rows - rows, bytes=producer.delivered.bytes - size)


def _producer(sink: SinkPlan, kept: _Kept | None) -> Producer:
    if kept is not None and time.monotonic() - kept.used_s < PRODUCER_IDLE_S_MAX:
        return kept.producer
    cluster = sink.cluster()
    return Producer(cluster, new_identity(cluster), sink.options.limits)
