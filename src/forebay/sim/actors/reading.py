"""The records that a client passes to its program from a fetch response."""

from __future__ import annotations

from forebay.errors import ProtocolError
from forebay.wire.batch import BatchHeader, crc_ok, read_marker, records, split
from forebay.wire.messages.fetch import PartitionData
from forebay.wire.records import Record


def shown_records(found: PartitionData, from_offset: int, *, committed: bool) -> tuple[list[Record], int]:
    """The records of a fetch from an offset on, as a client shows them to a program; and the next offset.

    A damaged batch is not shown: the client stays before it, and asks again.
    """
    data = memoryview(bytes(found.records or b""))  # type: ignore[arg-type]
    aborted = sorted((item.first_offset, item.producer_id) for item in found.aborted_transactions or ())
    open_aborted: set[int] = set()
    shown: list[Record] = []
    position = from_offset
    for start, header in _batches(data):
        if not crc_ok(data, start, header.size):
            break
        batch = data[start : start + header.size]
        while aborted and aborted[0][0] <= header.last_offset:
            open_aborted.add(aborted.pop(0)[1])
        position = max(position, header.next_offset)
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.commit:
                open_aborted.discard(marker.producer_id)
        elif not (committed and header.is_transactional and header.producer_id in open_aborted):
            shown += [record for record in records(batch) if record.offset >= from_offset]
    return shown, position


def _batches(data: memoryview) -> list[tuple[int, BatchHeader]]:
    try:
        return split(data)
    except ProtocolError:
        return []  # a length is damaged, so the next batch cannot be found


def messages(
    found: PartitionData, from_offset: int, *, committed: bool
) -> tuple[list[tuple[int, bytes]], int]:
    """Like `shown_records`, but only offsets and values."""
    shown, position = shown_records(found, from_offset, committed=committed)
    return [(record.offset, bytes(record.value or b"")) for record in shown], position
