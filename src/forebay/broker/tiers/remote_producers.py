"""The producers of a tiered partition as of where its local log begins, for replicas that begin there.

A replica without a log begins where its leader's local log does, and never sees the batches before. Without
their producers it would take any number from an idempotent producer that sent its last batch before: a
repeated batch twice, and a later one before an earlier one. The segment that ends there has their snapshot.
Where none ends, that of the segment before is brought up to date with the batches in between.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from forebay.broker.partition.producer_replay import replay_batch
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.tiers.object_store import ManifestError, ManifestLost, ObjectStoreError
from forebay.tiers.reading import read_chunk, read_index, read_manifest
from forebay.wire.tiers.segment_object import batch_headers

if TYPE_CHECKING:
    from forebay.broker.background import Background
    from forebay.broker.partition.partition import Partition
    from forebay.broker.tiers.tier_host import TierHost
    from forebay.tiers.object_store import ObjectStore
    from forebay.wire.tiers.manifest import Manifest, RemoteSegment

log = logging.getLogger(__name__)


class _Place(NamedTuple):
    topic_id: bytes
    partition: int
    offset: int


class RemoteProducers:
    def __init__(self, host: TierHost, background: Background) -> None:
        self._host = host
        self._background = background
        self._found: dict[_Place, bytes | ObjectStoreError | None] = {}
        """Snapshots that were read and not taken yet; None while one is being read."""

    def take(self, partition: Partition, offset: int) -> bytes:
        """Their snapshot; empty if the object store has none. Raises KafkaError until it was read: ask again.

        The caller is a follower, which rests between two tries.
        """
        place = _Place(partition.topic_id, partition.index, offset)
        if place not in self._found:
            self._forget_others(place)
            self._found[place] = None
            self._background.spawn(self._read(place), "reading producers from the object store")
        found = self._found[place]
        if found is None:
            raise _not_yet(partition, "they are being read")
        del self._found[place]
        if isinstance(found, ObjectStoreError):
            raise _not_yet(partition, str(found)) from found
        return found

    def _forget_others(self, place: _Place) -> None:
        """The leader's log begins later now: nobody will ask for what was read before."""
        for each in [each for each in self._found if each[:2] == place[:2]]:
            del self._found[each]

    async def _read(self, place: _Place) -> None:
        host = self._host
        found: bytes | ObjectStoreError
        try:
            await host.known_store.check()
            found = await host.threads.run(partial(producers_at, host.store, *place))
            if not found:
                await host.known_store.confirm()  # it may have been replaced by an empty one
        except ObjectStoreError as error:
            found = error
        except BaseException:
            self._found.pop(place, None)
            raise
        if place in self._found:
            self._found[place] = found


def producers_at(store: ObjectStore, topic_id: bytes, partition: int, offset: int) -> bytes:
    """Their snapshot; empty if nothing before the offset is in the object store. Blocks."""
    manifest = read_manifest(store, topic_id, partition)
    if manifest is None:
        return b""
    if manifest.is_made_anew:
        raise ManifestError("the manifest was made anew, and the leader has not claimed it yet")
    if offset <= manifest.first_offset:
        return b""
    segment = manifest.find(offset - 1)
    if segment is None:
        raise ManifestLost(
            f"the manifest ends at offset {manifest.next_offset}, and the leader's log begins behind that, "
            f"at {offset}: it is an older one"
        )
    if segment.next_offset == offset:
        return read_index(store, segment).producers
    return _replayed(store, manifest, segment, offset).to_bytes()


def _replayed(store: ObjectStore, manifest: Manifest, segment: RemoteSegment, offset: int) -> ProducerTable:
    """The producers in the middle of a segment. Another leader had other segments when it copied."""
    before = manifest.find(segment.base_offset - 1)
    table = ProducerTable() if before is None else _table(read_index(store, before).producers)
    for chunk in read_index(store, segment).chunks:
        if chunk.base_offset >= offset:
            break
        data = memoryview(read_chunk(store, segment, chunk))
        for position, header in batch_headers(data):
            if header.base_offset < offset:
                replay_batch(table, data[position : position + header.size], header)
    return table


def _table(snapshot: bytes) -> ProducerTable:
    try:
        return ProducerTable.from_bytes(snapshot) if snapshot else ProducerTable()
    except ProtocolError as error:
        log.warning("a producer snapshot in the object store is damaged", extra={"reason": str(error)})
        return ProducerTable()


def _not_yet(partition: Partition, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"the producers of {partition} before its local log are in the object store: {why}",
    )
