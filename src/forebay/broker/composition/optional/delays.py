"""Messages that wait for their time: their indexes, and their delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.delays.following import DelayHost
from forebay.broker.delays.service import DelayService
from forebay.broker.worker_threads import LazyThreads

if TYPE_CHECKING:
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions

_THREADS = 2


def delay_service(base: Foundations, local: LocalPartitions) -> DelayService:
    host = DelayHost(
        indexes=base.ports.delay_indexes,
        threads=LazyThreads(base.loop, lambda: base.ports.executor(_THREADS, "forebay-delays")),
        write_cycle=local.write_cycle,
        lease=base.lease,
        metrics=base.metrics,
        background=base.background,
        time=base.time,
        loop=base.loop,
    )
    return DelayService(host, local.table)
