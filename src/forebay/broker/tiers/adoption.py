"""Finds where the partitions of a topic go on that is restored from the object store.

The topic keeps its id, and so the manifests and objects that are there. Its logs begin where the manifests
end, and its first leader epoch is above that of each manifest: the new leaders claim them as any leader does,
and a leader of before that still runs is fenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.cluster.images.topic_image import Adopted
from forebay.core.cluster.restore_image import EPOCHS_SKIPPED
from forebay.errors import ErrorCode, KafkaError
from forebay.tiers.object_store import ObjectStoreError
from forebay.tiers.reading import partition_count, read_manifest, read_topic

if TYPE_CHECKING:
    from forebay.broker.tiers.tier_host import TierHost
    from forebay.wire.tiers.manifest import Manifest


class Adoption:
    def __init__(self, host: TierHost) -> None:
        self._host = host

    async def find(self, topic_id: bytes) -> tuple[Adopted, ...]:
        """Of each partition of a topic in the object store. Raises KafkaError."""
        try:
            await self._host.known_store.check()
            return await self._host.threads.run(lambda: self._read(topic_id))
        except ObjectStoreError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the topic cannot be restored from the object store: {error}"
            ) from error

    def _read(self, topic_id: bytes) -> tuple[Adopted, ...]:
        """Runs in a thread."""
        store = self._host.store
        topic = read_topic(store, topic_id)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"{store.url} has no topic {topic_id.hex()}: `forebay remote list` shows what it has",
            )
        count = partition_count(store, topic)
        return tuple(_adopted(read_manifest(store, topic_id, index)) for index in range(count))


def _adopted(manifest: Manifest | None) -> Adopted:
    if manifest is None:
        return Adopted(0, EPOCHS_SKIPPED)
    # There may have been later leaders, which have not written to the object store. A manifest that was made
    # anew has the epoch of the last one that has copied: a restore may have come after it.
    generation = manifest.leader_epoch // EPOCHS_SKIPPED + (3 if manifest.is_made_anew else 2)
    return Adopted(manifest.next_offset, generation * EPOCHS_SKIPPED)
