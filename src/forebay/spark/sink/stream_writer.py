"""The sink behind `df.writeStream`.

Spark gives a Python sink neither the number of the micro-batch nor the id of the query when it writes, but
its tasks carry both. The id of the query lives in the checkpoint and stays the same over restarts; the id of
the run is new each time.

`abort` has to find the transactions of tasks that were killed before they reported them. If no task has
reported anything, it knows neither id. So the runs of a stream end with a *mark*, made of what only this
application knows (SPARK_LOCAL_DIRS names a directory that its driver has made for itself) and of the
checkpoint, which no other stream of the application uses. Spark makes a sink on the driver twice, to plan
the write and to commit or abort it, and both have the same mark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from forebay.errors import ConfigError
from forebay.spark.sink.batch_writer import (
    LOCAL_DIRS,
    QUERY_ID,
    RUN_ID,
    plan,
    prepared,
    stream_property,
    write_at_least_once,
    write_exactly_once,
)
from forebay.spark.sink.transactions import exactly_once
from forebay.spark.sink.transactions.participants import RUN_CHARACTERS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_ID = "streaming.sql.batchId"
CHECKPOINT = "checkpointlocation"


class TopicStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        # In complete mode Spark asks to overwrite: a topic gets the whole result again, after the last one.
        self._plan = plan(schema, options, overwrite=False)
        if self._plan.options.job_id is not None or self._plan.options.batch_id is not None:
            raise ConfigError("jobId and batchId are for batch writes: a stream is named by streamId")
        self._mark = _mark(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._plan.options.exactly_once:
            return write_at_least_once(self._plan, iterator)
        query, run = stream_property(QUERY_ID), stream_property(RUN_ID).replace("-", "")[:RUN_CHARACTERS]
        batch_id, stream = int(stream_property(BATCH_ID)), self._plan.options.stream_id
        if stream is None:
            return write_exactly_once(self._plan, query, run + self._mark, batch_id, iterator)
        return write_exactly_once(self._plan, stream, run + self._mark, batch_id, iterator, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        if self._plan.options.exactly_once:
            exactly_once.commit(self._plan.cluster(), prepared(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        if not self._plan.options.exactly_once:
            return
        told = prepared(messages)
        exactly_once.abort(self._plan.cluster(), told)
        mark = told[0].attempt.run if told else self._mark
        if len(told) < len(messages) and mark:
            exactly_once.abort_untold(self._plan.cluster(), mark)


def _mark(options: Mapping[str, str]) -> str:
    """The suffix of the runs of this stream; empty if the stream cannot be distinguished from others.

    That is so when a setting of the session gives the checkpoint's location: a sink cannot see it.
    """
    application = os.environ.get(LOCAL_DIRS)
    checkpoint = next((value for name, value in options.items() if name.lower() == CHECKPOINT), None)
    if not application or not checkpoint:
        return ""
    return sha256(f"{application}\n{checkpoint}".encode()).hexdigest()[:RUN_CHARACTERS]
