"""A preview of a view on the newest messages of its source, before it is created.

The same code filters as in brokers, so the preview has the same records and the same values.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from forebay.core.views.filtering import Filtered, filter_batches
from forebay.core.views.view import CompiledView
from forebay.errors import ProtocolError
from forebay.operations.wire import WireConnection, check
from forebay.wire.batch import checked_batches, records
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from forebay.wire.records import Record

_BY_NAME_VERSION = 12
"""The last version of Fetch that names topics."""
_FETCH_BYTES = 1 << 20
_UNPACKED_BYTES_MAX = 16 << 20
_READ_COMMITTED = 1


class PartitionPreview(NamedTuple):
    partition: int
    examined: int
    matched: int
    invalid: int
    records: list[Record]


def preview_partition(
    connection: WireConnection, view: CompiledView, topic: str, partition: int, offsets: tuple[int, int]
) -> PartitionPreview:
    """Of the offsets from the first to before the second; one fetch, so it may be fewer."""
    first, end = offsets
    part = FetchPartition(partition=partition, fetch_offset=first, partition_max_bytes=_FETCH_BYTES)
    request = FetchRequest(
        max_bytes=_FETCH_BYTES,
        isolation_level=_READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
    answer = connection.ask(request, FetchResponse, _BY_NAME_VERSION)
    check(answer.error_code, None)
    found = answer.responses[0].partitions[0]
    check(found.error_code, None)
    sent = found.records or b""
    assert isinstance(sent, bytes | bytearray | memoryview)  # only brokers have other kinds
    data = memoryview(bytes(sent))
    try:
        filtered: Filtered = filter_batches(
            view,
            data,
            first,
            end,
            topic=topic,
            partition=partition,
            now_ms=time.time_ns() // 1_000_000,
            decompress_max_bytes=_UNPACKED_BYTES_MAX,
        )
    except ProtocolError:
        return PartitionPreview(partition, 0, 0, 0, [])
    shown = [
        record
        for batch, header in checked_batches(memoryview(filtered.data))
        if not header.is_control
        for record in records(batch)
        if first <= record.offset < end
    ]
    return PartitionPreview(partition, filtered.examined, filtered.delivered, filtered.invalid, shown)
