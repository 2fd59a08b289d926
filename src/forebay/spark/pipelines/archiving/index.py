"""Which part of which file holds which offsets: what a replay plans with.

Parquet keeps the least and the greatest value of each column with each row group, so footers are all that
has to be read. After a merge a row group may hold several partitions. Its bounds are then wider: it is
sometimes read in vain, and no message is missed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forebay.lazy import dataclass
from forebay.spark.arrow.batch_sizes import bounded
from forebay.spark.pipelines.archiving.layout import SCHEMA, hour_of
from forebay.spark.pipelines.lake import Lake

Timeline: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Offsets, and their timestamps in microseconds."""

_FOOTER_THREADS = 8
_ANYTHING = (-(1 << 63), (1 << 63) - 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A row group, with the bounds of what is in it, both ends included."""

    path: str
    row_group: int
    partitions: tuple[int, int]
    offsets: tuple[int, int]
    times_us: tuple[int, int]
    bytes: int = 0
    """Uncompressed, as Parquet counts them."""

    def has(self, partition: int) -> bool:
        return self.partitions[0] <= partition <= self.partitions[1]

    def touches(self, start: int, end: int) -> bool:
        return self.offsets[0] < end and self.offsets[1] >= start

    def bytes_between(self, start: int, end: int) -> int:
        """About how many bytes it holds of one partition's offsets, if they are spread evenly."""
        first, last = self.offsets
        common = max(0, min(end, last + 1) - max(start, first))
        return self.bytes * common // ((last + 1 - first) * (self.partitions[1] + 1 - self.partitions[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """From a moment until before another, in microseconds since 1970; None is open."""

    from_us: int | None = None
    until_us: int | None = None

    def touches(self, first_us: int, last_us: int) -> bool:
        return (self.from_us is None or last_us >= self.from_us) and (
            self.until_us is None or first_us < self.until_us
        )

    def keep(self, rows: pa.Table) -> pa.Table:
        times = rows.column("timestamp").cast(pa.int64())
        if self.from_us is not None:
            keep = pc.greater_equal(times, self.from_us)
            rows, times = rows.filter(keep), times.filter(keep)
        if self.until_us is not None:
            rows = rows.filter(pc.less(times, self.until_us))
        return rows


ALWAYS = TimeRange()


def read_index(lake: Lake, paths: Iterable[str], times: TimeRange) -> list[Span]:
    """The row groups that may hold messages of the time range; whole hours are left out unread."""
    wanted = [path for path in paths if _hour_touches(path, times)]
    with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
        spans = [span for found in threads.map(lambda path: _spans(lake, path), wanted) for span in found]
    return [span for span in spans if times.touches(*span.times_us)]


def _hour_touches(path: str, times: TimeRange) -> bool:
    hour = hour_of(path)
    if hour is None:
        return True
    start_us = (hour - _EPOCH) // _MICROSECOND
    return times.touches(start_us, start_us + 3_600_000_000 - 1)


def _spans(lake: Lake, path: str) -> list[Span]:
    with lake.files.open_input_file(lake.path(path)) as stream:
        metadata = pq.ParquetFile(stream).metadata
        names = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        Span(
            path=path,
            row_group=number,
            partitions=_bounds(group.column(names["partition"])),
            offsets=_bounds(group.column(names["offset"])),
            times_us=_bounds(group.column(names["timestamp"])),
            bytes=group.total_byte_size,
        )
        for number, group in enumerate(groups)
        if group.num_rows
    ]


def _bounds(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        return _ANYTHING
    if json.loads(statistics.logical_type.to_json()).get("timeUnit") == "microseconds":
        return statistics.min_raw, statistics.max_raw  # a year beyond 9999 is no datetime
    return _number(statistics.min), _number(statistics.max)


def _number(value: int | datetime) -> int:
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Offsets of one partition, and where they may be found."""

    location: str
    partition: int
    start: int
    end: int
    times: TimeRange
    spans: tuple[Span, ...]

    def read(self, columns: Sequence[str] = tuple(SCHEMA.names)) -> pa.Table:
        """The messages in the order of their offsets."""
        lake = Lake(self.location)
        needed = list(dict.fromkeys([*columns, "partition", "offset", "timestamp"]))
        tables = [self._of_span(lake, span, needed) for span in self.spans]
        schema = pa.schema([SCHEMA.field(name) for name in needed])
        rows = pa.concat_tables([schema.empty_table(), *tables])
        return rows.sort_by("offset").select(list(columns))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The same. Only row groups whose offsets overlap are in memory together."""
        for spans in _overlapping(self.spans):
            for rows in replace(self, spans=spans).read().combine_chunks().to_batches():
                yield from bounded(rows)

    def timeline(self) -> Timeline:
        rows = self.read(("offset", "timestamp"))
        return rows.column(0).to_numpy(), rows.column(1).cast(pa.int64()).to_numpy()

    def _of_span(self, lake: Lake, span: Span, columns: list[str]) -> pa.Table:
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        with lake.files.open_input_file(lake.path(span.path)) as stream:
            rows = pq.ParquetFile(stream).read_row_group(span.row_group, columns).select(columns).cast(schema)
        offset = rows.column("offset")
        mine = pc.equal(rows.column("partition"), self.partition)
        mine = pc.and_(mine, pc.and_(pc.greater_equal(offset, self.start), pc.less(offset, self.end)))
        return self.times.keep(rows.filter(mine))


def _overlapping(spans: Iterable[Span]) -> Iterator[tuple[Span, ...]]:
    """In the order of their offsets; those that share a stretch of offsets together."""
    group: list[Span] = []
    for span in sorted(spans, key=lambda span: span.offsets):
        if group and span.offsets[0] > max(member.offsets[1] for member in group):
            yield tuple(group)
            group = []
        group.append(span)
    if group:
        yield tuple(group)
