"""The broker as a whole: all counters (`telemetry/metrics.py`), and gauges looked up when asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay import __version__
from forebay.broker.prometheus.families import Page, escaped, labels
from forebay.broker.telemetry.request_times import BOUNDS_MS, Histogram
from forebay.broker.views.fill_position import FillStop
from forebay.coordination.store import MismatchReason
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.replicas.restored_partitions import unsettled_partitions
from forebay.wire.api_keys import ApiKey
from forebay.wire.messages import api_name

if TYPE_CHECKING:
    from forebay.broker.cluster.controller import Controller
    from forebay.broker.cluster.held_lease import HeldLease
    from forebay.broker.net.server import Server
    from forebay.broker.prometheus.health import Health
    from forebay.broker.shares.live_share import LiveShare
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.broker.telemetry.stalls import StallWatch
    from forebay.broker.views.materializing import FillState
    from forebay.coordination.metadata import Metadata
    from forebay.core.partition.fetch_session import FetchSessions
    from forebay.storage.datadir import DataDir

_TOPICS_AT_ONCE = 200
_UNSETTLED_AT_ONCE = 1000


@dataclass(kw_only=True, eq=False)
class BrokerMetrics:
    metrics: Metrics
    health: Health
    controller: Controller
    sessions: FetchSessions
    server: Server
    lease: HeldLease
    stalls: StallWatch
    metadata: Metadata
    shares: Callable[[], Iterable[LiveShare]]
    fill_states: Callable[[], Iterable[FillState]]
    data: DataDir

    async def prepare(self) -> None:
        pass

    def add_to(self, page: Page) -> Iterator[None]:
        for exported, value in self.metrics.samples():
            name, _, written = exported.partition("{")
            page.add(name, value, written.removesuffix("}"))
        self._add_requests(page)
        self._add_process(page)
        self._add_connections(page)
        self._add_store(page)
        yield
        self._add_queues(page)
        yield
        yield from self._add_cluster(page)

    def _add_requests(self, page: Page) -> None:
        requests, prefix = self.metrics.requests, "kafka_server_brokertopicmetrics"
        page.add(f"{prefix}_totalproducerequests_total", requests.count_of(ApiKey.PRODUCE))
        page.add(f"{prefix}_totalfetchrequests_total", requests.count_of(ApiKey.FETCH))
        for api_key, times in sorted(requests.by_api.items()):
            name = api_name(api_key)
            page.add("kafka_network_requestmetrics_requests_total", times.count, labels(request=name))
            if api_key == ApiKey.FETCH:
                self._add_times(page, "FetchConsumer", times.times)
                self._add_times(page, "FetchFollower", times.from_brokers)
            else:
                self._add_times(page, name, times.times)

    @staticmethod
    def _add_times(page: Page, request: str, times: Histogram) -> None:
        name = "kafka_network_requestmetrics_totaltimems"
        page.add_histogram(name, labels(request=request), BOUNDS_MS, times.counts, times.sum_ms)

    def _add_process(self, page: Page) -> None:
        page.add("forebay_build_info", 1, labels(version=__version__))
        page.add("forebay_ready", int(self.health.problem() is None))
        page.add("kafka_server_kafkaserver_brokerstate", self.health.state)
        page.add("forebay_loop_stall_longest_ms", self.stalls.longest_ms)

    def _add_connections(self, page: Page) -> None:
        memories = (self.server.memory, self.server.strangers_memory)
        page.add("kafka_server_fetchsessioncache_numincrementalfetchsessions", len(self.sessions))
        page.add("forebay_connections", self.server.connection_count)
        page.add("forebay_request_memory_bytes", sum(memory.used_bytes for memory in memories))
        page.add("forebay_connections_waiting_for_memory", sum(memory.waiting for memory in memories))

    def _add_store(self, page: Page) -> None:
        image, refused = self.metadata.image, self.metadata.refused
        page.add("forebay_lease_valid", int(self.lease.valid()))
        for reason in MismatchReason:
            is_refused = refused is not None and refused.reason is reason
            page.add("forebay_store_refused", int(is_refused), labels(reason=reason.value))
        page.add("forebay_stray_logs", self.data.aside.count)
        page.add("forebay_metadata_behind", int(self.metadata.behind))
        page.add("forebay_store_behind", int(self.data.store_behind))
        page.add("forebay_store_unreadable_keys", len(image.unreadable))
        page.add("forebay_delegation_tokens", len(image.tokens))

    def _add_queues(self, page: Page) -> None:
        shares = list(self.shares())
        page.add("forebay_dead_letters_waiting", sum(share.dead_letters_waiting for share in shares))
        page.add("forebay_dead_letters_blocked", sum(bool(share.mover.problem) for share in shares))
        page.add("forebay_views", len(self.metadata.image.views))
        stopped = Counter(each.reason for each in self.fill_states())
        for stop in FillStop:
            page.add("forebay_view_fills_stopped", stopped[stop.value], labels(reason=stop.value))

    def _add_cluster(self, page: Page) -> Iterator[None]:
        image, controls = self.metadata.image, self.controller.active
        page.add("forebay_brokers", len(image.brokers))
        page.add("kafka_brokers", len(image.brokers))
        for broker in image.brokers.values():
            address = f"{broker.host}:{broker.port}"
            page.add("kafka_broker_info", 1, f'id="{broker.id}",address="{escaped(address)}"')
        unsettled = 0
        for unsettled, _ in enumerate(unsettled_partitions(image), start=1):
            if not unsettled % _UNSETTLED_AT_ONCE:
                yield
        page.add("forebay_partitions_unsettled", unsettled)
        prefix = "kafka_controller_kafkacontroller"
        page.add(f"{prefix}_activecontrollercount", int(controls))
        partitions = leaderless = 0
        for number, topic in enumerate(image.topics.values() if controls else ()):
            partitions += len(topic.partitions)
            leaderless += sum(state.leader == NO_LEADER for state in topic.partitions)
            if not number % _TOPICS_AT_ONCE:
                yield
        page.add(f"{prefix}_offlinepartitionscount", leaderless)
        page.add(f"{prefix}_globaltopiccount", len(image.topics) if controls else 0)
        page.add(f"{prefix}_globalpartitioncount", partitions)
