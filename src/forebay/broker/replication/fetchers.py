"""The follower's side of replication: which leader each partition follows, and the fetchers that do it.

Every partition that another broker leads is handed to the fetcher of that broker. There is one fetcher per
leader, made when the first partition needs it; it stays for as long as this broker serves. Fetchers run
between `start` and `stop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from forebay.broker.partition.partition import Partition
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState

if TYPE_CHECKING:
    from forebay.broker.background import Background
    from forebay.broker.replication.fetcher import Fetcher
    from forebay.core.cluster.image import ClusterImage

MakeFetcher: TypeAlias = "Callable[[int, Callable[[Partition], None]], Fetcher]"

NEWCOMER_DELAY_S = 0.2
"""When a leader dies, many partitions are added at about the same time. The fetch is interrupted once for all
that are added within this time, unless the leader has answered. Most leaders do, within a tenth of it."""
RESUMED_DELAY_S = 0.02
"""The delay for a partition that was left out for a while: the leader knows nothing of that."""
"""Makes the fetcher for a leader. The fetcher calls its second argument to have a partition that it left out
for a while added again."""


class Following:
    def __init__(self, make_fetcher: MakeFetcher, background: Background, *, node_id: int) -> None:
        self._make_fetcher = make_fetcher
        self._background = background
        self._node_id = node_id
        self._fetchers: dict[int, Fetcher] = {}
        self._following: dict[Partition, Fetcher] = {}
        self._started = False
        """True while fetchers run: not before this broker serves, nor when it leaves."""
        self._takes_more = True
        """True while partitions are followed that were not followed before."""
        self._fetching: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to fetch, until `stop`."""
        self._started = True
        for fetcher in self._fetchers.values():
            self._start(fetcher)

    def _start(self, fetcher: Fetcher) -> None:
        task = self._background.keep(fetcher.run, f"fetching from broker {fetcher.leader}")
        self._fetching.append(task)

    def take_no_more(self) -> None:
        """Follow no other partitions than now, whoever leads these: a broker that stops hands over what it
        leads, and must not rejoin the in-sync sets that it leaves."""
        self._takes_more = False

    def stop(self) -> None:
        """Stop all fetching: a broker that leaves the in-sync sets would rejoin them with its next fetch."""
        self._started = False
        for task in self._fetching:
            task.cancel()
        for fetcher in self._fetchers.values():
            fetcher.close()

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Tell the fetchers whose leaders have a new registration."""
        if after.brokers is not before.brokers:
            for node, fetcher in self._fetchers.items():
                if after.brokers.get(node) != before.brokers.get(node):
                    fetcher.moved(after.brokers.get(node))

    # -- partitions ----------------------------------------------------------------------------------

    def role_taken(self, partition: Partition, state: PartitionState) -> None:
        """Fetch from the leader that the state names, and from no other."""
        leader = NO_LEADER if state.leader == self._node_id else state.leader
        before = self._following.get(partition)
        if before is not None and before.leader != leader:
            before.remove(partition)
            del self._following[partition]
        if leader != NO_LEADER and (self._takes_more or before is not None):
            fetcher = self._following[partition] = self._fetcher(leader)
            fetcher.add(partition, NEWCOMER_DELAY_S)

    def dropped(self, partition: Partition) -> None:
        """The partition is deleted here, or its log is lent: stop fetching it."""
        fetcher = self._following.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    def resume(self, partition: Partition) -> None:
        """Follow a partition again that was left out for a while."""
        fetcher = self._following.get(partition)
        if fetcher is not None and not partition.closed:
            fetcher.add(partition, RESUMED_DELAY_S)

    def _fetcher(self, leader: int) -> Fetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._make_fetcher(leader, self.resume)
            if self._started:
                self._start(fetcher)
        return fetcher
