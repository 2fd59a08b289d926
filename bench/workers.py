"""One worker beside several, in turns: `python -m bench.workers [COUNT]`.

The loads are small produce requests, one or many in one send, and fetches of a view that shows nothing of its
topic. They were built before, and come from two processes: a client costs a few percent of what its broker
does. Both hosts run at the same time, and one of them is idle while the other is measured, in short turns:
what else happens on the machine happens to both, and each round is compared with the one beside it. A host's
CPU is that of all its processes, the parent too. Brokers load their rarely used parts after their start,
which takes each of them a second of CPU: that is waited for.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.client import Client
from bench.frames import B200_BATCH, deep_produce_stream, fetch_stream, produce_stream
from bench.load import Measure, Stream, run_load
from bench.server import ForebayServer, WayIn, process_cpu_s, process_shared_bytes
from bench.views import stored
from forebay.wire.batch import split
from forebay.wire.compression import Codec

TOPIC = "bench-workers"
ORDERS = "bench-orders"
WHOLE_VIEW = "forebay.view.turn.ms=10000"
"""So that a fetch does not end earlier when the machine is busy."""
ORDERS_BATCHES = 4
VIEW = "bench-view"
VIEW_SETTINGS = {"forebay.view.source": ORDERS, "forebay.view.where": "value.amount > 1000"}
"""Every value is parsed. The open segment of a log is filtered anew for each fetch."""
STREAMS = 2
ROUNDS = 12
ROUND_S = 0.5
VIEW_ROUND_S = 1.0
ROUND_BYTES_MAX = 64 << 20
PRODUCE = {"produce 200 B, deep": deep_produce_stream, "produce 200 B": produce_stream}
VIEW_LOAD = "a view of 2,000 messages"
LOADS = (*PRODUCE, VIEW_LOAD)


class HostServer(ForebayServer):
    """Workers under one parent, or a single broker."""

    ready_s_max = 200.0

    def __init__(self, scratch: Path, workers: int) -> None:
        super().__init__(scratch, f"workers-{workers}", f"forebay.workers={workers}", WHOLE_VIEW)
        self.workers = workers
        self.bootstrap = "{}:{}".format(*self.address)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topics(self) -> None:
        for name in (TOPIC, ORDERS):
            self._admin.create_topics([NewTopic(name, STREAMS)])[name].result(60)
        data = stored(Codec.NONE)
        batch = data[: split(data)[0][1].size]
        for partition, way_in in enumerate(self.ways_in(ORDERS)):
            with Client(way_in.address) as client:
                client.fill(ORDERS, ORDERS_BATCHES, batch, partition)
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

    def ways_in(self, topic: str) -> list[WayIn]:
        """To the leader of each partition."""
        found = self._admin.list_topics(topic, timeout=60)
        leaders = [found.brokers[part.leader] for _, part in sorted(found.topics[topic].partitions.items())]
        return [WayIn((str(leader.host), leader.port)) for leader in leaders]

    def measure(self, load: str) -> Measure:
        topic = VIEW if load == VIEW_LOAD else TOPIC
        return run_load(self, [_stream(load, *each) for each in enumerate(self.ways_in(topic))])


def _stream(load: str, partition: int, way_in: WayIn) -> Stream:
    if load == VIEW_LOAD:
        made = fetch_stream(VIEW, [0], B200_BATCH, partition=partition, seconds=VIEW_ROUND_S)
    else:
        made = PRODUCE[load](
            TOPIC, B200_BATCH, partition=partition, seconds=ROUND_S, bytes_max=ROUND_BYTES_MAX
        )
    return replace(made, way_in=way_in)


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        hosts: dict[int, HostServer] = {}
        try:
            HostServer(Path(scratch), 1).stop()  # so that all code is compiled before starts are measured
            for number in (1, count):
                hosts[number] = HostServer(Path(scratch), number)
                hosts[number].create_topics()
            for host in hosts.values():
                host.wait_until_loaded(host.workers)
            for load in LOADS:
                rounds: dict[int, list[Measure]] = {number: [] for number in hosts}
                for _ in range(ROUNDS):
                    for number, host in hosts.items():
                        rounds[number].append(host.measure(load))
                _show(load, rounds)
            for number, host in hosts.items():
                print(f"{number} workers: ready in {host.start_s:.2f} s, {host.rss_bytes() / 1e6:.0f} MB")
        finally:
            for host in hosts.values():
                host.stop()


def _show(load: str, rounds: dict[int, list[Measure]]) -> None:
    for number, measures in rounds.items():
        speed = statistics.median(each.requests_per_s for each in measures)
        cost = statistics.median(each.cpu_us_per_request for each in measures)
        cores = statistics.median(each.cpu_s / each.seconds for each in measures)
        print(f"{load}, {number} workers: {speed:,.0f} requests/s, {cost:.2f} us each, {cores:.2f} cores")
    one, several = rounds.values()
    pairs = list(zip(several, one, strict=True))
    costs = statistics.median(more.cpu_us_per_request / less.cpu_us_per_request for more, less in pairs)
    speeds = statistics.median(more.requests_per_s / less.requests_per_s for more, less in pairs)
    print(f"{load}: {speeds:.2f} times as many requests, {costs:.2f} times the CPU for each")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
