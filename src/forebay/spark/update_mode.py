"""Streams in update mode: the rows that a batch has changed, as messages with their key.

Spark refuses this mode for every sink that is written in Python. So each micro-batch is written by
foreachBatch, as a batch write that has the name of the stream and the number of the batch: a batch that Spark
repeats is found written, as in the sink for streams, and the brokers keep one small record for the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

QUERY_ID = "sql.streaming.queryId"
MESSAGE_COLUMNS = frozenset({"key", "value", "headers", "partition", "timestamp"})


def upsert(
    rows: DataFrame,
    topic: str,
    *,
    key: str,
    bootstrap: str,
    stream_id: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """A stream that writes each row that has changed to a topic, under its key, exactly once.

    A message has the column `key` as text for its key and the whole row as JSON for its value, or the column
    `value` if the row has it and otherwise only columns of messages. The topic may be compacted: the last
    message of a key is its row as it is now.

    Set the rest as on every stream: `.option("checkpointLocation", ...).trigger(...).start()`. `options` are
    those of a write; `stream_id` is what `streamId` is for the sink.
    """
    if not rows.isStreaming:
        raise ConfigError("upsert is for streams: write a table with .write.format('forebay')")
    if key not in rows.columns:
        raise ConfigError(f"there is no column {key} for the key: there are {', '.join(rows.columns)}")
    given = {"kafka.bootstrap.servers": bootstrap, **(options or {}), "topic": topic}
    return in_update_mode(_messages(rows, key), given, stream_id)


def in_update_mode(
    messages: DataFrame, options: Mapping[str, str], stream_id: str | None = None
) -> DataStreamWriter:
    """A stream of messages, written in update mode, exactly once."""
    given = {**options, "delivery": "exactly-once"}
    return messages.writeStream.outputMode("update").foreachBatch(_write_batch(given, stream_id))


def _write_batch(options: Mapping[str, str], stream_id: str | None) -> Callable[[DataFrame, int], None]:
    def write(batch: DataFrame, batch_id: int) -> None:
        named = {"streamId": stream_id or _query_id(batch), "batchId": str(batch_id)}
        batch.write.format("forebay").options(**options, **named).mode("append").save()

    return write


def _query_id(batch: DataFrame) -> str:
    from pyspark.errors import PySparkException

    try:
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    except PySparkException:
        query = None
    if query is None:
        raise ConfigError("Spark Connect does not tell the id of a query here: give upsert a stream_id")
    return query


def _messages(rows: DataFrame, key: str) -> DataFrame:
    from pyspark.sql import functions as F

    named = F.col(f"`{key}`").cast("string").alias("key")
    if "value" in rows.columns and MESSAGE_COLUMNS.issuperset({*rows.columns} - {key}):
        return rows.select(named, *(f"`{name}`" for name in rows.columns if name not in ("key", key)))
    columns = [F.col(f"`{name}`") for name in rows.columns]
    return rows.select(named, F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("value"))
