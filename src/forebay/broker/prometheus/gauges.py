"""How the broker is at this moment: gauges, looked up when asked for. Counters: `telemetry/metrics.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.broker.views.fill_position import FillStop
from forebay.coordination.store import MismatchReason
from forebay.core.cluster.replicas.restored_partitions import unsettled_partitions

if TYPE_CHECKING:
    from forebay.broker.cluster.controller import Controller
    from forebay.broker.cluster.held_lease import HeldLease
    from forebay.broker.net.server import Server
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.shares.live_share import LiveShare
    from forebay.broker.telemetry.stalls import StallWatch
    from forebay.broker.views.materializing import FillState
    from forebay.coordination.metadata import Metadata
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.partition.fetch_session import FetchSessions
    from forebay.storage.datadir import DataDir


@dataclass(kw_only=True, eq=False)
class Gauges:
    partitions: PartitionTable
    controller: Controller
    sessions: FetchSessions
    server: Server
    lease: HeldLease
    stalls: StallWatch
    metadata: Metadata
    shares: Callable[[], Iterable[LiveShare]]
    fill_states: Callable[[], Iterable[FillState]]
    data: DataDir

    def samples(self) -> Iterator[tuple[str, int]]:
        """Exported name and value of every gauge, the labels of a name one after the other."""
        held = self.partitions.all()
        led = [partition for partition in held if partition.is_leader]
        manager = "kafka_server_replicamanager"
        yield "kafka_controller_kafkacontroller_activecontrollercount", int(self.controller.active)
        yield f"{manager}_partitioncount", len(self.partitions)
        yield f"{manager}_leadercount", len(led)
        yield f"{manager}_underreplicatedpartitions", sum(map(_is_under_replicated, led))
        yield f"{manager}_underminisrpartitioncount", sum(not each.enough_replicas for each in led)
        yield f"{manager}_offlinereplicacount", sum(each.log.offline is not None for each in held)
        yield "kafka_server_fetchsessioncache_numincrementalfetchsessions", len(self.sessions)
        yield "forebay_connections", self.server.connection_count
        memories = (self.server.memory, self.server.strangers_memory)
        yield "forebay_request_memory_bytes", sum(memory.used_bytes for memory in memories)
        yield "forebay_connections_waiting_for_memory", sum(memory.waiting for memory in memories)
        yield "forebay_lease_valid", int(self.lease.valid())
        refused = self.metadata.refused
        for reason in MismatchReason:
            yield (
                f'forebay_store_refused{{reason="{reason.value}"}}',
                int(refused is not None and refused.reason is reason),
            )
        yield "forebay_stray_logs", self.data.aside.count
        yield "forebay_metadata_behind", int(self.metadata.behind)
        yield "forebay_store_behind", int(self.data.store_behind)
        yield "forebay_partitions_unsettled", _count_unsettled(self.metadata.image)
        yield "forebay_loop_stall_longest_ms", self.stalls.longest_ms
        yield "forebay_dead_letters_waiting", sum(share.dead_letters_waiting for share in self.shares())
        yield "forebay_dead_letters_blocked", sum(bool(share.mover.problem) for share in self.shares())
        delayed = [
            partition.delayed_messages.pending for partition in led if partition.delayed_messages is not None
        ]
        yield "forebay_delayed_pending", sum(delayed)
        yield "forebay_brokers", len(self.metadata.image.brokers)
        yield "forebay_delegation_tokens", len(self.metadata.image.tokens)
        yield "forebay_store_unreadable_keys", len(self.metadata.image.unreadable)
        stopped = Counter(each.reason for each in self.fill_states())
        for stop in FillStop:
            yield f'forebay_view_fills_stopped{{reason="{stop.value}"}}', stopped[stop.value]


def _count_unsettled(image: ClusterImage) -> int:
    return sum(1 for _ in unsettled_partitions(image))


def _is_under_replicated(partition: Partition) -> bool:
    leadership = partition.leadership
    return leadership is not None and len(leadership.isr) <= len(leadership.followers)
