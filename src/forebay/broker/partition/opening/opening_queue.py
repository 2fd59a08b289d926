"""Which partitions are opened next: those that somebody waits for, then the others.

Partitions of new topics, and those that a request asked for, are urgent. A broker with many partitions opens
most of them only after it is ready, behind all urgent ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from forebay.core.topic_partition import TopicPartition

if TYPE_CHECKING:
    from forebay.config import BrokerConfig
    from forebay.storage.datadir import DataDir


def may_open_behind(config: BrokerConfig, data: DataDir, count: int) -> bool:
    """True if that many partitions may be opened after this broker is ready.

    Not in a cluster: a broker joins it knowing which of its logs lack messages. Not after a loss of power,
    which is accepted as a whole when all logs have been checked. Not if the store may have lost the producer
    ids that were given out: the logs know them.
    """
    is_known = data.store_evidence is not None and not data.store_behind
    may = config.cluster.embedded and is_known and not data.power_lost
    return may and count > config.storage.open_before_ready_max


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
