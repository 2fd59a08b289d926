"""The sink behind `df.writeStream`.

Spark gives a Python sink neither the number of the micro-batch nor the id of the query when it writes, but
its tasks carry both. The id of the query lives in the checkpoint and stays the same over restarts; the id of
the run is new each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from forebay.errors import ConfigError, ForebayError
from forebay.spark import exactly_once
from forebay.spark.transactions import RUN_CHARACTERS
from forebay.spark.writer import plan, prepared, task_context, write_at_least_once, write_exactly_once

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"


class TopicStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        # In complete mode Spark asks to overwrite: a topic gets the whole result again, after the last one.
        self._plan = plan(schema, options, overwrite=False)
        if self._plan.options.job_id is not None:
            raise ConfigError("jobId is for batch writes: a streaming query has an id of its own")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._plan.options.exactly_once:
            return write_at_least_once(self._plan, iterator)
        query, run = _property(QUERY_ID), _property(RUN_ID).replace("-", "")[:RUN_CHARACTERS]
        return write_exactly_once(self._plan, query, run, int(_property(BATCH_ID)), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        if self._plan.options.exactly_once:
            exactly_once.commit(self._plan.cluster(), prepared(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        if self._plan.options.exactly_once:
            exactly_once.abort(self._plan.cluster(), prepared(messages))


def _property(name: str) -> str:
    value = task_context().getLocalProperty(name)
    if not value:
        raise ForebayError(f"Spark did not say its {name}: delivery=exactly-once needs PySpark 4.1 or later")
    return str(value)
