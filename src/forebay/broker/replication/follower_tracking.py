"""The leader's side of replication: what the fetches of followers say, and what a leadership begins with.

A fetch tells that its follower is alive, and how far it has come. That moves the high watermark, ends waits
for deletions, and may let the follower join the in-sync replicas.
"""

from __future__ import annotations

from forebay.broker.broker_time import BrokerTime
from forebay.broker.partition.long_polls import release
from forebay.broker.partition.partition import Partition
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.broker.replication.isr import InSyncReplicas
from forebay.core.cluster.image import PartitionState
from forebay.core.partition.fetch_session import FetchSession, FetchSessions


class Followers:
    __slots__ = (
        "_isr",
        "_node_id",
        "_session_of",
        "_sessions",
        "_uptime_ms",
        "_write_cycle",
        "behind_s",
        "heard_ms",
    )

    def __init__(
        self,
        write_cycle: WriteCycle,
        isr: InSyncReplicas,
        sessions: FetchSessions,
        time: BrokerTime,
        *,
        node_id: int,
        heard_ms: dict[int, int],
    ) -> None:
        self._write_cycle = write_cycle
        self._isr = isr
        self._sessions = sessions
        self._uptime_ms = time.uptime_ms
        self._node_id = node_id
        self.heard_ms = heard_ms
        """When each broker last fetched from this one, in uptime."""
        self.behind_s: dict[int, float] = {}
        """When each broker last asked for what was there already, in the event loop's time."""
        self._session_of: dict[int, FetchSession] = {}
        """The session in which each broker fetches from this one."""

    # -- roles ---------------------------------------------------------------------------------------

    def role_taken(self, partition: Partition, state: PartitionState) -> None:
        if state.leader == self._node_id:
            self._sync_if_alone(partition)
            self._write_cycle.advance(partition)
            partition.settle_deletions()
            if partition.refusals and partition.leadership is not None:
                partition.refusals.keep(partition.leadership.electable)
            self._isr.consider(partition)
        else:
            release(partition)  # consumers that wait here for new data have to look for the leader

    def _sync_if_alone(self, partition: Partition) -> None:
        """No other replica is in sync any more: what was committed with their copies is flushed now."""
        leadership = partition.leadership
        if leadership is not None and leadership.only_copy and len(leadership.state.replicas) > 1:
            self._write_cycle.sync_alone(partition)

    # -- fetches -------------------------------------------------------------------------------------

    def heard_of(self, follower: int, session: FetchSession | None) -> None:
        """A follower fetches. Only its newest session counts: it has given up the one before."""
        self.heard_ms[follower] = self._uptime_ms()
        before = self._session_of.get(follower)
        if session is not None and before is not session:
            self._sessions.close(before)
            self._session_of[follower] = session

    def fetched(
        self, partition: Partition, follower: int, offset: int, broker_epoch: int, log_start_offset: int
    ) -> None:
        """A follower asks for this offset, so it has everything between its log start and here."""
        leadership = partition.leadership
        assert leadership is not None
        leadership.fetched(
            follower,
            offset,
            end_offset=partition.log.end_offset,
            now_ms=self._uptime_ms(),
            broker_epoch=broker_epoch,
            log_start_offset=log_start_offset,
        )
        self._write_cycle.advance(partition)
        if partition.deletions:
            partition.settle_deletions()
        if leadership.may_join(follower, partition.high_watermark) or partition.log.offline is not None:
            self._isr.consider(partition)
