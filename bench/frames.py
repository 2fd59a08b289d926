"""Requests built before the clock starts, in versions that name topics by their names and not by ids."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from bench.load import Stream
from forebay.wire.batch import build_batch
from forebay.wire.fields import Request
from forebay.wire.frames import request_frame
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from forebay.wire.parts import join
from forebay.wire.records import Record

PRODUCE_VERSION = 9
FETCH_VERSION = 12
CLIENT_ID = "bench"
RECORD_BYTES = 1000
MB_BATCH_RECORDS = 1024
"""With the framing of each record, close under the mebibyte that `max.message.bytes` allows."""
KB16_BATCH_RECORDS = 16
KB64_BATCH_RECORDS = 64
IN_FLIGHT_REQUESTS = 5
"""Unanswered requests per connection: what Java's producer allows, and every idempotent producer."""
DEEP_BLOB_BYTES = 64 * 1024
DISTINCT_REQUESTS = 8
CORRELATION_ID_AT = 8
"""Behind the length, the API key and the version."""


def batch_of(records: int, value_bytes: int) -> bytes:
    """A batch as a producer would send it: plain values, the time of now."""
    now_ms = int(time.time() * 1000)
    value = bytes(range(256)) * (value_bytes // 256 + 1)
    return bytes(build_batch([Record(n, now_ms, None, value[:value_bytes]) for n in range(records)]))


MB_BATCH = batch_of(MB_BATCH_RECORDS, RECORD_BYTES)
KB16_BATCH = batch_of(KB16_BATCH_RECORDS, RECORD_BYTES)
KB64_BATCH = batch_of(KB64_BATCH_RECORDS, RECORD_BYTES)
B200_BATCH = batch_of(1, 200)


def frame_bytes(request: Request, version: int) -> bytes:
    return join(request_frame(request, version, correlation_id=1, client_id=CLIENT_ID))


def produce_request(topic: str, batch: bytes, *, partition: int = 0, acks: int = 1) -> ProduceRequest:
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=partition, records=memoryview(batch))]
    )
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])


def produce_frame(topic: str, batch: bytes, *, partition: int = 0, acks: int = 1) -> bytes:
    return frame_bytes(produce_request(topic, batch, partition=partition, acks=acks), PRODUCE_VERSION)


def fetch_frame(
    topic: str, offset: int, *, max_bytes: int, partition: int = 0, max_wait_ms: int = 0, min_bytes: int = 1
) -> bytes:
    """A fetch without a session, of one partition from one offset."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return frame_bytes(request, FETCH_VERSION)


def numbered(frame: bytes, count: int) -> list[bytes]:
    """The same request under correlation ids that rise, as a client would number them."""
    start, end = CORRELATION_ID_AT, CORRELATION_ID_AT + 4
    return [frame[:start] + struct.pack(">i", n) + frame[end:] for n in range(count)]


def produce_stream(
    topic: str,
    batch: bytes,
    *,
    partition: int = 0,
    acks: int = 1,
    seconds: float,
    bytes_max: int,
) -> Stream:
    """One request per send, as clients do it."""
    return Stream(
        blobs=numbered(produce_frame(topic, batch, partition=partition, acks=acks), DISTINCT_REQUESTS),
        payload_bytes_per_blob=len(batch),
        window=IN_FLIGHT_REQUESTS,
        seconds=seconds,
        blobs_max=bytes_max // len(batch),
    )


def deep_produce_stream(
    topic: str, batch: bytes, *, partition: int = 0, seconds: float, bytes_max: int
) -> Stream:
    """Pipelining at its deepest: many requests per send, and the next lot before the last is answered."""
    frame = produce_frame(topic, batch, partition=partition)
    count = DEEP_BLOB_BYTES // len(frame)
    return Stream(
        blobs=[b"".join(numbered(frame, count))],
        requests_per_blob=count,
        payload_bytes_per_blob=len(batch) * count,
        window=2,
        seconds=seconds,
        blobs_max=bytes_max // (len(batch) * count),
    )


def fetch_stream(
    topic: str, offsets: Sequence[int], batch: bytes, *, partition: int = 0, seconds: float
) -> Stream:
    """Fetches of one batch each, at the given offsets in turn."""
    return Stream(
        blobs=[fetch_frame(topic, offset, max_bytes=len(batch), partition=partition) for offset in offsets],
        payload_bytes_per_blob=len(batch),
        window=IN_FLIGHT_REQUESTS,
        seconds=seconds,
    )
