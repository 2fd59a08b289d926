"""The page of metrics and the health checks of a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from forebay.broker.prometheus.broker_metrics import BrokerMetrics
from forebay.broker.prometheus.exporter import Exporter
from forebay.broker.prometheus.group_lag import GroupLags
from forebay.broker.prometheus.group_metrics import GroupMetrics, GroupPartitionMetrics
from forebay.broker.prometheus.health import Health
from forebay.broker.prometheus.machine_metrics import MachineMetrics
from forebay.broker.prometheus.metrics_page import MetricsPage
from forebay.broker.prometheus.queue_metrics import QueueMetrics
from forebay.broker.prometheus.topic_metrics import PartitionMetrics, TopicMetrics

if TYPE_CHECKING:
    from forebay.broker.cluster.controller import Controller
    from forebay.broker.cluster.peers.peers import Peers
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions
    from forebay.broker.coordinators.groups import Groups
    from forebay.broker.fetch.positions import Positions
    from forebay.broker.net.scheduling.slices import Slices
    from forebay.broker.net.server import Server
    from forebay.broker.shares.live_share import LiveShare
    from forebay.broker.views.materializing import FillState
    from forebay.core.partition.fetch_session import FetchSessions


def exporter(
    base: Foundations,
    local: LocalPartitions,
    *,
    server: Server,
    controller: Controller,
    sessions: FetchSessions,
    slices: Slices,
    peers: Peers,
    positions: Positions,
    groups: Callable[[], Groups | None],
    shares: Callable[[], Iterable[LiveShare]],
    fill_states: Callable[[], Iterable[FillState]],
) -> Exporter:
    """`groups`, `shares` and `fill_states` are asked for each page: they are made when they are used."""
    metadata, partitions = base.metadata, local.table

    def series_max() -> int:
        return base.settings.current.node.metrics_series_max

    health = Health(base.lease, metadata, is_serving=lambda: server.is_serving)
    lags = GroupLags(
        groups,
        positions,
        partitions,
        peers,
        metadata,
        node_id=base.node_id,
        committed_max=series_max,
    )
    whole = BrokerMetrics(
        metrics=base.metrics,
        health=health,
        controller=controller,
        sessions=sessions,
        server=server,
        lease=base.lease,
        stalls=base.stalls,
        metadata=metadata,
        shares=shares,
        fill_states=fill_states,
        data=base.data,
    )
    sources = (
        whole,
        MachineMetrics(base.ports.disk, base.settings, base.workers),
        TopicMetrics(partitions, metadata, base.time),
        GroupMetrics(groups, lags, base.time),
        QueueMetrics(shares),
        PartitionMetrics(partitions, metadata, node_id=base.node_id),
        GroupPartitionMetrics(lags),
    )
    page = MetricsPage(sources, slices, details_max=series_max)
    return Exporter(page, health)
