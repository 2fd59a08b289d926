"""Topics that were deleted, kept for as long as an absent broker may still have their logs.

A topic that is not in the store may have been deleted, or the store may not be what it was. A tombstone says
which: it is written in the same transaction that deletes the topic. A log is deleted because of a tombstone
and never because its topic is missing (`replicas/log_fate.py`).

A broker that sees a deletion in the watch needs no tombstone. It notes one in its own image, since brokers of
earlier versions write none.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from forebay.lazy import dataclass

_FORGOTTEN_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    topic_id: bytes
    name: str
    deleted_ms: int
    """Wall time of the broker that deleted it; 0 if only the deletion was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstonePut:
    topic: DeletedTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstoneDeleted:
    topic_id: bytes


class TombstonesDraft:
    """Tombstones in the making: the map is copied when it is first written to."""

    def __init__(self, deleted: Mapping[bytes, DeletedTopic]) -> None:
        self.deleted = deleted
        self._own: dict[bytes, DeletedTopic] | None = None

    def apply(self, change: TombstonePut | TombstoneDeleted) -> None:
        if isinstance(change, TombstonePut):
            self._writable()[change.topic.topic_id] = change.topic
        elif change.topic_id in self.deleted:
            del self._writable()[change.topic_id]

    def note(self, topic_id: bytes, name: str) -> None:
        """Note that the deletion of a topic was seen."""
        if topic_id not in self.deleted:
            self._writable()[topic_id] = DeletedTopic(topic_id=topic_id, name=name, deleted_ms=0)

    def _writable(self) -> dict[bytes, DeletedTopic]:
        if self._own is None:
            self.deleted = self._own = dict(self.deleted)
        return self._own


def outlived(
    deleted: Mapping[bytes, DeletedTopic], *, now_ms: int, retention_ms: int, count_max: int
) -> list[TombstoneDeleted]:
    """The tombstones to remove: those older than `retention_ms`, and the oldest above `count_max`."""
    stored = sorted((each for each in deleted.values() if each.deleted_ms), key=attrgetter("deleted_ms"))
    over = max(len(stored) - count_max, 0)
    going = [
        each for number, each in enumerate(stored) if number < over or now_ms - each.deleted_ms > retention_ms
    ]
    return [TombstoneDeleted(topic_id=each.topic_id) for each in going[:_FORGOTTEN_AT_ONCE]]
