"""Views: filtering what this broker leads, and filling the partitions of materialized ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.views.cache import ViewCache
from forebay.broker.views.filter_threads import FilterThreads
from forebay.broker.views.filters import ViewFilters
from forebay.broker.views.materializing import FillHost, ViewFilling
from forebay.broker.worker_threads import LazyThreads

if TYPE_CHECKING:
    from forebay.broker.cluster.peers.peers import Peers
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions

_THREADS = 1
_FILTERING_THREADS = 2


def view_filters(base: Foundations) -> ViewFilters:
    ports, settings = base.ports, base.settings
    threads = FilterThreads(
        base.loop,
        ports.clock,
        base.core_shortage,
        ports.executor(_FILTERING_THREADS, "forebay-views"),
        _FILTERING_THREADS,
        turn_ms=lambda: settings.current.fetch.view_turn_ms,
        is_trusted=base.is_trusted,
    )
    cache = ViewCache(
        ports.disk, base.data.view_cache, ports.clock, lambda: settings.current.fetch.view_cache_bytes
    )
    return ViewFilters(threads, ports.clock, base.metrics, cache, settings)


def view_filling(base: Foundations, local: LocalPartitions, peers: Peers) -> ViewFilling:
    host = FillHost(
        metadata=base.metadata,
        peers=peers,
        write_cycle=local.write_cycle,
        lease=base.lease,
        threads=LazyThreads(base.loop, lambda: base.ports.executor(_THREADS, "forebay-fill")),
        metrics=base.metrics,
        background=base.background,
        loop=base.loop,
    )
    return ViewFilling(host, local.table.all)
