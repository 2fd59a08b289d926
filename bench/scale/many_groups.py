"""A broker by its number of groups: what each costs with commits, with a member, at rest, and at a start."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.client import Client, expect_success, expect_success_soon
from bench.groups import commit_request, find_coordinator
from bench.scale.curve import Row
from bench.scale.partitions import idle_percent, settle, timed
from bench.server import BenchError, ForebayServer
from forebay.wire.fields import Request
from forebay.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from forebay.wire.messages.list_groups import ListGroupsRequest
from forebay.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

SIZES = (1_000, 3_000, 10_000)
COMMIT, FETCH, HEARTBEAT = 8, 5, 1
CONNECTIONS = 50
TOPIC = "committed"


def group_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    return [_measure(scratch, size) for size in sizes]


def _measure(scratch: Path, size: int) -> Row:
    name = f"groups-{size}"
    row: Row = {"groups": size}
    with ForebayServer(scratch, name, "forebay.warm.up.enable=false") as broker:
        _warm(broker)
        settle(broker)
        before = broker.rss_bytes()
        _timed_each(row, "first commit", broker, size, _commit)
        settle(broker)
        row["KB each"] = (broker.rss_bytes() - before) / size / 1000
        row["idle CPU %"] = idle_percent(broker)
        _timed_each(row, "commit", broker, size, _commit)
        _timed_each(row, "offset fetch", broker, size, _fetch)
        row["list all, twice: CPU ms"] = 1000 * timed(broker, lambda: _list(broker, size + 1))[0]
        broker.process.kill()
        broker.process.wait()
    with ForebayServer(scratch, name, "forebay.warm.up.enable=false") as broker:
        row["start after kill -9: s"] = broker.start_s
        began_s = time.perf_counter()
        with Client(broker.address) as client:
            find_coordinator(client, "group")
        _list(broker, size + 1)
        row["all listed after the start: s"] = time.perf_counter() - began_s
        row["start, load and list: CPU s"] = broker.cpu_s()
        _join(broker, 0, 1)
        settle(broker)
        before = broker.rss_bytes()
        _timed_each(row, "first member", broker, size, _join)
        row["KB each more with a member"] = (broker.rss_bytes() - before) / size / 1000
    print(f"  {row}", flush=True)
    return row


def _warm(broker: ForebayServer) -> None:
    """Have everything imported that is used below."""
    with Client(broker.address) as client:
        client.create_topic(TOPIC)
        find_coordinator(client, "group")
        client.ask(commit_request("warm", TOPIC), COMMIT)
        client.ask(_fetch_request("warm"), FETCH)
        client.ask(ListGroupsRequest())


def _timed_each(
    row: Row, name: str, broker: ForebayServer, size: int, work: Callable[[ForebayServer, int, int], None]
) -> None:
    cpu_s, took_s = timed(broker, lambda: work(broker, 0, size))
    row[f"{name}: CPU ms"] = 1000 * cpu_s / size
    row[f"{name}, all: s"] = took_s


def _for_each(
    broker: ForebayServer, begin: int, end: int, request: Callable[[str], Request], version: int, check: Any
) -> None:
    """Ask for each group, on several connections at the same time, one request after the other on each."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(broker.address)) for _ in range(CONNECTIONS)]
        for start in range(begin, end, CONNECTIONS):
            asking = clients[: end - start]
            for number, client in enumerate(asking, start):
                client.post(request(f"group-{number:06}"), version)
            for client in asking:
                check(client.read())


def _commit(broker: ForebayServer, begin: int, end: int) -> None:
    def check(answer: Any) -> None:
        expect_success("a commit", answer.topics[0].partitions[0].error_code)

    _for_each(broker, begin, end, lambda group: commit_request(group, TOPIC), COMMIT, check)


def _fetch(broker: ForebayServer, begin: int, end: int) -> None:
    def check(answer: Any) -> None:
        found = answer.topics[0].partitions[0]
        expect_success("fetching an offset", found.error_code)
        if found.committed_offset != 1:
            raise BenchError(f"offset {found.committed_offset} was fetched, and 1 committed")

    _for_each(broker, begin, end, _fetch_request, FETCH, check)


def _fetch_request(group: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
    )


def _join(broker: ForebayServer, begin: int, end: int) -> None:
    """A member of the new protocol joins each group, and has the partition with the answer."""

    def request(group: str) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=f"{group}-with-a-member",
            member_id="member",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )

    def check(answer: Any) -> None:
        expect_success("joining", answer.error_code)
        if not answer.assignment.topic_partitions:
            raise BenchError("a member of a new group got no partition")

    _for_each(broker, begin, end, request, HEARTBEAT, check)


def _list(broker: ForebayServer, size: int) -> None:
    with Client(broker.address) as client:
        expect_success_soon("listing groups", lambda: int(client.ask(ListGroupsRequest()).error_code))
        answer = client.ask(ListGroupsRequest())
    if len(answer.groups) != size:
        raise BenchError(f"{len(answer.groups)} groups are listed, not {size}")
