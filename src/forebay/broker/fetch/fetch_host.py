"""The parts of the broker that fetches of consumers and followers need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.lazy import dataclass

if TYPE_CHECKING:
    from forebay.broker.authorization.authorization import Authorization
    from forebay.broker.background import Background
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.cluster.held_lease import HeldLease
    from forebay.broker.fetch.cold_reads import ColdReads
    from forebay.broker.fetch.topic_delays import TopicDelays
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.net.scheduling.slices import Slices
    from forebay.broker.partition.long_polls import Arrivals
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.produce.flush import GroupCommit
    from forebay.broker.quotas.client_quotas import ClientQuotas
    from forebay.broker.replication.follower_tracking import Followers
    from forebay.broker.replication.throttle import Throttle
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.broker.tiers.remote_reads import RemoteReads
    from forebay.broker.views.filters import ViewFilters
    from forebay.coordination.metadata import Metadata
    from forebay.core.partition.fetch_session import FetchSessions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FetchHost:
    node_id: int
    settings: LiveConfig
    metadata: Metadata
    partitions: PartitionTable
    sessions: FetchSessions
    cold_reads: ColdReads
    delays: TopicDelays
    arrivals: Arrivals
    followers: Followers
    throttle: Throttle
    """How fast followers that are not in sync may be filled from here."""
    lease: HeldLease
    remote_reads: Callable[[], RemoteReads | None]
    """Reads what is in the object store only; None without one."""
    filters: Callable[[], ViewFilters]
    """Made for the first fetch of a view."""
    authorization: Authorization | None
    """None: everybody may read everything."""
    quotas: ClientQuotas
    flush: GroupCommit
    slices: Slices
    """The turns of large work."""
    background: Background
    metrics: Metrics
    time: BrokerTime
    loop: asyncio.AbstractEventLoop
