"""What the storage tests share: batches of known content, and reading a log back."""

from __future__ import annotations

from collections.abc import Callable

from forebay.storage.log.log import Log
from forebay.storage.log.timestamp_search import Search, TimestampOffset
from forebay.wire.batch import BatchHeader, build_batch, read_header
from forebay.wire.parts import FileRange
from forebay.wire.records import Record


def batch(offset: int, *, count: int = 1, timestamp: int = 1000, value: bytes = b"v" * 50) -> bytes:
    """`count` records whose timestamps rise by one."""
    records = [Record(offset + n, timestamp + n, b"key", value) for n in range(count)]
    return bytes(build_batch(records, base_offset=offset, partition_leader_epoch=0))


def add(log: Log, *, count: int = 1, timestamp: int = 1000, value: bytes = b"v" * 50) -> bytes:
    """Queue one batch at the end of the log."""
    made = batch(log.end_offset, count=count, timestamp=timestamp, value=value)
    log.append(memoryview(made), read_header(made))
    return made


def fill(log: Log, batches: int, *, count: int = 1, value: bytes = b"v" * 50) -> list[bytes]:
    made = [add(log, count=count, timestamp=1000 + n, value=value) for n in range(batches)]
    log.write_pending()
    return made


def bytes_of(part: FileRange | None) -> bytes:
    return b"" if part is None else part.file.pread(part.length, part.position)


def read_all(log: Log, max_bytes: int = 1 << 20, *, start: int | None = None) -> bytes:
    offset = log.start_offset if start is None else start
    found = b""
    while True:
        piece = log.read(offset, max_bytes)
        if piece.range is None:
            return found
        assert piece.next_offset > offset
        log.files.warm(piece)
        found += bytes_of(piece.range)
        offset = piece.next_offset


def headers(data: bytes) -> list[BatchHeader]:
    found = []
    position = 0
    while position < len(data):
        found.append(read_header(data, position))
        position += found[-1].size
    return found


def find_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """(timestamp, offset) of the first record that is not older."""
    return carry_out(log.search_timestamp(timestamp))


def largest_timestamp(log: Log) -> TimestampOffset | None:
    """(timestamp, offset) of the first record with the largest timestamp."""
    return carry_out(log.search_largest_timestamp())


def carry_out(search: Search, pace: Callable[[int], None] = lambda _: None) -> TimestampOffset | None:
    """Search by time as the broker does, but in one thread."""
    try:
        walk = next(search)
        while True:
            walk = search.send(walk.run(pace))
    except StopIteration as end:
        found: TimestampOffset | None = end.value
        return found
