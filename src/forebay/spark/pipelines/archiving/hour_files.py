"""What a task does for an archive: the rows of its partition into one Parquet file per hour.

The rows come sorted by hour, so one file is open at a time and memory is bounded by a row group, however
many hours a batch spans. File names follow from query, batch and task: a task that runs again, or twice at
the same time, replaces its files by the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forebay.spark.pipelines.archiving.layout import SCHEMA, batch_file, hour_folder
from forebay.spark.pipelines.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOUR = "_hour"
HOUR_US = 3_600_000_000
ROW_GROUP_BYTES = 32 << 20
COMPRESSION = "zstd"

WRITTEN = "path string, rows long, bytes long, partition int, last_offset long"
_WRITTEN = pa.schema(
    [
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("partition", pa.int32()),
        ("last_offset", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    path: str
    rows: int
    bytes: int
    partition: int
    last_offset: int


def write(rows: DataFrame, location: str, query: str, batch: int) -> list[Written]:
    """Run the job; the files are where they belong when it returns."""
    from pyspark.sql import functions as F

    hour = F.floor(F.unix_micros("timestamp") / HOUR_US)
    ordered = rows.withColumn(HOUR, hour).sortWithinPartitions(HOUR, "partition", "offset")
    written = ordered.mapInArrow(_task(location, query, batch), WRITTEN).collect()
    return [Written(**row.asDict()) for row in written]


def _task(
    location: str, query: str, batch: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "this runs in a task of Spark"
        name = batch_file(query, batch, context.partitionId())
        yield from write_hours(Lake(location), name, batches)

    return run


def write_hours(lake: Lake, name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One file for each hour, and a row about each file and partition in it."""
    for hour, pieces in itertools.groupby(_by_hour(batches), key=lambda piece: piece[0]):
        path = f"{hour_folder(hour * HOUR_US)}/{name}"
        tally = Tally()
        with lake.create(path) as stream:
            write_rows(stream, (tally.count(rows) for _, rows in pieces))
            size = stream.tell()
        yield tally.told(path, size)


def _by_hour(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    for batch in batches:
        hours = batch.column(HOUR).to_numpy(zero_copy_only=False)
        rows = pa.Table.from_batches([batch]).select(SCHEMA.names).cast(SCHEMA)
        edges = np.flatnonzero(np.diff(hours)) + 1
        for start, end in zip([0, *edges], [*edges, len(hours)], strict=True):
            if end > start:
                yield int(hours[start]), rows.slice(start, end - start)


def write_rows(stream: pa.NativeFile, pieces: Iterable[pa.Table]) -> None:
    """Parquet with row groups of a useful size, whatever the size of the pieces."""
    with pq.ParquetWriter(stream, SCHEMA, compression=COMPRESSION) as writer:
        pending: list[pa.Table] = []
        for rows in pieces:
            pending.append(rows)
            if sum(table.nbytes for table in pending) >= ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(pending).combine_chunks())
                pending = []
        if pending:
            writer.write_table(pa.concat_tables(pending).combine_chunks())


class Tally:
    """What went into one file, by partition."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._last_offsets: dict[int, int] = {}

    def count(self, rows: pa.Table) -> pa.Table:
        """Returns the rows as they are, to be counted in passing."""
        counted = rows.group_by("partition").aggregate([("offset", "max"), ("offset", "count")])
        for partition, last_offset, count in zip(*(column.to_pylist() for column in counted), strict=True):
            self._rows[partition] = self._rows.get(partition, 0) + count
            self._last_offsets[partition] = max(self._last_offsets.get(partition, -1), last_offset)
        return rows

    def told(self, path: str, size: int) -> pa.RecordBatch:
        rows = [
            {
                "path": path,
                "rows": rows,
                "bytes": size,
                "partition": at,
                "last_offset": self._last_offsets[at],
            }
            for at, rows in self._rows.items()
        ]
        return pa.RecordBatch.from_pylist(rows, schema=_WRITTEN)
