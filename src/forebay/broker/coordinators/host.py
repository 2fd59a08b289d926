"""The parts of the broker that the runtime of coordinators uses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.lazy import dataclass

if TYPE_CHECKING:
    from forebay.broker.background import Background
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.cluster.held_lease import HeldLease
    from forebay.broker.cluster.topic_changes import TopicChanges
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.produce.write_cycle import WriteCycle
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.broker.worker_threads import WorkerThreads
    from forebay.coordination.metadata import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorHost:
    node_id: int
    metadata: Metadata
    partitions: PartitionTable
    topic_changes: TopicChanges
    """Creates the internal topic on first use."""
    write_cycle: WriteCycle
    lease: HeldLease
    """Without a valid lease nothing can be committed, so requests are refused."""
    readers: WorkerThreads
    """The threads that read the logs when machines are loaded."""
    background: Background
    metrics: Metrics
    time: BrokerTime
    loop: asyncio.AbstractEventLoop
