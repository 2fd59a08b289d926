"""The parts that the handlers of Produce and Fetch are given, made with the first request of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from forebay.broker.authorization.authorization import sent_by_broker
from forebay.broker.fetch.fetch_host import FetchHost
from forebay.broker.produce.produce_host import ProduceHost

if TYPE_CHECKING:
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions
    from forebay.broker.composition.replication import Replication
    from forebay.broker.fetch.cold_reads import ColdReads
    from forebay.broker.folds.takers import BatchTakers
    from forebay.broker.net.scheduling.slices import Slices
    from forebay.broker.produce.record_checks import Examiner
    from forebay.broker.produce.transaction_verification import VerifyTransaction
    from forebay.broker.tiers.remote_reads import RemoteReads
    from forebay.broker.views.filters import ViewFilters


def produce_host(
    base: Foundations,
    local: LocalPartitions,
    *,
    examiner: Examiner,
    verify_transaction: VerifyTransaction,
    takers: BatchTakers,
) -> ProduceHost:
    return ProduceHost(
        node_id=base.node_id,
        partitions=local.table,
        metadata=base.metadata,
        write_cycle=local.write_cycle,
        examiner=examiner,
        verify_transaction=verify_transaction,
        takers=takers,
        sent_by_broker=partial(sent_by_broker, base.authorization),
        metrics=base.metrics,
        now_ms=base.time.now_ms,
        uptime_s=base.loop.time,
        sync_on_ack=base.settings.current.storage.flush_on_ack,
    )


def fetch_host(
    base: Foundations,
    local: LocalPartitions,
    replication: Replication,
    *,
    cold_reads: ColdReads,
    remote_reads: Callable[[], RemoteReads | None],
    filters: Callable[[], ViewFilters],
    slices: Slices,
) -> FetchHost:
    return FetchHost(
        node_id=base.node_id,
        settings=base.settings,
        metadata=base.metadata,
        partitions=local.table,
        sessions=replication.sessions,
        cold_reads=cold_reads,
        delays=local.delays,
        arrivals=local.arrivals,
        followers=replication.followers,
        throttle=replication.throttles.giving,
        lease=base.lease,
        remote_reads=remote_reads,
        filters=filters,
        authorization=base.authorization,
        quotas=base.quotas,
        flush=local.flush,
        slices=slices,
        background=base.background,
        metrics=base.metrics,
        time=base.time,
        loop=base.loop,
    )
