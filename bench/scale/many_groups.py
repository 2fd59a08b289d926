"""A broker by its number of groups: what each costs with its first commit, at rest, and at the next start."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from bench.client import Client, expect_success, expect_success_soon
from bench.groups import commit_request, find_coordinator
from bench.scale.curve import Row
from bench.scale.partitions import idle_percent, settle, timed
from bench.server import BenchError, ForebayServer
from forebay.wire.messages.list_groups import ListGroupsRequest

SIZES = (1_000, 3_000, 10_000)
COMMIT = 8
CONNECTIONS = 50
TOPIC = "committed"


def group_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    return [_measure(scratch, size) for size in sizes]


def _measure(scratch: Path, size: int) -> Row:
    name = f"groups-{size}"
    with ForebayServer(scratch, name, "forebay.warm.up.enable=false") as broker:
        with Client(broker.address) as client:
            client.create_topic(TOPIC)
            find_coordinator(client, "group")
            client.ask(commit_request("warm", TOPIC), COMMIT)
            client.ask(ListGroupsRequest())
        settle(broker)
        before = broker.rss_bytes()
        row: Row = {"groups": size}
        cpu_s, row["first commits: s"] = timed(broker, lambda: _commit_for_each(broker, size))
        row["first commit: CPU ms"] = 1000 * cpu_s / size
        settle(broker)
        row["KB each"] = (broker.rss_bytes() - before) / size / 1000
        row["idle CPU %"] = idle_percent(broker)
        row["list all, twice: CPU ms"] = 1000 * timed(broker, lambda: _list(broker, size + 1))[0]
        broker.process.kill()
        broker.process.wait()
    with ForebayServer(scratch, name) as broker:
        row["start after kill -9: s"] = broker.start_s
        began_s = time.perf_counter()
        with Client(broker.address) as client:
            find_coordinator(client, "group")
        _list(broker, size + 1)
        row["all listed after the start: s"] = time.perf_counter() - began_s
    print(f"  {row}", flush=True)
    return row


def _commit_for_each(broker: ForebayServer, size: int) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(broker.address)) for _ in range(CONNECTIONS)]
        for start in range(0, size, CONNECTIONS):
            for number, client in enumerate(clients, start):
                client.post(commit_request(f"group-{number:06}", TOPIC), COMMIT)
            for client in clients:
                answer = client.read()
                expect_success("a commit", answer.topics[0].partitions[0].error_code)


def _list(broker: ForebayServer, size: int) -> None:
    with Client(broker.address) as client:
        expect_success_soon("listing groups", lambda: int(client.ask(ListGroupsRequest()).error_code))
        answer = client.ask(ListGroupsRequest())
    if len(answer.groups) != size:
        raise BenchError(f"{len(answer.groups)} groups are listed, not {size}")
