"""The parts of the broker that ShareFetch and ShareAcknowledge use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from forebay.broker.authorization.authorization import Authorization
from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.fetch.cold_reads import ColdReads
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.connection import Connection
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.broker.shares.table import ShareTable
from forebay.broker.telemetry.metrics import Metrics
from forebay.config import ShareGroupSettings
from forebay.coordination.metadata import Metadata
from forebay.core.shares.sessions import ShareSessions
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareService:
    settings: LiveConfig
    settings_of: Callable[[str], ShareGroupSettings]
    metadata: Metadata
    sessions: ShareSessions
    shares: ShareTable
    cold_reads: ColdReads
    authorization: Authorization | None
    """None without an authorizer: every client may read every topic."""
    quotas: ClientQuotas
    lease: HeldLease
    metrics: Metrics
    time: BrokerTime
    loop: asyncio.AbstractEventLoop

    def connection_closed(self, connection: Connection) -> None:
        """Release the records that members have acquired through this connection."""
        for key in self.sessions.connection_closed(connection):
            self.shares.session_ended(key)

    def holds_records(self, connection: Connection) -> bool:
        """True while a member has locks through this connection. It may send nothing while it works on the
        records; its session would end with the connection."""
        return any(map(self.shares.holds_records, self.sessions.members_on(connection)))

    def is_record_limit(self, group_id: str) -> bool:
        """True if members of a group get no more records than they ask for, in any acquire mode."""
        return self.settings_of(group_id).is_record_limit

    def lock_ms(self, group_id: str) -> int:
        """The lock duration of a group."""
        return self.settings_of(group_id).record_lock_duration_ms
