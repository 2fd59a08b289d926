"""From Arrow columns to the records of batches, without a step of Python per row.

A record is a handful of varints around its key, value and headers. The varints of all rows are computed as
arrays and laid out as one short byte string per row; one Arrow kernel then joins these strings with the bytes
of the columns, row by row, into one buffer. Where one batch ends and the next begins has to be known first,
since offsets and timestamps in a record count from the start of its batch: `cut` decides that from an upper
bound of the sizes. A batch is a slice of the buffer.

    length | 0 | timestamp delta | offset delta | key length || key || value length || value || headers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forebay.lazy import dataclass
from forebay.spark.arrow.arrays import Ints, array, binary, constant, ends, lengths

Varints = tuple[npt.NDArray[np.uint64], Ints]
"""Zigzag numbers, and the bytes that each of them takes."""

NO_BYTES = constant(b"")
_NO_HEADERS = constant(b"\x00")
_LENGTH_BYTES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The parts of records, in columns of one length."""

    key: pa.Array
    value: pa.Array
    """Both binary; null is null."""
    timestamp: Ints
    """Milliseconds since the epoch."""
    headers: pa.Array | None = None
    """A list of structs of a string `key` and a binary `value` for each row, null for none."""

    def __len__(self) -> int:
        return len(self.timestamp)

    def take(self, order: npt.NDArray[np.intp]) -> Rows:
        wanted = array(pa.int64(), order.astype(np.int64, copy=False))
        return Rows(
            key=self.key.take(wanted),
            value=self.value.take(wanted),
            timestamp=self.timestamp[order],
            headers=None if self.headers is None else self.headers.take(wanted),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The records of one batch, not compressed."""

    records: memoryview
    count: int
    base_timestamp: int
    max_timestamp: int


def cut(rows: Rows, starts: Sequence[int], batch_bytes: int) -> list[int]:
    """Where batches start: at each of `starts`, which begins with 0, and wherever one would grow too large.

    A row that is too large by itself gets a batch of its own; whether to take it is for the broker to say.
    """
    sizes = np.cumsum(bytes_bound(rows))
    found: list[int] = []
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        while start < stop:
            found.append(start)
            limit = (sizes[start - 1] if start else 0) + batch_bytes
            start = min(stop, max(start + 1, int(np.searchsorted(sizes, limit, side="right"))))
    return found


def encode(rows: Rows, starts: Sequence[int]) -> Iterator[Payload]:
    """The records from each start to the next, in this order."""
    first = np.asarray(starts, np.int64)
    stops = np.append(first[1:], len(rows))
    counts = stops - first
    timestamps = rows.timestamp - np.repeat(rows.timestamp[first], counts)
    offsets = np.arange(len(rows), dtype=np.int64) - np.repeat(first, counts)
    joined = _join(rows, timestamps, offsets)
    data = memoryview(joined.buffers()[2])
    edges = ends(joined)
    latest = np.maximum.reduceat(rows.timestamp, first)
    for n, (start, stop) in enumerate(zip(first.tolist(), stops.tolist(), strict=True)):
        yield Payload(
            records=data[edges[start] : edges[stop]],
            count=stop - start,
            base_timestamp=int(rows.timestamp[start]),
            max_timestamp=int(latest[n]),
        )


def _join(rows: Rows, timestamps: Ints, offsets: Ints) -> pa.Array:
    key_lengths, value_lengths = lengths(rows.key), lengths(rows.value)
    key, value = _varints(key_lengths), _varints(value_lengths)
    time, offset = _varints(timestamps), _varints(offsets)
    headers, tail, tail_bytes = _tail(rows.headers)
    body = 1 + time[1] + offset[1] + key[1] + value[1] + tail_bytes
    body += np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    attributes = (np.zeros(len(rows), np.uint64), np.ones(len(rows), np.int64))
    head = _laid_out([_varints(body), attributes, time, offset, key])
    pieces = [head, _filled(rows.key), _laid_out([value]), _filled(rows.value), tail]
    return pc.binary_join_element_wise(*pieces, *headers, NO_BYTES)


def bytes_bound(rows: Rows) -> Ints:
    """No record is larger than this; most are a few bytes smaller."""
    key_lengths, value_lengths = lengths(rows.key), lengths(rows.value)
    spread = int(rows.timestamp.max()) - int(rows.timestamp.min())
    fixed = _varints(np.array([spread, -spread, len(rows)], np.int64))[1]
    _, _, tail_bytes = _tail(rows.headers)
    return (
        _varints(key_lengths)[1]
        + _varints(value_lengths)[1]
        + np.maximum(key_lengths, 0)
        + np.maximum(value_lengths, 0)
        + tail_bytes
        + (_LENGTH_BYTES_MAX + 1 + int(fixed[:2].max()) + int(fixed[2]))
    )


def _tail(headers: pa.Array | None) -> tuple[list[pa.Array], Any, Ints | int]:
    """How many headers, their bytes if there are any, and what both take in each row."""
    if headers is None or headers.null_count == len(headers):
        return [], _NO_HEADERS, 1
    counts = np.maximum(lengths(headers), 0)
    each = headers.flatten()
    count = _varints(counts)
    if len(each) == 0:
        return [], _NO_HEADERS, 1
    encoded = _encoded_headers(each)
    # The headers of a row lie side by side, so that a row is the stretch from its first to its last.
    edges = ends(encoded)[np.concatenate([[0], np.cumsum(counts)])]
    stretches = binary(edges, encoded.buffers()[2])
    return [stretches], _laid_out([count]), count[1] + np.diff(edges)


def _encoded_headers(each: pa.Array) -> pa.Array:
    keys, values = as_binary(each.field("key")), as_binary(each.field("value"))
    key_lengths, value_lengths = (
        _laid_out([_varints(lengths(keys))]),
        _laid_out([_varints(lengths(values))]),
    )
    return pc.binary_join_element_wise(key_lengths, _filled(keys), value_lengths, _filled(values), NO_BYTES)


# -- varints ------------------------------------------------------------------------------------------------


def _varints(numbers: Ints) -> Varints:
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    widths = np.ones(len(numbers), np.int64)
    largest, bound = int(zigzag.max()), 1 << 7
    while bound <= largest:
        widths += zigzag >= np.uint64(bound)
        bound <<= 7
    return zigzag, widths


def _laid_out(fields: Sequence[Varints]) -> pa.Array:
    """One byte string for each row: its number of each field, one behind the other."""
    total = sum((widths for _, widths in fields[1:]), fields[0][1])
    edges = np.concatenate([[0], np.cumsum(total)])
    out = np.empty(int(edges[-1]), np.uint8)
    position = edges[:-1]
    for zigzag, widths in fields:
        _put(out, position, zigzag, widths)
        position = position + widths
    return binary(edges, pa.py_buffer(out))


def _put(out: npt.NDArray[np.uint8], position: Ints, zigzag: npt.NDArray[np.uint64], widths: Ints) -> None:
    narrowest, widest = int(widths.min()), int(widths.max())
    for n in range(widest):
        if n:
            zigzag = zigzag >> np.uint64(7)
        if n >= narrowest:
            longer = widths > n
            position, zigzag, widths = position[longer], zigzag[longer], widths[longer]
        more = (widths > n + 1).astype(np.uint8) << 7
        out[position + n] = (zigzag & np.uint64(0x7F)).astype(np.uint8) | more


# -- Arrow --------------------------------------------------------------------------------------------------


def as_binary(found: pa.Array) -> pa.Array:
    return found if found.type == pa.binary() else found.cast(pa.binary())


def _filled(found: pa.Array) -> pa.Array:
    return found.fill_null(NO_BYTES) if found.null_count else found
