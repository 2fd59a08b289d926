"""Which partitions are opened next: those that somebody waits for, then the others.

Partitions of new topics, and those that a request asked for, are urgent. A broker with many partitions opens
most of them only after it is ready, behind all urgent ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from forebay.core.topic_partition import TopicPartition


class OpeningQueue:
    __slots__ = ("_behind", "_urgent", "unchecked")

    def __init__(self) -> None:
        self._urgent: dict[TopicPartition, None] = {}
        self._behind: dict[TopicPartition, None] = {}
        self.unchecked: set[TopicPartition] = set()
        """Partitions that were here when this broker started, and have not been opened since."""

    def add(self, key: TopicPartition) -> None:
        self._urgent[key] = None
        self._behind.pop(key, None)

    def add_behind(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self._behind[key] = None
            self.unchecked.add(key)

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Others see to these."""
        for key in keys:
            self._behind.pop(key, None)
            self.unchecked.discard(key)

    def ask_for(self, key: TopicPartition) -> None:
        """A request needs a partition: let it go first, if it is not open because of its turn."""
        if key in self._behind:
            self.add(key)

    def take(self) -> TopicPartition | None:
        """The next one, which is then no longer in the queue."""
        queue = self._urgent or self._behind
        if not queue:
            return None
        key = next(iter(queue))
        del queue[key]
        return key

    def clear(self) -> None:
        self._urgent.clear()
        self._behind.clear()
