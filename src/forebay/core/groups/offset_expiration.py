"""Expiration of offsets: of those that are too old, of deleted topics, and of partitions that were folded and
removed. Also of groups that have no offsets left.

A sweep goes over all groups, a few at a time so that ten thousand groups do not hold up the broker. It starts
every `offsets.retention.check.interval.ms`, and at once when a topic or some of its partitions have been
deleted. The offsets of a deleted topic are recognised by its id, because the topic may have been created
again, and those without an id by their age. Folded partitions that are gone never come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from forebay.core.groups.group import Context, Group, TimerKey
from forebay.core.groups.offsets import Offset, Offsets, tombstone
from forebay.core.step import Now, Step

EXPIRATION = TimerKey("", "expiration")

_GROUPS_PER_STEP = 100
_RECORDS_PER_STEP = 1_000


class OffsetExpiration:
    def __init__(self, context: Context, offsets: Offsets, groups: Mapping[str, Group]) -> None:
        self._context = context
        self._offsets = offsets
        self._groups = groups
        self._queue: deque[str] = deque()
        self.deleted: dict[str, int] = {}
        """Deleted topics, and the position up to which offsets belong to the deleted one."""

    def schedule(self, now: Now) -> None:
        self._context.timers.set(
            EXPIRATION, now.ms + self._context.config.offsets_retention_check_interval_ms
        )

    def topics_deleted(self, topics: set[str], now: Now) -> None:
        self.deleted |= dict.fromkeys(topics, self._offsets.position)
        self.begin(now)

    def begin(self, now: Now) -> None:
        """Begin a sweep over all groups now."""
        self._queue = deque(self._groups)
        self._context.timers.set(EXPIRATION, now.ms)

    def run(self, step: Step, now: Now) -> None:
        """Continue the sweep under way, or begin one."""
        if not self._queue:
            self._queue.extend(self._groups)
        for _ in range(min(_GROUPS_PER_STEP, len(self._queue))):
            group = self._groups.get(self._queue.popleft())
            if group is not None:
                self._sweep(group, step, now)
            if len(step.records) >= _RECORDS_PER_STEP:
                break
        if self._queue:
            self._context.timers.set(EXPIRATION, now.ms)
        else:
            self.deleted.clear()
            self.schedule(now)

    def _sweep(self, group: Group, step: Step, now: Now) -> None:
        group_id = group.group_id
        found: dict[tuple[str, int], bool] = {}
        for topic, partition, offset in self._offsets.stored(group_id):
            is_kept = not (
                self._is_deleted(topic, offset)
                or self._context.has_lost_partition(topic, partition)
                or self._is_expired(group, topic, partition, offset, now)
            )
            found[topic, partition] = is_kept or found.get((topic, partition), False)
        step.records += [tombstone(group_id, *where) for where, is_kept in found.items() if not is_kept]
        if group.is_idle and not any(found.values()):
            step.records += group.tombstones()

    def _is_deleted(self, topic: str, offset: Offset) -> bool:
        return offset.position <= self.deleted.get(topic, -1) or offset.topic_id in self._context.deleted

    def _is_expired(self, group: Group, topic: str, partition: int, offset: Offset, now: Now) -> bool:
        if group.is_subscribed(topic) or self._offsets.is_pending(group.group_id, topic, partition):
            return False
        start_ms = group.expires_from(offset.commit_timestamp)
        if start_ms is None:
            return False
        if offset.expire_timestamp >= 0:
            return now.trusted_ms >= offset.expire_timestamp
        return now.trusted_ms - start_ms >= self._context.config.offsets_retention_ms
