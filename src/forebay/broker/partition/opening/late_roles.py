"""Partitions that could not be read in the store when this broker joined, or whose logs were not open then.

A broker that joins leaves the in-sync sets of logs that may lack messages (`membership.py`). It could not do
that for what it could not read. So it does it when that can be read, and takes no role before: it could lead
without the messages. Where no other replica has them it stays, and leads in a new leader epoch. Logs that
lack nothing take their roles at once. The same holds for logs that are opened after the broker has joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from forebay.broker.background import Background
from forebay.broker.cluster.departure import Departure
from forebay.broker.partition.partition import Partition
from forebay.core.cluster.image import ClusterImage
from forebay.core.topic_partition import TopicPartition

_AGAIN_S = 1.0


class LateRoles:
    def __init__(
        self,
        departure: Departure,
        background: Background,
        loop: asyncio.AbstractEventLoop,
        *,
        is_damaged: Callable[[TopicPartition], bool],
        take_role: Callable[[TopicPartition], None],
    ) -> None:
        """`is_damaged`: the log of a partition lacks messages, or was made anew. `take_role` is called for a
        partition that had to wait."""
        self._departure = departure
        self._background = background
        self._loop = loop
        self._is_damaged = is_damaged
        self._take_role = take_role
        self._topics: set[str] = set()
        self._partitions: set[TopicPartition] = set()
        self._unopened: set[TopicPartition] = set()
        """Partitions whose logs were not open when the broker joined, until they take their first role."""
        self._unsynced = False
        self._lost = False
        self._leaving: set[TopicPartition] = set()
        self._left: set[TopicPartition] = set()

    def begin(self, *, unsynced: bool, lost: bool) -> None:
        """The broker is about to join. Its disk may lack what was not synced, or is a new one."""
        self._unsynced, self._lost = unsynced, lost

    def note(self, image: ClusterImage) -> bool:
        """Remember what cannot be read while the broker joins; whether there is any."""
        if not image.unreadable:
            return False
        topics, partitions = image.unreadable.topics, set(_unreadable(image))
        self._topics |= topics
        self._partitions |= partitions
        return bool(topics or partitions)

    def add(self, keys: Iterable[TopicPartition]) -> None:
        """The logs of these are opened after the broker has joined."""
        self._unopened.update(keys)

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """These are not opened after all: what has their name later is another partition."""
        self._unopened.difference_update(keys)

    def defers(self, partition: Partition) -> bool:
        """True if a partition has to wait for its role. Then begin to leave its in-sync set."""
        key = (partition.topic, partition.index)
        if key in self._leaving:
            return True
        is_first = key in self._unopened
        self._unopened.discard(key)
        is_late = is_first or key in self._partitions or key[0] in self._topics
        if key in self._left or not is_late:
            return False
        if not (self._unsynced or self._lost or self._is_damaged(key)):
            return False
        self._leaving.add(key)
        self._begin(key)
        return True

    def _begin(self, key: TopicPartition) -> None:
        self._background.spawn(self._leave(key), f"leaving the in-sync set of {key[0]}-{key[1]}")

    async def _leave(self, key: TopicPartition) -> None:
        damaged = self._is_damaged(key)
        if not await self._departure.step_down(
            key, unsynced=self._unsynced, damaged=damaged, lost=self._lost
        ):
            self._loop.call_later(_AGAIN_S, self._begin, key)
            return
        self._leaving.discard(key)
        self._left.add(key)
        self._take_role(key)


def _unreadable(image: ClusterImage) -> Iterator[TopicPartition]:
    for topic in image.topics.values():
        yield from ((topic.name, state.index) for state in topic.partitions if state.unreadable)
