"""A task of an archive writes the rows of its partition into one Parquet file per hour.

The rows come sorted by hour, so one file is open at a time and memory is bounded by a row group, however
many hours a batch spans. A task writes its files aside, under names of its own, and reports them. When all
tasks have reported, the driver renames these files to where readers look. So a task may run again, or twice
at the same time, or go on after it was thought dead: what it writes then is not reported, and nobody sees it.
The name that a file gets follows from query, batch and task.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forebay.lazy import dataclass
from forebay.spark.pipelines.archiving.decoded import AddFields, DecodedColumn, adder
from forebay.spark.pipelines.archiving.layout import (
    FIELDS,
    HOURS,
    SCHEMA,
    UNKNOWN_HOUR,
    batch_file,
    hour_folder,
)
from forebay.spark.pipelines.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR = "_hour"
HOUR_US = 3_600_000_000
ROW_GROUP_BYTES = 32 << 20
FILE_BYTES = 1 << 30
"""In memory. More rows of an hour go to another file: object stores rename objects of up to 5 GB."""
COMPRESSION = "zstd"

WRITTEN = (
    "staged string, path string, rows long, bytes long, partition int, first_offset long, last_offset long,"
    " misfits long"
)
_WRITTEN = pa.schema(
    [
        ("staged", pa.string()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("misfits", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The share of one partition in a file."""

    staged: str
    """Where the task has written it."""
    path: str
    """Where it belongs."""
    rows: int
    bytes: int
    partition: int
    last_offset: int
    first_offset: int | None = None
    """None in notes of earlier versions."""
    misfits: int = 0
    """Values that do not fit their schema, in an archive that decodes them."""


def write(
    rows: DataFrame, lake: Lake, query: str, batch: int, decoding: DecodedColumn | None = None
) -> list[Written]:
    """Run the job; the files are where they belong when it returns."""
    ordered = rows.withColumn(HOUR, _hour("timestamp")).sortWithinPartitions(HOUR, "partition", "offset")
    ordered = ordered.withColumn("headers", without_null_arrays("headers"))
    reported = ordered.mapInArrow(_task(lake.location, query, batch, decoding), WRITTEN).collect()
    written = [Written(**row.asDict()) for row in reported]
    publish(lake, written)
    return written


def _hour(column: str) -> Column:
    """The hour since 1970, in whole numbers: a quotient is rounded up just before an hour of a late year.

    All hours that no date can show are two, one before and one after the others. Times in a wrong unit would
    make a file for each message otherwise.
    """
    from pyspark.sql import functions as F

    micros, (first, last) = f"unix_micros({column})", HOURS
    hour = f"{micros} div {HOUR_US} - CAST({micros} % {HOUR_US} < 0 AS INT)"
    return F.expr(f"greatest(least({hour}, {last + 1}L), {first - 1}L)")


def without_null_arrays(column: str) -> Column:
    """Empty arrays in their place: Spark takes long to size batches with null ones."""
    from pyspark.sql import functions as F

    return F.coalesce(F.col(column), F.array())


def publish(lake: Lake, written: Iterable[Written]) -> None:
    """Move the files that tasks have reported to where readers look."""
    lake.move_all(sorted({(file.staged, file.path) for file in written}))


def _task(
    location: str, query: str, batch: int, decoding: DecodedColumn | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "this runs in a task of Spark"
        name = batch_file(query, batch, context.partitionId())
        add_fields = _same if decoding is None else adder(decoding)
        yield from write_hours(Lake(location), name, batches, add_fields)

    return run


def _same(rows: pa.Table) -> pa.Table:
    return rows


def write_hours(
    lake: Lake, name: str, batches: Iterator[pa.RecordBatch], add_fields: AddFields = _same
) -> Iterator[pa.RecordBatch]:
    """A file for each hour, more for a large one, and a row about each file and partition in it."""
    files: Counter[str] = Counter()
    for (hour, _), pieces in itertools.groupby(_by_file(batches), key=lambda piece: piece[:2]):
        folder = hour_folder(hour * HOUR_US)
        path = f"{folder}/{_numbered(name, files[folder])}"
        files[folder] += 1
        staged = lake.scratch_path()
        tally = Tally()
        with lake.create(staged) as stream:
            rows_of_file = (tally.count(add_fields(rows)) for _, _, rows in pieces)
            write_rows(stream, rows_of_file, with_times=folder != UNKNOWN_HOUR)
            size = stream.tell()
        yield tally.told(staged, path, size)


def _numbered(name: str, number: int) -> str:
    return f"{name.removesuffix('.parquet')}-{number}.parquet" if number else name


def _by_file(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.Table]]:
    """The rows with their hour, and with how many files of that hour are full before them."""
    last_hour: int | None = None
    size = 0
    for hour, rows in _by_hour(batches):
        size = size if hour == last_hour else 0
        last_hour = hour
        yield hour, size // FILE_BYTES, rows
        size += rows.nbytes


def _by_hour(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    for batch in batches:
        hours = batch.column(HOUR).to_numpy(zero_copy_only=False)
        headers = batch.schema.get_field_index("headers")
        batch = batch.set_column(headers, "headers", _null_if_empty(batch.column(headers)))
        rows = pa.Table.from_batches([batch]).select(SCHEMA.names).cast(SCHEMA)
        edges = np.flatnonzero(np.diff(hours)) + 1
        for start, end in zip([0, *edges], [*edges, len(hours)], strict=True):
            if end > start:
                yield int(hours[start]), rows.slice(start, end - start)


def _null_if_empty(lists: pa.ListArray) -> pa.ListArray:
    """As the source has them."""
    empty = pc.fill_null(pc.equal(pc.list_value_length(lists), 0), True)
    return pa.ListArray.from_arrays(lists.offsets, lists.values, mask=empty)


def write_rows(stream: pa.NativeFile, pieces: Iterable[pa.Table], *, with_times: bool = True) -> None:
    """Parquet with row groups of a useful size, whatever the size of the pieces.

    `with_times`: the footer says from when to when. Iceberg's library cannot read there what is no date.
    """
    statistics = True if with_times else ["partition", "offset"]
    options = {"compression": COMPRESSION, "write_statistics": statistics}
    given = iter(pieces)
    first = next(given, None)
    schema = SCHEMA if first is None else first.schema
    with pq.ParquetWriter(stream, schema, **options) as writer:
        pending: list[pa.Table] = []
        for rows in itertools.chain([] if first is None else [first], given):
            pending.append(rows)
            if sum(table.nbytes for table in pending) >= ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(pending).combine_chunks())
                pending = []
        if pending:
            writer.write_table(pa.concat_tables(pending).combine_chunks())


class Tally:
    """Counts what goes into one file, by partition."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._misfits: dict[int, int] = {}
        self._first_offsets: dict[int, int] = {}
        self._last_offsets: dict[int, int] = {}

    def count(self, rows: pa.Table) -> pa.Table:
        """Returns the rows as they are, to be counted in passing."""
        counted = rows.group_by("partition").aggregate(
            [("offset", "min"), ("offset", "max"), ("offset", "count")]
        )
        for partition, first_offset, last_offset, count in zip(
            *(column.to_pylist() for column in counted), strict=True
        ):
            self._rows[partition] = self._rows.get(partition, 0) + count
            self._first_offsets[partition] = min(
                self._first_offsets.get(partition, first_offset), first_offset
            )
            self._last_offsets[partition] = max(self._last_offsets.get(partition, -1), last_offset)
        if FIELDS in rows.column_names:
            self._count_misfits(rows)
        return rows

    def _count_misfits(self, rows: pa.Table) -> None:
        wrong = pc.and_(pc.is_valid(rows.column("value")), pc.is_null(rows.column(FIELDS)))
        for partition in rows.column("partition").filter(wrong).to_pylist():
            self._misfits[partition] = self._misfits.get(partition, 0) + 1

    def told(self, staged: str, path: str, size: int) -> pa.RecordBatch:
        rows = [
            {
                "staged": staged,
                "path": path,
                "rows": rows,
                "bytes": size,
                "partition": at,
                "first_offset": self._first_offsets[at],
                "last_offset": self._last_offsets[at],
                "misfits": self._misfits.get(at, 0),
            }
            for at, rows in self._rows.items()
        ]
        return pa.RecordBatch.from_pylist(rows, schema=_WRITTEN)
