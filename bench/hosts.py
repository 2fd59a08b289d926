"""A host of workers under measurement, or a single broker: its topics, its ways in, what all of it costs."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.client import Client, expect_success
from bench.frames import KB16_BATCH
from bench.groups import find_coordinator
from bench.server import BenchError, ForebayServer, WayIn, process_cpu_s, process_shared_bytes
from bench.share_members import begin_with_first, new_group_name, topic_id_of
from bench.shares import CYCLE_BATCH
from bench.tls import HOST, Certificates
from bench.views import stored
from forebay.wire.batch import split
from forebay.wire.compression import Codec
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest

TOPIC = "bench-workers"
READ = "bench-read"
SHARED = "bench-shared"
ORDERS = "bench-orders"
VIEW = "bench-view"
PARTITIONS = 2
READ_BATCHES = 256
SHARED_BATCHES = 4_000
WHOLE_VIEW = "forebay.view.turn.ms=10000"
"""So that a fetch does not end earlier when the machine is busy."""
ORDERS_BATCHES = 4
VIEW_SETTINGS = {"forebay.view.source": ORDERS, "forebay.view.where": "value.amount > 1000"}
"""Every value is parsed. The open segment of a log is filtered anew for each fetch."""
_FIND_GROUP = 3
_PORTS = range(20_000, 30_000)


class HostServer(ForebayServer):
    """Workers under one parent, or a single broker, with a listener for TLS beside the plain one."""

    ready_s_max = 200.0

    def __init__(self, scratch: Path, workers: int) -> None:
        name = f"workers-{workers}"
        certificates = Certificates(scratch / f"{name}-certificates")
        plain, tls = _ports_in_a_row(2 * (workers + 1), workers + 1)
        super().__init__(
            scratch,
            name,
            f"forebay.workers={workers}",
            WHOLE_VIEW,
            f"ssl.keystore.location={certificates.broker}",
            f"ssl.truststore.location={certificates.authority}",
            listen=f"PLAINTEXT://{HOST}:{plain},SSL://{HOST}:{tls}",
        )
        self.workers = workers
        self._authority = str(certificates.authority)
        self._tls_offset = tls - plain
        self._admin = AdminClient({"bootstrap.servers": f"{HOST}:{plain}", "log_level": 0})

    def create_topics(self) -> None:
        for name in (TOPIC, READ, SHARED, ORDERS):
            self._admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(60)
        data = stored(Codec.NONE)
        orders = data[: split(data)[0][1].size]
        fills = ((READ, READ_BATCHES, KB16_BATCH), (SHARED, SHARED_BATCHES, CYCLE_BATCH))
        for name, batches, batch in (*fills, (ORDERS, ORDERS_BATCHES, orders)):
            for partition, way_in in enumerate(self.ways_in(name)):
                with Client(way_in.address) as client:
                    client.fill(name, batches, batch, partition)
        self._admin.create_topics([NewTopic(VIEW, config=VIEW_SETTINGS)])[VIEW].result(60)

    def pids(self) -> list[int]:
        """The parent, the process that workers are forked from, and the workers."""
        found = [self.process.pid]
        for pid in found:
            found += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return found

    def cpu_s(self) -> float:
        return sum(map(process_cpu_s, self.pids()))

    def rss_bytes(self) -> int:
        """What several processes share counts once."""
        return sum(process_shared_bytes(pid) for pid in self.pids())

    def ways_in(self, topic: str, *, over_tls: bool = False) -> list[WayIn]:
        """To the leader of each partition."""
        found = self._admin.list_topics(topic, timeout=60)
        leaders = [found.brokers[part.leader] for _, part in sorted(found.topics[topic].partitions.items())]
        if over_tls:
            return [WayIn((HOST, leader.port + self._tls_offset), self._authority) for leader in leaders]
        return [WayIn((str(leader.host), leader.port)) for leader in leaders]

    def topic_id(self, topic: str) -> bytes:
        with Client(self.address) as client:
            return topic_id_of(client, topic)

    def new_share_group(self) -> str:
        """One that begins with the first record of each shared partition."""
        group = new_group_name()
        with Client(self.address) as client:
            find_coordinator(client, group)
            found = client.ask(FindCoordinatorRequest(key=group), _FIND_GROUP)
            expect_success("finding a coordinator", found.error_code)
        with Client((found.host, found.port)) as coordinator:
            begin_with_first(coordinator, group, SHARED, PARTITIONS)
        return group


def _ports_in_a_row(count: int, step: int) -> tuple[int, int]:
    """The first of so many free ports, and the one a step behind it: each listener has some in a row."""
    for _ in range(100):
        first = random.choice(_PORTS)
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for port in range(first, first + count):
                probes.enter_context(socket.create_server((HOST, port)))
            return first, first + step
    raise BenchError(f"there are no {count} free ports in a row")
