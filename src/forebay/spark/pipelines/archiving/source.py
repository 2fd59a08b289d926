"""An archive as a stream of Spark, in the order of the offsets, at the pace that is asked for.

The offset of the stream is the next offset of each partition, so a restart goes on where the sink's last
batch ended. The pace is kept on the driver, which releases no more messages than are due: `latestOffset`
waits until some are. A batch is bounded in offsets and in bytes, and a task holds a few row groups of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from forebay.spark.arrow.schema import spark_schema
from forebay.spark.pipelines.archiving.compact import archive_files
from forebay.spark.pipelines.archiving.index import Slice, Span, Timeline, TimeRange, read_index
from forebay.spark.pipelines.archiving.layout import require_position
from forebay.spark.pipelines.lake import Lake

NAME = "forebay-archive"
BATCH_RECORDS = 100_000
BATCH_BYTES = 256 << 20
_NAP_S = 0.2

Clock: TypeAlias = Callable[[], float]
Offsets: TypeAlias = Mapping[str, int]
"""By partition, whose number is text as in JSON."""


class ArchiveSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(headers=True)

    def streamReader(self, schema: StructType) -> ArchiveReader:  # noqa: ARG002 - all columns, always
        return ArchiveReader(self.options)


class ArchiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver for as long as the query; `read` runs in tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._location = options["path"]
        self._times = TimeRange(from_us=_number(options, "from_us"), until_us=_number(options, "until_us"))
        self._batch_records = int(options.get("batch_records", BATCH_RECORDS))
        self._batch_bytes = int(options.get("batch_bytes", BATCH_BYTES))
        self._pace = _pace(options, self._batch_records)
        self._spans: dict[int, list[Span]] | None = None
        self._archived: Offsets = {}
        """Where the archive of each partition ends."""

    def __getstate__(self) -> dict[str, Any]:
        """A task needs nothing of the reader: its partition says everything."""
        return {"_location": self._location}

    def initialOffset(self) -> dict[str, int]:
        return {str(at): self._next(at, 0) for at in self._index()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing to do: the index is read only once."""

    def latestOffset(self, start: dict[str, int], limit: object = None) -> dict[str, int]:  # noqa: ARG002
        ends = self.reportLatestOffset()
        starts = {at: self._next(int(at), offset) for at, offset in {**self.initialOffset(), **start}.items()}
        while True:
            released = self._within_bytes(starts, self._pace.release(self, starts, ends))
            if released != starts or all(starts[at] >= ends[at] for at in ends):
                return released
            time.sleep(_NAP_S)

    def reportLatestOffset(self) -> dict[str, int]:
        """Row groups that were merged hold several partitions, and say where the furthest ends. The archive
        itself may end earlier, and go on while a replay is stopped."""
        ends = {at: max(span.offsets[1] for span in spans) + 1 for at, spans in self._index().items()}
        return {str(at): min(end, self._archived.get(str(at), 0)) for at, end in ends.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        slices = (self.slice(int(at), start.get(at, 0), offset) for at, offset in end.items())
        return [InputPartition(found) for found in slices if found.spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        found: Slice = partition.value
        return found.batches()

    def slice(self, partition: int, start: int, end: int) -> Slice:
        spans = tuple(span for span in self._index().get(partition, ()) if span.touches(start, end))
        return Slice(
            location=self._location, partition=partition, start=start, end=end, times=self._times, spans=spans
        )

    def _within_bytes(self, starts: Offsets, released: dict[str, int]) -> dict[str, int]:
        """No more than a batch may have of bytes, as far as footers tell; an offset of each at least."""
        while True:
            size = sum(self._bytes_between(int(at), starts[at], end) for at, end in released.items())
            counts = {at: end - starts[at] for at, end in released.items()}
            if size <= self._batch_bytes or max(counts.values()) <= 1:
                return released
            shares = {
                at: min(count, max(1, count * self._batch_bytes // size)) for at, count in counts.items()
            }
            released = {at: starts[at] + shares[at] for at in shares}

    def _bytes_between(self, partition: int, start: int, end: int) -> int:
        spans = self._index().get(partition, ())
        return sum(span.bytes_between(start, end) for span in spans if span.touches(start, end))

    def _next(self, partition: int, offset: int) -> int:
        """The offset, or the next one that a row group covers and the archive has come to."""
        spans = self._index().get(partition, ())
        covered = min(
            (max(offset, span.offsets[0]) for span in spans if span.offsets[1] >= offset), default=offset
        )
        return max(offset, min(covered, self._archived.get(str(partition), 0)))

    def _index(self) -> dict[int, list[Span]]:
        """Row groups by partition. Read once: what is archived later is not replayed."""
        if self._spans is None:
            lake = Lake(self._location)
            position = require_position(lake)
            spans = read_index(lake, archive_files(lake, position), self._times)
            self._archived = position.next_offsets
            numbers = range(1 + max((span.partitions[1] for span in spans), default=-1))
            found = {at: [span for span in spans if span.has(at)] for at in numbers}
            self._spans = {at: mine for at, mine in found.items() if mine}
        return self._spans


# -- pace ---------------------------------------------------------------------------------------------------


class Unhurried:
    """As fast as the sink can write: a fixed number of offsets per batch, divided among the partitions."""

    def __init__(self, batch_records: int) -> None:
        self._batch_records = batch_records

    def release(self, _reader: ArchiveReader, starts: Offsets, ends: Offsets) -> dict[str, int]:
        left = {at: max(0, ends[at] - starts[at]) for at in ends}
        total = sum(left.values())
        limit = min(self._batch_records, total)
        shares = {at: count * limit // max(1, total) for at, count in left.items()}
        # The remainder of the division goes to the partitions with most offsets left, so that none starves.
        for at in sorted(left, key=lambda at: -left[at])[: limit - sum(shares.values())]:
            shares[at] += 1
        return {at: starts[at] + shares[at] for at in ends}


class AtRate:
    """A rate in messages per second: each batch holds those of a second, and is released when it is due."""

    def __init__(self, records_per_s: float, batch_records: int, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._step_s = max(1.0, 1 / records_per_s)
        self._batch = Unhurried(min(batch_records, max(1, int(records_per_s * self._step_s))))
        self._due_s = -math.inf

    def release(self, reader: ArchiveReader, starts: Offsets, ends: Offsets) -> dict[str, int]:
        now_s = self._clock()
        if now_s < self._due_s:
            return dict(starts)
        # A release that is late by one nap keeps the schedule; a later one moves it.
        self._due_s = max(self._due_s, now_s - _NAP_S) + self._step_s
        return self._batch.release(reader, starts, ends)


class AtSpeed:
    """The original pace of the messages times a factor, counted from the first message that is left."""

    def __init__(self, factor: float, batch_records: int, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._factor = factor
        self._batch = Unhurried(batch_records)
        self._began: tuple[float, int] | None = None
        self._lines: tuple[Any, dict[str, Timeline]] = (None, {})

    def release(self, reader: ArchiveReader, starts: Offsets, ends: Offsets) -> dict[str, int]:
        most = self._batch.release(reader, starts, ends)
        lines = self._timelines(reader, starts, most)
        times = [int(line[1][0]) for line in lines.values() if len(line[1])]
        if not times:
            return most
        if self._began is None:
            self._began = self._clock(), min(times)
        due_us = self._began[1] + int((self._clock() - self._began[0]) * 1_000_000 * self._factor)
        return {at: self._until(line, due_us, most[at]) for at, line in lines.items()}

    def _timelines(self, reader: ArchiveReader, starts: Offsets, most: Offsets) -> dict[str, Timeline]:
        """Read once, and kept until their messages are due."""
        if self._lines[0] != (starts, most):
            lines = {at: reader.slice(int(at), starts[at], most[at]).timeline() for at in most}
            self._lines = (dict(starts), dict(most)), lines
        return self._lines[1]

    def _until(self, line: Timeline, due_us: int, most: int) -> int:
        """The first offset that is not due. So the order in a partition is kept, whatever the timestamps."""
        offsets, times_us = line
        late = np.flatnonzero(times_us > due_us)
        return int(offsets[late[0]]) if len(late) else most


def _pace(options: Mapping[str, str], batch_records: int) -> Unhurried | AtRate | AtSpeed:
    if "rate" in options:
        return AtRate(float(options["rate"]), batch_records)
    if "speed" in options:
        return AtSpeed(float(options["speed"]), batch_records)
    return Unhurried(batch_records)


def _number(options: Mapping[str, str], name: str) -> int | None:
    return int(options[name]) if name in options else None
