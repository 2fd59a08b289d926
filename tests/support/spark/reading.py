"""What tests of Spark's source share: topics with known records, and the readers run without Spark.

`plan` and `run` do with a reader what Spark does, a pickle between the driver and the tasks included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from forebay.spark.arrow.schema import spark_schema
from forebay.spark.source.batch_reader import TopicReader
from forebay.spark.source.offset_ranges import BEGAN_KEY, IDS_KEY, OffsetRange
from forebay.spark.source.options import batch_options, stream_options
from forebay.spark.source.stream_reader import TopicStreamReader
from forebay.wire.batch import build_batch
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.records import Record
from support.clients.wire_client import WireClient, append, create

NOON_MS = 1_700_000_000_000
"""The timestamp of the first record; each later one is a second younger."""


def make_topic(bootstrap: str, name: str, *counts: int, **config: str) -> None:
    """A topic with a partition for every count, and that many records in it."""
    with WireClient(bootstrap) as client:
        create(client, name, len(counts), **config)
        for partition, count in enumerate(counts):
            add(client, name, partition, count)


def add(client: WireClient, topic: str, partition: int, count: int, first: int = 0, **batch: Any) -> None:
    """Records whose values say where they are; every third key is null."""
    records = [record(partition, first + n) for n in range(count)]
    for at in range(0, count, 500):
        piece = records[at : at + 500]
        moved = [found._replace(offset=n) for n, found in enumerate(piece)]
        answer = append(client, topic, bytes(build_batch(moved, **batch)), partition=partition)
        assert answer.error_code == 0, answer.error_code


def record(partition: int, n: int) -> Record:
    key = None if n % 3 == 0 else b"key-%d" % n
    return Record(n, NOON_MS + 1000 * n, key, value(partition, n))


def moment(n: int) -> datetime:
    """The time of a record."""
    return datetime.fromtimestamp(NOON_MS / 1000, UTC) + timedelta(seconds=n)


def value(partition: int, n: int) -> bytes:
    return b"%d/%d" % (partition, n)


def delete_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=before)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000
    )
    with WireClient(bootstrap) as client:
        (answer,) = client.call(request, 2).topics
        assert answer.partitions[0].error_code == 0


# -- the readers as Spark uses them ------------------------------------------------------------------------


def batch_reader(bootstrap: str, schema: StructType | None = None, **options: Any) -> TopicReader:
    given = _options(bootstrap, options)
    parsed = batch_options(given)
    return TopicReader(parsed, schema or spark_schema(headers=parsed.include_headers))


def stream_reader(bootstrap: str, **options: Any) -> TopicStreamReader:
    parsed = stream_options(_options(bootstrap, options))
    return TopicStreamReader(parsed, spark_schema(headers=parsed.include_headers))


def _options(bootstrap: str, options: Mapping[str, object]) -> dict[str, str]:
    """Keywords cannot have dots: kafka_group_id is kafka.group.id."""
    named = {name.replace("_", "."): str(value) for name, value in options.items()}
    return {"kafka.bootstrap.servers": bootstrap, **named}


def plan(reader: TopicReader) -> list[OffsetRange]:
    return [task.value for task in reader.partitions()]


def run(reader: TopicReader | TopicStreamReader, tasks: Sequence[Any]) -> pa.Table | None:
    """All rows of the tasks; None when there are none."""
    batches = []
    for task in tasks:
        shipped, partition = cloudpickle.loads(cloudpickle.dumps((reader, task)))
        batches += list(shipped.read(partition))
    return pa.Table.from_batches(batches) if batches else None


def rows(reader: TopicReader) -> list[dict[str, Any]]:
    table = run(reader, reader.partitions())
    return [] if table is None else table.to_pylist()


def values(reader: TopicReader | TopicStreamReader, tasks: Sequence[Any] | None = None) -> list[bytes]:
    if tasks is None:
        assert isinstance(reader, TopicReader)
        tasks = reader.partitions()
    table = run(reader, tasks)
    return [] if table is None else sorted(table.column("value").to_pylist())


def micro_batch(
    reader: TopicStreamReader, start: dict[str, Any], limit: Any = None
) -> tuple[list[bytes], dict[str, Any]]:
    """What one trigger reads, and where it ends, without the ids of topics."""
    end = reader.latestOffset(start, limit if limit is not None else reader.getDefaultReadLimit())
    return values(reader, reader.partitions(start, end)), without_ids(end)


def without_ids(offset: dict[str, Any]) -> dict[str, Any]:
    """A stream's offset as earlier versions wrote it."""
    return {topic: found for topic, found in offset.items() if topic not in (IDS_KEY, BEGAN_KEY)}
