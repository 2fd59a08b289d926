"""How the broker is at this moment: gauges beside the counters of `metrics.py`, looked up when asked for."""

from __future__ import annotations

from collections.abc import Iterator

from forebay.broker.cluster.controller import Controller
from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.net.server import Server
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.broker.telemetry.stalls import StallWatch
from forebay.coordination.metadata import Metadata
from forebay.core.partition.fetch_session import FetchSessions


class Gauges:
    def __init__(
        self,
        *,
        partitions: PartitionTable,
        controller: Controller,
        sessions: FetchSessions,
        server: Server,
        lease: HeldLease,
        stalls: StallWatch,
        metadata: Metadata,
    ) -> None:
        self._partitions = partitions
        self._controller = controller
        self._sessions = sessions
        self._server = server
        self._lease = lease
        self._stalls = stalls
        self._metadata = metadata

    def samples(self) -> Iterator[tuple[str, int]]:
        """Exported name and value of every gauge."""
        held = self._partitions.all()
        led = [partition for partition in held if partition.is_leader]
        manager = "kafka_server_replicamanager"
        yield "kafka_controller_kafkacontroller_activecontrollercount", int(self._controller.active)
        yield f"{manager}_partitioncount", len(self._partitions)
        yield f"{manager}_leadercount", len(led)
        yield f"{manager}_underreplicatedpartitions", sum(map(_is_under_replicated, led))
        yield f"{manager}_underminisrpartitioncount", sum(not each.enough_replicas for each in led)
        yield f"{manager}_offlinereplicacount", sum(each.log.offline is not None for each in held)
        yield "kafka_server_fetchsessioncache_numincrementalfetchsessions", len(self._sessions)
        yield "forebay_connections", self._server.connection_count
        yield "forebay_lease_valid", int(self._lease.valid())
        yield "forebay_loop_stall_longest_ms", self._stalls.longest_ms
        yield "forebay_brokers", len(self._metadata.image.brokers)


def _is_under_replicated(partition: Partition) -> bool:
    leadership = partition.leadership
    return leadership is not None and len(leadership.isr) <= len(leadership.followers)
