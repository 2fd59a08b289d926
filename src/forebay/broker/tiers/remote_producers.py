"""The producers of a tiered partition as of where its local log begins, for replicas that begin there.

A replica without a log begins where its leader's local log does, and never sees the batches before. Without
their producers it would take any number from an idempotent producer that sent its last batch before: a
repeated batch twice, and a later one before an earlier one. The segment that ends there has their snapshot.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from forebay.errors import ErrorCode, KafkaError
from forebay.tiers.object_store import ObjectStoreError
from forebay.tiers.reading import read_index, read_manifest

if TYPE_CHECKING:
    from forebay.broker.background import Background
    from forebay.broker.partition.partition import Partition
    from forebay.broker.tiers.tier_host import TierHost
    from forebay.tiers.object_store import ObjectStore


class _Place(NamedTuple):
    topic_id: bytes
    partition: int
    offset: int


class RemoteProducers:
    def __init__(self, host: TierHost, background: Background) -> None:
        self._host = host
        self._background = background
        self._found: dict[_Place, bytes | ObjectStoreError | None] = {}
        """What was read and not taken yet; None while it is being read."""

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
            found = await host.threads.run(partial(_snapshot, host.store, place))
        except ObjectStoreError as error:
            found = error
        except BaseException:
            self._found.pop(place, None)
            raise
        if place in self._found:
            self._found[place] = found


def _snapshot(store: ObjectStore, place: _Place) -> bytes:
    """Runs in a thread."""
    manifest = read_manifest(store, place.topic_id, place.partition)
    segment = None if manifest is None else manifest.find(place.offset - 1)
    if segment is None or segment.next_offset != place.offset:
        return b""
    return read_index(store, segment).producers


def _not_yet(partition: Partition, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"the producers of {partition} before its local log are in the object store: {why}",
    )
