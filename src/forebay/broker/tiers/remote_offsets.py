"""Offsets by time among messages that are in the object store, looked for in threads.

The manifest and the indexes say which chunk may hold the answer; its records are walked, so the answer is
exact. Chunks come straight from the store: such a search reads one or two.
"""

from __future__ import annotations

from collections.abc import Iterator

from forebay.broker.live_config import LiveConfig
from forebay.broker.partition.partition import Partition
from forebay.broker.tiers.manifests.known_manifest import known_manifest
from forebay.broker.tiers.store_threads import StoreThreads
from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.tiers.object_store import ObjectStore, ObjectStoreError
from forebay.tiers.reading import read_chunk, read_index
from forebay.wire.record_spans import payload_of, readable_spans
from forebay.wire.tiers.manifest import Manifest, RemoteSegment
from forebay.wire.tiers.segment_object import batch_headers

TimestampOffset = tuple[int, int]


class RemoteOffsets:
    def __init__(self, store: ObjectStore, settings: LiveConfig, threads: StoreThreads) -> None:
        self._store = store
        self._settings = settings
        self._threads = threads

    async def first_from(self, partition: Partition, timestamp: int) -> TimestampOffset | None:
        """(timestamp, offset) of the first record in the store that is not older. Raises KafkaError."""
        manifest = known_manifest(partition)
        if manifest is None:
            return None
        limit = self._settings.current.storage.decompress_max_bytes
        try:
            return await self._threads.run(lambda: search(self._store, manifest, timestamp, limit))
        except ObjectStoreError as error:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition} cannot be searched in the object store: {error}"
            ) from error


def search(
    store: ObjectStore, manifest: Manifest, timestamp: int, decompress_max_bytes: int
) -> TimestampOffset | None:
    """The first record that is not older. Blocks. Raises ObjectStoreError."""
    for segment in manifest.segments:
        if segment.max_timestamp >= timestamp:
            for found in _records(store, segment, timestamp, decompress_max_bytes):
                if found[0] >= timestamp and manifest.start_offset <= found[1] < segment.next_offset:
                    return found
    return None


def _records(
    store: ObjectStore, segment: RemoteSegment, timestamp: int, decompress_max_bytes: int
) -> Iterator[TimestampOffset]:
    """Time and offset of the records in batches that may hold one of this time."""
    for chunk in read_index(store, segment).chunks:
        if chunk.max_timestamp < timestamp:
            continue
        data = memoryview(read_chunk(store, segment, chunk))
        for position, header in batch_headers(data):
            if header.max_timestamp < timestamp:
                continue
            batch = data[position : position + header.size]
            try:
                spans = list(readable_spans(payload_of(batch, header, decompress_max_bytes), header))
            except ProtocolError:
                continue  # consumers cannot read it either
            for span in spans:
                of_record = header.base_timestamp + span.timestamp_delta
                yield (
                    header.max_timestamp if header.is_log_append_time else of_record,
                    header.base_offset + span.offset_delta,
                )
