"""The parts of the broker that Produce requests need."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.lazy import dataclass

if TYPE_CHECKING:
    from forebay.broker.folds.takers import BatchTakers
    from forebay.broker.net.request_context import RequestContext
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.produce.record_checks import Examiner
    from forebay.broker.produce.transaction_verification import VerifyTransaction
    from forebay.broker.produce.write_cycle import WriteCycle
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.coordination.metadata import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceHost:
    node_id: int
    partitions: PartitionTable
    metadata: Metadata
    write_cycle: WriteCycle
    examiner: Examiner
    verify_transaction: VerifyTransaction
    """Asks the transaction coordinator whether partitions take part in a producer's transaction."""
    takers: BatchTakers
    """Tells which partition takes a batch."""
    sent_by_broker: Callable[[RequestContext], bool]
    """True if a broker has sent a request; a client may only claim to be one."""
    metrics: Metrics
    now_ms: Callable[[], int]
    """Wall time, for the timestamps of messages."""
    uptime_s: Callable[[], float]
    """The time of the event loop."""
    sync_on_ack: bool
    """True if acks=all waits for a flush where no other replica is in sync."""
