"""One worker beside several, in turns: `python -m bench.workers [COUNT]`.

The loads are such that a client costs little beside its broker: their requests were built before, and come
from a process for each connection. Small produce requests, one or many in one send, and fetches of 16 KB over
TLS, many in one send, come from one connection for each partition; fetches of a view that shows nothing of
its topic, and cycles of share groups, from several. Clients of TLS count what comes and do not decrypt it.
The clients' CPU is shown beside that of the host: where both together fill all cores, the clients decide how
much faster more workers can be, and only the CPU for a request can be compared.

Both hosts run at the same time, and one of them is idle while the other is measured, in short turns: what
else happens on the machine happens to both, and each round is compared with the one beside it. A host's CPU
is that of all its processes, the parent too. Brokers load their rarely used parts after their start, which
takes each of them a second of CPU: that is waited for. Starts are measured before, in turns, too.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

from bench.frames import (
    B200_BATCH,
    KB16_BATCH,
    deep_produce_stream,
    fetch_frame,
    fetch_stream,
    numbered,
    produce_stream,
)
from bench.hosts import READ, READ_BATCHES, SHARED, SHARED_BATCHES, TOPIC, VIEW, HostServer
from bench.load import Measure, Stream, run_load
from bench.server import WayIn
from bench.share_members import cycle_stream
from bench.shares import CYCLE_BATCH, CYCLE_RECORDS

ROUNDS = 12
STARTS = 9
ROUND_S = 0.5
VIEW_ROUND_S = 1.0
VIEW_CONNECTIONS = 4
"""For each partition. With one the threads that filter rest while the next fetch is on its way."""
SHARE_GROUPS = 6
FETCHES_PER_SEND = 16
ROUND_BYTES_MAX = 64 << 20
FULL_SHARE = 0.9
"""Of the cores: if clients and host together take more, there was no room for more of either."""


def _deep_produce(host: HostServer) -> list[Stream]:
    return _produce(host, deep_produce_stream)


def _plain_produce(host: HostServer) -> list[Stream]:
    return _produce(host, produce_stream)


def _produce(host: HostServer, make: Callable[..., Stream]) -> list[Stream]:
    return [
        replace(
            make(TOPIC, B200_BATCH, partition=partition, seconds=ROUND_S, bytes_max=ROUND_BYTES_MAX),
            way_in=way_in,
        )
        for partition, way_in in enumerate(host.ways_in(TOPIC))
    ]


def _fetch_over_tls(host: HostServer) -> list[Stream]:
    return [_deep_fetch(*each) for each in enumerate(host.ways_in(READ, over_tls=True))]


def _deep_fetch(partition: int, way_in: WayIn) -> Stream:
    offset = READ_BATCHES // 2 * 16
    frame = fetch_frame(READ, offset, max_bytes=len(KB16_BATCH), partition=partition)
    return Stream(
        blobs=[b"".join(numbered(frame, FETCHES_PER_SEND))],
        requests_per_blob=FETCHES_PER_SEND,
        payload_bytes_per_blob=len(KB16_BATCH) * FETCHES_PER_SEND,
        window=2,
        seconds=ROUND_S,
        way_in=way_in,
        decrypts=False,
    )


def _fetch_views(host: HostServer) -> list[Stream]:
    return [
        replace(fetch_stream(VIEW, [0], B200_BATCH, partition=partition, seconds=VIEW_ROUND_S), way_in=way_in)
        for partition, way_in in enumerate(host.ways_in(VIEW))
        for _ in range(VIEW_CONNECTIONS)
    ]


def _share_cycles(host: HostServer) -> list[Stream]:
    ways_in, topic_id = host.ways_in(SHARED), host.topic_id(SHARED)

    def members(group: str) -> list[Stream]:
        return [
            replace(
                cycle_stream(
                    group,
                    topic_id,
                    partition,
                    batch=CYCLE_BATCH,
                    records=CYCLE_RECORDS,
                    cycles=SHARED_BATCHES,
                    seconds=ROUND_S,
                ),
                way_in=way_in,
            )
            for partition, way_in in enumerate(ways_in)
        ]

    return list(chain.from_iterable(members(host.new_share_group()) for _ in range(SHARE_GROUPS)))


LOADS: dict[str, Callable[[HostServer], list[Stream]]] = {
    "produce 200 B, deep": _deep_produce,
    "produce 200 B": _plain_produce,
    "fetch 16 KB over TLS, deep": _fetch_over_tls,
    "a view of 2,000 messages": _fetch_views,
    "cycles of share groups": _share_cycles,
}


def main(count: int, wanted: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _show_starts(Path(scratch), count)
        hosts: dict[int, HostServer] = {}
        try:
            for number in (1, count):
                hosts[number] = HostServer(Path(scratch), number)
                hosts[number].create_topics()
            for host in hosts.values():
                host.wait_until_loaded(host.workers)
            for load, streams_of in LOADS.items():
                if wanted not in load:
                    continue
                rounds: dict[int, list[Measure]] = {number: [] for number in hosts}
                for _ in range(ROUNDS):
                    for number, host in hosts.items():
                        rounds[number].append(run_load(host, streams_of(host)))
                _show(load, rounds)
            for number, host in hosts.items():
                print(f"{number} workers: {host.rss_bytes() / 1e6:.0f} MB")
        finally:
            for host in hosts.values():
                host.stop()


def _show_starts(scratch: Path, count: int) -> None:
    """Medians of starts in turns, in a directory that is used again, when all code is compiled."""
    found: dict[int, list[float]] = {1: [], count: []}
    for _ in range(STARTS + 1):
        for number, seconds in found.items():
            host = HostServer(scratch, number)
            seconds.append(host.start_s)
            host.stop()
    one, several = (statistics.median(seconds[1:]) for seconds in found.values())
    pairs = zip(found[count][1:], found[1][1:], strict=True)
    ratio = statistics.median(more / less for more, less in pairs)
    print(f"start: {one:.2f} s with 1 worker, {several:.2f} s with {count}: {ratio:.2f} times as long")


def _show(load: str, rounds: dict[int, list[Measure]]) -> None:
    for number, measures in rounds.items():
        speed = statistics.median(each.requests_per_s for each in measures)
        cost = statistics.median(each.cpu_us_per_request for each in measures)
        cores = statistics.median(each.cpu_s / each.seconds for each in measures)
        clients = statistics.median(each.client_cpu_s / each.seconds for each in measures)
        full = cores + clients > FULL_SHARE * (os.cpu_count() or 1)
        print(
            f"{load}, {number} workers: {speed:,.0f} requests/s, {cost:.2f} us each; "
            f"{cores:.2f} cores, and {clients:.2f} for the clients" + (": no core is left" if full else "")
        )
    one, several = rounds.values()
    pairs = list(zip(several, one, strict=True))
    costs = statistics.median(more.cpu_us_per_request / less.cpu_us_per_request for more, less in pairs)
    speeds = statistics.median(more.requests_per_s / less.requests_per_s for more, less in pairs)
    print(f"{load}: {speeds:.2f} times as many requests, {costs:.2f} times the CPU for each", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2, sys.argv[2] if len(sys.argv) > 2 else "")
