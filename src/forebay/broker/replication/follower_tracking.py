"""The leader's side of replication: what the fetches of followers say, and what a leadership begins with.

A fetch tells that its follower is alive, and how far it has come. That moves the high watermark, ends waits
for deletions, and may let the follower join the in-sync replicas.

When this broker begins to lead, its followers have to name more partitions, and each has one fetch under way,
which may wait for a while. So the fetches that wait are answered, and later ones wait for a short time only,
since a follower may hear of the election after its leader. Producers wait for these fetches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.broker.partition.long_polls import Arrivals, release

if TYPE_CHECKING:
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.partition.partition import Partition
    from forebay.broker.produce.write_cycle import WriteCycle
    from forebay.broker.replication.isr import InSyncReplicas
    from forebay.core.cluster.partition_state import PartitionState
    from forebay.core.partition.fetch_session import FetchSession, FetchSessions

_NEWS_S = 0.2
"""How long after an election followers may not have heard of it."""
_SHORT_WAIT_S = 0.02


class Followers:
    __slots__ = (
        "_arrivals",
        "_followed",
        "_isr",
        "_node_id",
        "_session_of",
        "_sessions",
        "_term_began_s",
        "_time_s",
        "_uptime_ms",
        "_write_cycle",
        "behind_s",
        "heard_ms",
    )

    def __init__(
        self,
        write_cycle: WriteCycle,
        arrivals: Arrivals,
        isr: InSyncReplicas,
        sessions: FetchSessions,
        time: BrokerTime,
        *,
        node_id: int,
        heard_ms: dict[int, int],
        time_s: Callable[[], float],
    ) -> None:
        """`time_s`: the event loop's time."""
        self._write_cycle = write_cycle
        self._arrivals = arrivals
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
        self._followed: dict[Partition, None] = {}
        """Partitions that others lead, by an image that has just come."""
        self._time_s = time_s
        self._term_began_s = -math.inf

    # -- roles ---------------------------------------------------------------------------------------

    def role_taken(self, partition: Partition, state: PartitionState) -> None:
        if state.leader == self._node_id:
            self._sync_if_alone(partition)
            self._write_cycle.advance(partition)
            partition.settle_deletions()
            if partition.refusals and partition.leadership is not None:
                partition.refusals.keep(partition.leadership.electable)
            self._isr.consider(partition)
        elif partition.waiters:
            self._followed[partition] = None
            self._arrivals.call(self._release_followed)

    def _release_followed(self) -> None:
        """Consumers that wait here for new data have to look for the leaders. They are answered when all
        partitions have taken their roles, so that one answer names all leaders that are new."""
        followed, self._followed = self._followed, {}
        for partition in followed:
            release(partition)

    def _sync_if_alone(self, partition: Partition) -> None:
        """No other replica is in sync any more: what was committed with their copies is flushed now."""
        leadership = partition.leadership
        if leadership is not None and leadership.only_copy and len(leadership.state.replicas) > 1:
            self._write_cycle.sync_alone(partition)

    def term_begun(self, _: Partition) -> None:
        self._term_began_s = self._time_s()
        self._arrivals.call(self._answer_all)

    def _answer_all(self) -> None:
        """Once for all partitions that an image gives to this broker."""
        for session in self._session_of.values():
            if session.on_changed is not None:
                session.on_changed()
        self._write_cycle.finish_soon()

    def wait_s(self, max_wait_ms: int) -> float:
        """How long a fetch with nothing to fetch waits."""
        if self._time_s() - self._term_began_s < _NEWS_S:
            return min(max_wait_ms / 1000, _SHORT_WAIT_S)
        return max_wait_ms / 1000

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
