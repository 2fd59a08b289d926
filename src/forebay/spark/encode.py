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
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Varints = tuple[npt.NDArray[np.uint64], Ints]
"""Zigzag numbers, and the bytes that each of them takes."""

NO_BYTES = pa.scalar(b"", pa.binary())
_NO_HEADERS = pa.scalar(b"\x00", pa.binary())
_LENGTH_BYTES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What records are made of, in columns of one length."""

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
        wanted = pa.array(order)
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
    ends = np.cumsum(_sizes_max(rows))
    found: list[int] = []
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        while start < stop:
            found.append(start)
            limit = (ends[start - 1] if start else 0) + batch_bytes
            start = min(stop, max(start + 1, int(np.searchsorted(ends, limit, side="right"))))
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
    ends = _offsets_of(joined)
    latest = np.maximum.reduceat(rows.timestamp, first)
    for n, (start, stop) in enumerate(zip(first.tolist(), stops.tolist(), strict=True)):
        yield Payload(
            records=data[ends[start] : ends[stop]],
            count=stop - start,
            base_timestamp=int(rows.timestamp[start]),
            max_timestamp=int(latest[n]),
        )


def _join(rows: Rows, timestamps: Ints, offsets: Ints) -> pa.Array:
    key_lengths, value_lengths = _lengths(rows.key), _lengths(rows.value)
    key, value = _varints(key_lengths), _varints(value_lengths)
    time, offset = _varints(timestamps), _varints(offsets)
    headers, tail, tail_bytes = _tail(rows.headers)
    body = 1 + time[1] + offset[1] + key[1] + value[1] + tail_bytes
    body += np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    attributes = (np.zeros(len(rows), np.uint64), np.ones(len(rows), np.int64))
    head = _laid_out([_varints(body), attributes, time, offset, key])
    pieces = [head, _filled(rows.key), _laid_out([value]), _filled(rows.value), tail]
    return pc.binary_join_element_wise(*pieces, *headers, NO_BYTES)


def _sizes_max(rows: Rows) -> Ints:
    """No record is larger than this; most are a few bytes smaller."""
    key_lengths, value_lengths = _lengths(rows.key), _lengths(rows.value)
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
    counts = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    each = headers.flatten()
    count = _varints(counts)
    if len(each) == 0:
        return [], _NO_HEADERS, 1
    encoded = _encoded_headers(each)
    # The headers of a row lie side by side, so that a row is the stretch from its first to its last.
    ends = _offsets_of(encoded)[np.concatenate([[0], np.cumsum(counts)])]
    stretches = _binary(ends, encoded.buffers()[2])
    return [stretches], _laid_out([count]), count[1] + np.diff(ends)


def _encoded_headers(each: pa.Array) -> pa.Array:
    keys, values = as_binary(each.field("key")), as_binary(each.field("value"))
    key_lengths, value_lengths = (
        _laid_out([_varints(_lengths(keys))]),
        _laid_out([_varints(_lengths(values))]),
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
    ends = np.concatenate([[0], np.cumsum(total)])
    out = np.empty(int(ends[-1]), np.uint8)
    position = ends[:-1]
    for zigzag, widths in fields:
        _put(out, position, zigzag, widths)
        position = position + widths
    return _binary(ends, pa.py_buffer(out))


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


def as_binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _lengths(array: pa.Array) -> Ints:
    """-1 for null, as in a record."""
    lengths: Ints = pc.binary_length(array).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _filled(array: pa.Array) -> pa.Array:
    return array.fill_null(NO_BYTES) if array.null_count else array


def _offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def _binary(ends: npt.NDArray[Any], data: pa.Buffer) -> pa.Array:
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), data]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)
