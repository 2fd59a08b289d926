"""The objects of deleted topics are removed, by the controller.

The tombstones of deleted topics, which the cluster's store keeps for 90 days, are the queue: whatever
crashes, the next controller goes through them again. A topic that is merely missing has no tombstone, and
loses nothing. Each is gone through twice, some rounds apart: a leader that had not noticed the deletion may
have finished an upload meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from forebay.wire.tiers.layout import topic_prefix

if TYPE_CHECKING:
    from forebay.broker.tiers.tier_host import TierHost
    from forebay.core.cluster.images.deleted_topics import DeletedTopic

log = logging.getLogger(__name__)

_TOPICS_AT_ONCE = 20
_PASSES = 2
_ROUNDS_BETWEEN = 10


class TopicRemoval:
    def __init__(
        self,
        host: TierHost,
        *,
        is_controller: Callable[[], bool],
        deleted: Callable[[], Mapping[bytes, DeletedTopic]],
    ) -> None:
        self._host = host
        self._is_controller = is_controller
        self._deleted = deleted
        self._passes: dict[bytes, int] = {}
        """How often the objects of each topic were removed."""
        self._round = 0
        self._next: dict[bytes, int] = {}

    async def remove_some(self) -> None:
        """Remove the objects of topics that were deleted. Raises StoreError."""
        self._round += 1
        if not self._is_controller():
            self._passes, self._next = {}, {}
            return
        deleted = self._deleted()
        due = [
            topic_id
            for topic_id in deleted
            if self._passes.get(topic_id, 0) < _PASSES and self._next.get(topic_id, 0) <= self._round
        ]
        if due:  # an empty directory in its place, not mounted, has nothing to remove, and will be back
            await self._host.known_store.confirm()
        for topic_id in due[:_TOPICS_AT_ONCE]:
            removed = await self._host.threads.run(partial(self._remove, topic_id))
            self._passes[topic_id] = self._passes.get(topic_id, 0) + 1
            self._next[topic_id] = self._round + _ROUNDS_BETWEEN
            if removed:
                log.info(
                    "the objects of a deleted topic were removed",
                    extra={"topic": deleted[topic_id].name, "objects": removed},
                )

    def _remove(self, topic_id: bytes) -> int:
        """Runs in a thread. Manifests go last: what they list has an owner until then."""
        store = self._host.store
        keys = [listed.key for listed in store.list(topic_prefix(topic_id))]
        keys.sort(key=lambda key: key.endswith(".json"))
        for key in keys:
            store.delete(key)
        self._host.metrics.remote_objects_deleted += len(keys)
        return len(keys)
