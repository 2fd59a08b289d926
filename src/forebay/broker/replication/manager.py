"""Replication on this broker: whom it follows, who follows it, and what becomes of that.

Every change of a partition's role comes through here (`role_taken`). Followed partitions are handed to the
fetcher of their leader; of led ones the followers' progress is kept, and who is in sync.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forebay.broker.group_commit import Syncable
from forebay.broker.partition import Partition
from forebay.broker.replication.fetcher import Fetcher
from forebay.broker.replication.isr import InSyncReplicas
from forebay.broker.replication.throttle import Throttle
from forebay.broker.waiters import release
from forebay.core.fetch_session import FetchSession
from forebay.core.image import NO_LEADER, ClusterImage, PartitionState

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

_EXPIRY_INTERVAL_S = 0.5


class Replication:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.isr = InSyncReplicas(broker)
        self.heard_ms: dict[int, int] = {}
        """When each broker last fetched from this one."""
        self.behind_s: dict[int, float] = {}
        """When each broker last asked for what was there already, in the event loop's time."""
        self.taking = Throttle(broker.config.replication.follower_throttle)
        self.giving = Throttle(broker.config.replication.leader_throttle)
        """How fast replicas that are not in sync may be filled, here and from here."""
        self._fetchers: dict[int, Fetcher] = {}
        self._following: dict[Partition, Fetcher] = {}
        self._sessions: dict[int, FetchSession] = {}
        """In which each broker fetches from this one."""
        self._follows = False
        """Whether fetchers run: not before this broker serves, nor when it leaves."""
        self._running: list[asyncio.Task[None]] = []
        broker.commit.on_failed = self._sync_failed
        self._fetching: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to fetch and to look after the in-sync sets, until `close`."""
        self._follows = True
        keep = self._broker.background.keep
        self._running += [
            keep(self.isr.run, "proposing in-sync replicas"),
            keep(self.isr.check_lag, "looking for replicas that lag"),
            keep(self._expire_acks, "ending waits for replicas"),
        ]
        for fetcher in self._fetchers.values():
            self._start(fetcher)

    def _start(self, fetcher: Fetcher) -> None:
        task = self._broker.background.keep(fetcher.run, f"fetching from broker {fetcher.leader}")
        self._fetching.append(task)

    def stop_fetching(self) -> None:
        """Follow nobody any more: who leaves the in-sync sets would be taken back with its next fetch."""
        self._follows = False
        for task in self._fetching:
            task.cancel()
        for fetcher in self._fetchers.values():
            fetcher.close()

    def close(self) -> None:
        self.stop_fetching()
        for task in self._running:
            task.cancel()

    def configure(self) -> None:
        config = self._broker.config.replication
        self.taking.rate, self.giving.rate = config.follower_throttle, config.leader_throttle

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        if after.brokers is not before.brokers:
            for node, fetcher in self._fetchers.items():
                if after.brokers.get(node) != before.brokers.get(node):
                    fetcher.moved(after.brokers.get(node))

    # -- roles ---------------------------------------------------------------------------------------

    def role_taken(self, partition: Partition, state: PartitionState) -> None:
        leads = state.leader == self._broker.node_id
        leader = NO_LEADER if leads else state.leader
        before = self._following.get(partition)
        if before is not None and before.leader != leader:
            before.remove(partition)
            del self._following[partition]
        if leader != NO_LEADER:
            fetcher = self._following[partition] = self._fetcher(leader)
            fetcher.add(partition)
        if leads:
            self._sync_if_alone(partition)
            self._broker.appends.advance(partition)
            partition.settle_deletions()
            self.isr.consider(partition)
        else:
            release(partition)  # who waits for the leader's data has to look for the leader

    def _sync_if_alone(self, partition: Partition) -> None:
        """The copies that stood for this disk are gone: what was committed with them is synced now."""
        leadership = partition.leadership
        if leadership is not None and leadership.alone and len(leadership.state.replicas) > 1:
            self._broker.appends.sync_alone(partition)

    def _sync_failed(self, log_: Syncable) -> None:
        """A log that is offline is a reason to let others lead, and they need not wait for the next check.

        One that may be synced later is looked at then: its leader, when alone, would at once sync it again.
        It is synced with the others, at their next turn.
        """
        for partition in self._broker.replicas.all():
            if partition.log is log_:
                if partition.log.offline is not None:
                    self.isr.consider(partition)
                if not partition.log.offline_for_good:
                    self._broker.appends.unsynced[partition] = None

    def dropped(self, partition: Partition) -> None:
        fetcher = self._following.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    def resume(self, partition: Partition) -> None:
        """Follow a partition again that was left out for a while."""
        fetcher = self._following.get(partition)
        if fetcher is not None and not partition.closed:
            fetcher.add(partition)

    def _fetcher(self, leader: int) -> Fetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(self._broker, leader)
            if self._follows:
                self._start(fetcher)
        return fetcher

    # -- followers -----------------------------------------------------------------------------------

    def heard_of(self, follower: int, session: FetchSession | None) -> None:
        """A follower fetches. Of its sessions the newest counts: it has given up the one before."""
        self.heard_ms[follower] = self._broker.uptime_ms()
        before = self._sessions.get(follower)
        if session is not None and before is not session:
            self._broker.sessions.close(before)
            self._sessions[follower] = session

    def fetched(
        self, partition: Partition, follower: int, offset: int, broker_epoch: int, log_start_offset: int
    ) -> None:
        """A follower asks for what comes at this offset, so it has everything between its start and this."""
        leadership = partition.leadership
        assert leadership is not None
        leadership.fetched(
            follower,
            offset,
            end_offset=partition.log.end_offset,
            now_ms=self._broker.uptime_ms(),
            broker_epoch=broker_epoch,
            log_start_offset=log_start_offset,
        )
        self._broker.appends.advance(partition)
        if partition.deletions:
            partition.settle_deletions()
        if leadership.may_join(follower, partition.high_watermark):
            self.isr.consider(partition)

    async def _expire_acks(self) -> None:
        loop, watch = self._broker.loop, self._broker.stalls
        while True:
            due_s = loop.time() + _EXPIRY_INTERVAL_S
            await asyncio.sleep(_EXPIRY_INTERVAL_S)
            watch.woken(loop.time() - due_s)
            self._broker.appends.expire()
