"""The foundations of every other part of a broker. Made first, inside a running event loop."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING

from forebay.broker.authorization.audit import AuditLog
from forebay.broker.authorization.authorization import Authorization, sent_by_broker
from forebay.broker.background import Background
from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.cluster.peers.peer_dialing import PeerDialing
from forebay.broker.live_config import LiveConfig
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.telemetry.recent_events import RecentEvents
from forebay.broker.telemetry.stalls import StallWatch
from forebay.broker.tls.endpoints import TlsEndpoints
from forebay.broker.worker_threads import WorkerThreads
from forebay.broker.yielding.core_shortage import CoreShortage
from forebay.broker.yielding.stranger_work import StrangerWork

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.cluster.store_memory import StoreMemory
    from forebay.broker.ports import Ports
    from forebay.config import BrokerConfig
    from forebay.coordination.metadata import Metadata
    from forebay.coordination.store import Store
    from forebay.storage.datadir import DataDir

_UPKEEP_THREADS = 2
_READING_THREADS = 2


class Foundations:
    def __init__(
        self,
        *,
        node_id: int,
        config: BrokerConfig,
        ports: Ports,
        time: BrokerTime,
        data: DataDir,
        store: Store,
        metadata: Metadata,
        store_memory: StoreMemory,
        login_secret: bytes,
    ) -> None:
        self.node_id = node_id
        self.ports = ports
        self.time = time
        self.data = data
        self.store = store
        self.metadata = metadata
        self.store_memory = store_memory
        self.login_secret = login_secret
        self.loop = asyncio.get_running_loop()
        self.settings = LiveConfig(config, node_id)
        self.settings.apply(metadata.image, starting=True)
        self.metrics = Metrics()
        self.events = RecentEvents(config.node.events_kept_max, time.now_ms)
        self.audit = AuditLog(self.settings, now=time.clock.monotonic, call_later=self.loop.call_later)
        self.audit.noted.listen(self.events.changed)
        self.authorization = (
            Authorization(self.settings, metadata.image, self.metrics, self.audit)
            if config.authorization.is_enabled
            else None
        )
        rights = config.authorization
        self.is_trusted: Callable[[str], bool] = (
            rights.super_users.__contains__ if rights.is_enabled else lambda _: True
        )
        """Of users, by their principals, whether they may do everything."""
        self.quotas = ClientQuotas(
            self.settings,
            metadata.image,
            self.metrics,
            now=self.loop.time,
            sent_by_broker=partial(sent_by_broker, self.authorization),
        )
        self.background = Background(self.metrics)
        self.stalls = StallWatch(
            self.metrics,
            lease_ttl_ms=config.cluster.lease_ttl_ms,
            alarm_ms=config.socket.stall_alarm_ms,
        )
        self.workers = WorkerThreads(self.loop, ports.executor(_UPKEEP_THREADS, "forebay-keep"))
        self.read_pool = ports.executor(_READING_THREADS, "forebay-read")
        self.lease = HeldLease()
        metadata.on_refusal = self.lease.doubt_store
        self.core_shortage = CoreShortage(
            self.loop.time, partial(ports.clock.core_wait, threading.get_native_id())
        )
        self.strangers = StrangerWork(
            self.loop, ports.clock.thread_cpu, self.core_shortage, is_open=not rights.is_enabled
        )
        self.tls = TlsEndpoints(
            self.settings.current.tls, self.metrics, self.workers, self.loop, self.strangers
        )
        self.dialing = PeerDialing(self.settings, ports.network, self.tls, ports.entropy)
