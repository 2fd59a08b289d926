"""Copies a partition into an object store as brokers do, batch for batch, from what a fetch returns.

So the tests of Spark's reads decide themselves where segments and chunks end, and what manifests say.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from forebay.tiers.object_store import ObjectStore
from forebay.wire.batch import BatchHeader, read_marker, split
from forebay.wire.tiers.layout import manifest_key, segment_key
from forebay.wire.tiers.manifest import Manifest, RemoteSegment, encode_manifest
from forebay.wire.tiers.segment_object import AbortedSpan, ChunkBuilder, SegmentIndex, encode_tail
from support.clients.wire_client import EARLIEST, LATEST, WireClient, offset_at, read

Batch = tuple[bytes, BatchHeader]


def copy(
    bootstrap: str,
    store: ObjectStore,
    topic: str,
    topic_id: bytes,
    partition: int = 0,
    *,
    end: int,
    segment_batches: int = 5,
    chunk_bytes: int = 1000,
    start_offset: int = 0,
    unique: str = "1",
) -> Manifest:
    """The batches below an offset, so many to a segment."""
    everything = _batches(bootstrap, topic, partition)
    batches = [each for each in everything if each[1].next_offset <= end]
    spans = _spans(everything)  # also those whose markers lie behind the end
    segments = tuple(
        _upload(store, topic_id, partition, batches[at : at + segment_batches], spans, chunk_bytes, unique)
        for at in range(0, len(batches), segment_batches)
    )
    manifest = Manifest(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        version=1,
        start_offset=start_offset,
        segments=segments,
    )
    store.put(manifest_key(topic_id, partition), encode_manifest(manifest))
    return manifest


def _batches(bootstrap: str, topic: str, partition: int) -> list[Batch]:
    found: list[Batch] = []
    with WireClient(bootstrap) as client:
        offset, end = (offset_at(client, topic, edge, partition) for edge in (EARLIEST, LATEST))
        while offset < end:
            answer = read(client, topic, offset, partitions=(partition,))
            assert answer.error_code == 0 and answer.records, (offset, answer.error_code)
            data = bytes(answer.records)
            for at, header in split(data):
                found.append((data[at : at + header.size], header))
                offset = header.next_offset
    return found


def _spans(batches: Sequence[Batch]) -> list[AbortedSpan]:
    first: dict[int, int] = {}
    found = []
    for data, header in batches:
        if not header.is_transactional:
            continue
        if not header.is_control:
            first.setdefault(header.producer_id, header.base_offset)
            continue
        marker = read_marker(data)
        begun = first.pop(header.producer_id, header.base_offset)
        if marker is not None and not marker.commit:
            found.append(AbortedSpan(header.producer_id, begun, header.base_offset, header.next_offset))
    return found


def _upload(
    store: ObjectStore,
    topic_id: bytes,
    partition: int,
    batches: Sequence[Batch],
    spans: Sequence[AbortedSpan],
    chunk_bytes: int,
    unique: str,
) -> RemoteSegment:
    builder = ChunkBuilder(chunk_bytes)
    parts = [builder.add(data, header) or b"" for data, header in batches]
    data = b"".join([*parts, builder.finish() or b""])
    base, behind = batches[0][1].base_offset, batches[-1][1].next_offset
    own = tuple(span for span in spans if span.first_offset < behind and span.last_offset >= base)
    index = SegmentIndex(tuple(builder.chunks), own, tuple(builder.epochs), b"")
    content = data + encode_tail(index, len(data))
    key = segment_key(topic_id, partition, base, behind, 0, unique)
    store.put(key, content)
    return RemoteSegment(
        key=key,
        base_offset=base,
        next_offset=behind,
        data_bytes=len(data),
        object_bytes=len(content),
        max_timestamp=max(header.max_timestamp for _, header in batches),
        epochs=tuple(builder.epochs),
        aborted=len(own),
        sha256=sha256(content).hexdigest(),
        copied_ms=0,
    )
