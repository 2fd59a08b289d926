"""Which partitions are opened next: those that somebody waits for, then the others.

Partitions of new topics, and those that a request asked for, are urgent. A broker with many partitions opens
most of them only after it is ready, behind all urgent ones; and a single broker with many does not open
partitions at all that have never been used, until somebody asks for them (`unused_partitions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from forebay.core.cluster.replicas.isr_changes import is_last, min_insync, needed
from forebay.core.topic_partition import TopicPartition

if TYPE_CHECKING:
    from forebay.config import BrokerConfig
    from forebay.core.cluster.image import ClusterImage
    from forebay.storage.datadir import DataDir


def may_open_behind(config: BrokerConfig, data: DataDir, count: int) -> bool:
    """True if that many partitions may be opened after this broker is ready.

    Not after a loss of power, which is accepted as a whole when all logs have been checked. Not if the store
    may have lost what the logs know: the producer ids that were given out, and who had which messages.
    """
    is_known = data.store_evidence is not None and not data.store_behind
    return is_known and not data.power_lost and count > config.storage.open_before_ready_max


def must_open_first(image: ClusterImage, config: BrokerConfig, node_id: int, at: TopicPartition) -> bool:
    """True if the log of a partition is to be open before this broker joins, however many there are.

    If it lacks messages, this broker leaves the in-sync set, and other replicas lead. But where a single
    replica may commit, this broker could be elected before its log is open, and the others would leave the
    set at that moment, with the messages.
    """
    state = image.partition(*at)
    if state is None or state.unreadable or is_last(state, node_id):
        return False
    # Also if it is not in sync: until its last registration ended, a leader may have let it join.
    return needed(state, min_insync(image, at[0], config.controller.min_insync_replicas)) == 1


class OpeningQueue:
    __slots__ = ("_behind", "_taken", "_urgent", "leaves_unused", "on_asked", "unchecked")

    def __init__(self) -> None:
        self._urgent: dict[TopicPartition, None] = {}
        self._behind: dict[TopicPartition, None] = {}
        self.unchecked: set[TopicPartition] = set()
        """Partitions that were here when this broker started, and have not been opened since."""
        self._taken: set[TopicPartition] = set()
        """Those that a thread opens at this moment."""
        self.leaves_unused = False
        """True if there may be partitions that are assigned to this broker, not open, and not in the queue:
        nobody has used them yet."""
        self.on_asked: Callable[[], None] = lambda: None
        """Called when a partition is to be opened that nobody had asked for before."""

    @property
    def is_complete(self) -> bool:
        """True if all that is assigned to this broker is open."""
        return not (self.leaves_unused or self._urgent or self._behind or self._taken)

    @property
    def has_urgent(self) -> bool:
        return bool(self._urgent)

    def __contains__(self, key: TopicPartition) -> bool:
        """True if the partition is opened, now or in its turn. It may hold messages."""
        return key in self._urgent or key in self._behind or key in self._taken or key in self.unchecked

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
        if key in self._urgent or key in self._taken:
            return
        if key in self._behind or self.leaves_unused:
            self.add(key)
            self.on_asked()

    def take(self) -> TopicPartition | None:
        """The next one, which is then no longer in the queue. `settle` says what became of it."""
        queue = self._urgent or self._behind
        if not queue:
            return None
        key = next(iter(queue))
        del queue[key]
        self._taken.add(key)
        return key

    def settle(self, keys: Iterable[TopicPartition]) -> None:
        """These are open, or cannot be opened, or need not be."""
        self._taken.difference_update(keys)

    def clear(self) -> None:
        self._urgent.clear()
        self._behind.clear()
