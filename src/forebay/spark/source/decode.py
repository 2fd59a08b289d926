"""From fetched bytes to the Arrow batches that Spark takes.

Keys and values are not sliced one by one. The bytes as they came are declared to be one binary array, whose
elements are by turns a field and the gap up to the next one, and Arrow's own `take` copies out the fields. So
the result owns its memory, and the buffer of the connection is free for the next fetch.

Only the columns that the schema names are made.

A batch that cannot be decoded is an error that names its offsets, or a row for each of them that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from forebay.errors import ProtocolError
from forebay.lazy import dataclass
from forebay.spark.arrow.arrays import Ints, array, constant, flags
from forebay.spark.arrow.batch_sizes import bounded
from forebay.spark.source.columnar import Columns, Field, check_within, columns, field, varints
from forebay.spark.source.offset_ranges import OffsetRange
from forebay.spark.source.record_batches import Batch, Chunk, Piece, chunks

UNREADABLE = -1
"""The timestamp type of a row that stands for a record that cannot be read."""
LOST = -2
"""The timestamp type of a row that stands for a stretch of offsets that is gone; its value says how many."""
MARK_HINT = "Set unreadableRecords=mark to go on, with a row without key and value for each"
_MICROSECONDS = 1000
_TIMESTAMP_MS_MAX = (2**63 - 1) // _MICROSECONDS
"""The last time that a column can show, in 294247. Brokers take any number; one beyond is read as this."""


class UnreadableBatch(ProtocolError):
    """Records that a broker has and nobody can decode: damaged, or sent so by a producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Which records become rows, beyond their offsets: those of a time span in milliseconds, both ends in."""

    timestamp_ms_min: int | None = None
    timestamp_ms_max: int | None = None

    @property
    def all(self) -> bool:
        return self.timestamp_ms_min is None and self.timestamp_ms_max is None


ALL_ROWS = Rows()


class Decoder:
    """Turns what was fetched of one partition into record batches of one schema."""

    def __init__(
        self,
        schema: pa.Schema,
        wanted: OffsetRange,
        rows: Rows = ALL_ROWS,
        *,
        mark_unreadable: bool = False,
    ) -> None:
        self._schema = schema
        self._wanted = wanted
        self._rows = rows
        self._mark_unreadable = mark_unreadable
        self._makers = [_MAKERS[name] for name in schema.names]

    def decode(self, data: memoryview, piece: Piece) -> Iterator[pa.RecordBatch]:
        """A record batch for every few megabytes; none for a chunk without rows."""
        decoded = 0
        try:
            for chunk in chunks(data, piece.batches):
                rows = self._rows_of(chunk, piece.start)
                decoded += len(chunk.batches)
                yield from rows
        except ProtocolError:
            # One by one, to know which of them it is.
            for batch in piece.batches[decoded:]:
                yield from self._rows_or_marks(data, batch, piece.start)

    def _rows_of(self, chunk: Chunk, start: int) -> list[pa.RecordBatch]:
        found = self._chosen(_parsed(chunk), start)
        if not found.offset.size:
            return []
        arrays = [make(found, self._wanted) for make in self._makers]
        # One compressed batch of a producer may hold much more than a chunk should.
        return list(bounded(pa.RecordBatch.from_arrays(arrays, schema=self._schema)))

    def _rows_or_marks(self, data: memoryview, batch: Batch, start: int) -> list[pa.RecordBatch]:
        try:
            return [rows for chunk in chunks(data, [batch]) for rows in self._rows_of(chunk, start)]
        except ProtocolError as error:
            first, last = max(start, batch.base_offset), min(self._wanted.end - 1, batch.last_offset)
            if not self._mark_unreadable:
                raise UnreadableBatch(
                    f"offsets {first} to {last} of {self._wanted.at} cannot be read: {error}. {MARK_HINT}"
                ) from None
            return list(bounded(self._marks(first, last, batch.base_timestamp)))

    def lost(self, first: int, count: int) -> pa.RecordBatch:
        """A row that stands for offsets that are gone."""
        return self._standing_for(first, first, {"timestampType": LOST, "value": b"%d" % count})

    def _marks(self, first: int, last: int, timestamp_ms: int) -> pa.RecordBatch:
        """A row for each offset of a batch that cannot be read."""
        when = min(max(0, timestamp_ms), _TIMESTAMP_MS_MAX) * _MICROSECONDS
        return self._standing_for(first, last, {"timestamp": when, "timestampType": UNREADABLE})

    def _standing_for(self, first: int, last: int, about: dict[str, Any]) -> pa.RecordBatch:
        """A row for each of these offsets."""
        count = last + 1 - first
        at = self._wanted.at
        known = {"topic": at.topic, "partition": at.partition, "timestamp": 0, **about}
        arrays = [
            pa.array(range(first, last + 1), pa.int64())
            if field.name == "offset"
            else pa.repeat(pa.scalar(known.get(field.name), field.type), count)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _chosen(self, found: Columns, start: int) -> Columns:
        """Batches are fetched whole, so that the first and last may hold offsets that were not asked for."""
        low, high = np.searchsorted(found.offset, (start, self._wanted.end))
        if low > 0 or high < found.offset.size:
            found = found.pick(slice(int(low), int(high)))
        if self._rows.all:
            return found
        keep = np.ones(found.offset.size, np.bool_)
        if self._rows.timestamp_ms_min is not None:
            keep &= found.timestamp >= self._rows.timestamp_ms_min
        if self._rows.timestamp_ms_max is not None:
            keep &= found.timestamp <= self._rows.timestamp_ms_max
        return found.pick(np.flatnonzero(keep))


def _parsed(chunk: Chunk) -> Columns:
    found = columns(chunk)
    if bool((np.diff(found.offset) <= 0).any()):
        raise ProtocolError("the offsets of records do not rise")
    return found


# -- columns -----------------------------------------------------------------------------------------------


def _bytes(data: np.ndarray, found: Field) -> pa.Array:
    """The fields out of the bytes, as a binary array of their own."""
    count = len(found.start)
    if bool(found.null.all()):
        return pa.nulls(count, pa.binary())
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = found.start
    edges[1::2] = found.end
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    return pieces.take(array(pa.int32(), np.arange(0, 2 * count, 2, dtype=np.int32), found.null))


def _topic(found: Columns, wanted: OffsetRange) -> pa.Array:
    return pa.repeat(constant(wanted.at.topic.encode(), pa.string()), len(found.offset))


def _partition(found: Columns, wanted: OffsetRange) -> pa.Array:
    return array(pa.int32(), np.full(len(found.offset), wanted.at.partition, np.int32))


def _timestamp(found: Columns, _wanted: OffsetRange) -> pa.Array:
    shown = np.clip(found.timestamp, -_TIMESTAMP_MS_MAX, _TIMESTAMP_MS_MAX)
    return array(pa.timestamp("us", "UTC"), shown * _MICROSECONDS)


def _headers(found: Columns, _wanted: OffsetRange) -> pa.Array:
    """Lists of key and value; null for a record that has none, as in Spark's source."""
    count, position = varints(found.data, found.value.end)
    room = found.end - position
    if bool((room < 0).any()) or bool((count < 0).any()) or bool((2 * count > room).any()):
        raise ProtocolError("a record cannot hold the headers that it claims")
    key, value = _header_fields(found, count, position)
    keys = _texts(_bytes(found.data, key))
    structs = pa.StructArray.from_arrays([keys, _bytes(found.data, value)], ["key", "value"])
    offsets = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
    return pa.ListArray.from_arrays(array(pa.int32(), offsets), structs, mask=flags(count == 0))


def _texts(found: pa.Array) -> pa.Array:
    """Brokers take any bytes for the key of a header, and none. None is read as an empty text.

    What is not UTF-8 is read as Java's clients read it.
    """
    found = found.fill_null(b"") if found.null_count else found
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([one.decode(errors="replace") for one in found.to_pylist()], pa.string())


def _header_fields(found: Columns, count: Ints, position: Ints) -> tuple[Field, Field]:
    """All headers in the order of the log: read the first of each record, then the second, and so on."""
    rows: list[Ints] = []
    fields: list[tuple[Field, Field]] = []
    active = np.flatnonzero(count)
    while active.size:
        key, at_value = field(found.data, position[active])
        value, behind = field(found.data, at_value)
        check_within(behind, found.end[active])
        position[active] = behind
        rows.append(active)
        fields.append((key, value))
        active = active[count[active] > len(rows)]
    order = np.argsort(np.concatenate(rows), kind="stable") if rows else np.empty(0, np.int64)
    return _joined([key for key, _ in fields], order), _joined([value for _, value in fields], order)


def _joined(fields: list[Field], order: Ints) -> Field:
    if not fields:
        empty = np.empty(0, np.int64)
        return Field(empty, empty, np.empty(0, np.bool_))
    return Field(*(np.concatenate(parts)[order] for parts in zip(*fields, strict=True)))


_MAKERS: dict[str, Callable[[Columns, OffsetRange], pa.Array]] = {
    "key": lambda found, _: _bytes(found.data, found.key),
    "value": lambda found, _: _bytes(found.data, found.value),
    "topic": _topic,
    "partition": _partition,
    "offset": lambda found, _: array(pa.int64(), found.offset),
    "timestamp": _timestamp,
    "timestampType": lambda found, _: array(pa.int32(), found.timestamp_type),
    "headers": _headers,
}
