"""Archives made without Spark and without a broker, and what a plain reader finds in one."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from forebay.spark.pipelines.archiving.hour_files import HOUR, HOUR_US, Written, publish, write_hours
from forebay.spark.pipelines.archiving.layout import (
    POSITION,
    SCHEMA,
    Position,
    batch_file,
    require_position,
)
from forebay.spark.pipelines.lake import Lake

SIX_US = 1_763_186_400 * 1_000_000
"""2025-11-15 06:00 UTC."""
MINUTE_US = 60_000_000
QUERY = str(uuid.UUID(int=1))


class Message(NamedTuple):
    partition: int
    offset: int
    time_us: int
    key: bytes | None = b"key"

    @property
    def value(self) -> bytes:
        return b"%d/%d" % (self.partition, self.offset)


def record_batch(messages: Iterable[Message]) -> pa.RecordBatch:
    """As Spark hands it to a task: sorted by hour."""
    rows = [
        {
            "key": message.key,
            "value": message.value,
            "topic": "orders",
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": message.time_us,
            "timestampType": 0,
            "headers": [{"key": "n", "value": message.value}],
            HOUR: message.time_us // HOUR_US,
        }
        for message in sorted(messages, key=lambda message: (message.time_us // HOUR_US, *message[:2]))
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA.append(pa.field(HOUR, pa.int64())))


def make_archive(folder: Path | Lake, *batches: Iterable[Message], query: str = QUERY) -> Lake:
    """An archive whose batches count; one task wrote each."""
    lake = folder if isinstance(folder, Lake) else Lake(str(folder))
    lake.write(POSITION, Position(topic="orders", partitions=1).to_json())
    for messages in batches:
        add_batch(lake, messages, query)
    return lake


def add_batch(lake: Lake, messages: Iterable[Message], query: str = QUERY) -> None:
    """The archive goes on."""
    position = require_position(lake)
    number = position.batches.get(query, -1) + 1
    found = list(messages)
    last_offsets = {at: max(one.offset for one in found if one.partition == at) for at, *_ in found}
    told = write_hours(lake, batch_file(query, number, 0), iter([record_batch(found)]))
    publish(lake, [Written(**row) for reported in told for row in reported.to_pylist()])
    partitions = max([position.partitions, *(at + 1 for at in last_offsets)])
    lake.write(POSITION, position.after(query, number, last_offsets, partitions).to_json())


def batch_of(messages: Iterable[Message]) -> Any:
    """What Spark hands over, as far as the writer looks at it."""
    context = SimpleNamespace(getLocalProperty=lambda _name: QUERY)
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context), rows=record_batch(messages))


def write_without_spark(batch: Any, lake: Lake, query: str, number: int, decoding: None) -> list[Written]:
    """In the place of `hour_files.write`."""
    told = write_hours(lake, batch_file(query, number, 0), iter([batch.rows]))
    written = [Written(**row) for reported in told for row in reported.to_pylist()]
    publish(lake, written)
    return written


def seen_in(lake: Lake, paths: Iterable[str]) -> list[tuple[int, int]]:
    """Partition and offset of every message in these files."""
    found = []
    for path in paths:
        with lake.files.open_input_file(lake.path(path)) as stream:
            rows = pq.ParquetFile(stream).read(["partition", "offset"])
        found += list(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))
    return sorted(found)


def seen_by_anyone(folder: Path) -> list[tuple[int, int]]:
    """Partition and offset of every message that a reader of the bare directory finds."""
    found = []
    for path in sorted(folder.glob("date=*/hour=*/*.parquet")):
        rows = pq.ParquetFile(path).read(["partition", "offset"])
        found += list(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))
    return sorted(found)
