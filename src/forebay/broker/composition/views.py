"""Materialized views: filling the partitions that this broker leads."""

from __future__ import annotations

from forebay.broker.cluster.peers import Peers
from forebay.broker.composition.foundations import Foundations
from forebay.broker.composition.local_partitions import LocalPartitions
from forebay.broker.views.materializing import FillHost, ViewFilling
from forebay.broker.worker_threads import LazyThreads

_THREADS = 1


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
