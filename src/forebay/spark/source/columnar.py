"""Records as arrays of positions: the fields of many records read by a few numpy calls.

A record begins with its length, so where the next one begins is known only when this one's length was read:
that chain is followed in Python, and it is the only thing done record by record. Runs of records of the same
length, which most topics are made of, need not even that: if every place at that distance holds the same
length, they are all records. All other fields are variable-length integers, which are decoded for all records
at once, a byte of each in every round.

Bytes may say anything. Positions are checked against the ends of their records before they are used to read
keys and values; whatever does not fit is a ProtocolError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from forebay.errors import ProtocolError
from forebay.spark.arrow.arrays import Ints
from forebay.spark.source.record_batches import Batch, Chunk
from forebay.wire.batch import LOG_APPEND_TIME
from forebay.wire.varint import read_varint

Bytes8: TypeAlias = npt.NDArray[np.uint8]

RUN_LEFT_MIN = 192
"""With fewer records left in a batch, following them one by one is cheaper than the calls that find runs."""
RUN_RECORDS_MIN = 48
"""A run shorter than this is not worth looking for the next one at once."""
RUN_WINDOW = 128
"""How many records are looked at first; more, when all of them were one run."""
CHASED_RECORDS = 192
"""How many records are followed one by one before a run is looked for again."""

RECORD_BYTES_MIN = 7
_VARINT_BITS_MAX = 63
_CONTINUED = 0x80
"""A byte from here on is not the last one of its integer."""
_ONE_BYTE = np.array([(number >> 1) ^ -(number & 1) for number in range(_CONTINUED)], np.int64)
"""What a byte means that is an integer by itself."""


class Field(NamedTuple):
    """Where a key or value lies in each record, and whether it is null."""

    start: Ints
    end: Ints
    null: npt.NDArray[np.bool_]

    def pick(self, rows: slice | Ints) -> Field:
        return Field(self.start[rows], self.end[rows], self.null[rows])


class Columns(NamedTuple):
    """One entry for each record of a chunk, in the order of the log."""

    data: Bytes8
    offset: Ints
    timestamp: Ints
    """Milliseconds."""
    timestamp_type: npt.NDArray[np.int32]
    """0 when the producer gave the time, 1 when the broker did."""
    key: Field
    value: Field
    end: Ints
    """Where the record ends; its headers lie between this and the end of the value."""

    def pick(self, rows: slice | Ints) -> Columns:
        return Columns(
            self.data,
            self.offset[rows],
            self.timestamp[rows],
            self.timestamp_type[rows],
            self.key.pick(rows),
            self.value.pick(rows),
            self.end[rows],
        )


def columns(chunk: Chunk) -> Columns:
    data = np.frombuffer(chunk.data, np.uint8)
    start, end = _records(chunk.data, data, chunk.batches)
    length, position = varints(data, start)
    if not np.array_equal(position + length, end):
        raise ProtocolError("the lengths of records do not fill their batch")
    timestamp_delta, position = varints(data, position + 1)  # the attributes of a record are one unused byte
    offset_delta, position = varints(data, position)
    key, position = field(data, position)
    value, position = field(data, position)
    check_within(position, end)
    repeats = [batch.record_count for batch in chunk.batches]
    timestamp, kinds = _timestamps(chunk.batches, repeats, timestamp_delta)
    offset = np.repeat([batch.base_offset for batch in chunk.batches], repeats) + offset_delta
    return Columns(data, offset, timestamp, kinds, key, value, end)


def varints(data: Bytes8, position: Ints) -> tuple[Ints, Ints]:
    """The signed integers at these positions, and the positions behind them.

    What lies beyond the data reads as its last byte: the caller checks where it came out.
    """
    byte = data.take(position, mode="clip")
    position = position + 1
    more = byte >= _CONTINUED
    if not more.any():
        return _ONE_BYTE.take(byte), position
    # All integers are looked at in every round, also those that have ended: that is cheaper than to pick out
    # the others, of which there are mostly as many.
    raw = (byte & 0x7F).astype(np.uint64)
    shift = 7
    while True:
        if shift > _VARINT_BITS_MAX:
            raise ProtocolError("a varint in a record is longer than 64 bits")
        byte = data.take(position, mode="clip")
        byte *= more
        raw |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        position += more
        more = byte >= _CONTINUED
        if not more.any():
            break
        shift += 7
    one = np.uint64(1)
    return ((raw >> one) ^ (~(raw & one) + one)).view(np.int64), position


def field(data: Bytes8, position: Ints) -> tuple[Field, Ints]:
    """Bytes with their length in front of them, -1 for null; and the positions behind them."""
    length, start = varints(data, position)
    if not length.size or int(length.min()) >= 0:
        return Field(start, start + length, np.zeros(len(start), np.bool_)), start + length
    if int(length.min()) < -1:
        raise ProtocolError("a field of a record has a negative length")
    end = start + np.maximum(length, 0)
    return Field(start, end, length < 0), end


def check_within(position: Ints, end: Ints) -> None:
    """Positions only grow, unless a length is absurd; then the sum has gone past the end or wrapped."""
    if bool((position > end).any()) or bool((position < 0).any()):
        raise ProtocolError("a field of a record reaches beyond the record")


def _timestamps(
    batches: Sequence[Batch], repeats: list[int], delta: Ints
) -> tuple[Ints, npt.NDArray[np.int32]]:
    appended = np.array([bool(batch.attributes & LOG_APPEND_TIME) for batch in batches])
    kinds = np.repeat(appended.astype(np.int32), repeats)
    timestamp = np.repeat([batch.base_timestamp for batch in batches], repeats) + delta
    if appended.any():
        by_broker = np.repeat([batch.max_timestamp for batch in batches], repeats)
        timestamp = np.where(kinds == 1, by_broker, timestamp)
    return timestamp, kinds


# -- where records begin -----------------------------------------------------------------------------------


def _records(raw: bytes | memoryview, data: Bytes8, batches: Sequence[Batch]) -> tuple[Ints, Ints]:
    """Start and end of every record; a batch's last record ends where the batch ends."""
    total = sum(batch.record_count for batch in batches)
    if any(not 0 < b.record_count * RECORD_BYTES_MIN <= b.end - b.start for b in batches):
        raise ProtocolError("a batch claims to hold more records than fit in it")
    start = np.empty(total, np.int64)
    end = np.empty(total, np.int64)
    filled = 0
    for batch in batches:
        until = filled + batch.record_count
        _find_starts(raw, data, batch, start[filled:until])
        end[filled : until - 1] = start[filled + 1 : until]
        end[until - 1] = batch.end
        filled = until
    return start, end


def _find_starts(raw: bytes | memoryview, data: Bytes8, batch: Batch, out: Ints) -> None:
    position, found, count = batch.start, 0, batch.record_count
    window = RUN_WINDOW
    try:
        while found < count:
            if count - found >= RUN_LEFT_MIN:
                run, size = _run(raw, data, position, batch.end, min(count - found, window))
                out[found : found + run] = position + size * np.arange(run)
                found += run
                position += run * size
                # What was looked at in vain stays in proportion to what was found.
                window = 4 * window if run == window else RUN_WINDOW
                if run >= RUN_RECORDS_MIN:
                    continue
            chased = min(CHASED_RECORDS, count - found)
            out[found : found + chased], position = _chase(raw, position, chased)
            found += chased
    except IndexError:
        raise ProtocolError("a record runs past the end of its batch") from None


def _run(raw: bytes | memoryview, data: Bytes8, position: int, end: int, count: int) -> tuple[int, int]:
    """How many records from here on have the same length as the first, and the size of each."""
    length, body = read_varint(raw, position)
    width = body - position
    size = width + length
    fitting = min(count, (end - position) // size) if length > 0 else 0
    if fitting < RUN_RECORDS_MIN:
        return 0, size
    lengths = data[position : position + fitting * size].reshape(fitting, size)
    same = lengths[:, 0] == lengths[0, 0]
    for at in range(1, width):
        same &= lengths[:, at] == lengths[0, at]
    return fitting if same.all() else int(same.argmin()), size


def _chase(raw: bytes | memoryview, position: int, count: int) -> tuple[list[int], int]:
    """Follow the lengths of `count` records; the position behind the last."""
    starts: list[int] = []
    append = starts.append
    for _ in range(count):
        append(position)
        low = raw[position]
        if low < 0x80:
            position += (low >> 1) + 1
            continue
        high = raw[position + 1]
        if high < 0x80:
            position += (high << 6) + ((low & 0x7F) >> 1) + 2
        else:
            length, position = read_varint(raw, position)
            position += length
    return starts, position
