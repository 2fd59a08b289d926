"""Queues: share groups of Forebay beside those of Apache Kafka, under the Java share consumer as it comes.

The members of both groups are in one JVM, and work for one broker at a time. What they consume is there
before. The clock stops while there is still more than they can hold, so that none of them waits for messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from bench.client import Client, expect_success
from bench.kafka_server import KafkaServer, kafka_version
from bench.latency import Latency, percentiles
from bench.load import Measure, Rounds
from bench.machine import Neighbours, median_of
from bench.report import Figure
from bench.rounds import fresh_topic, warm_page_cache
from bench.server import BenchError, ForebayServer, Server
from bench.share_load import VALUE_BYTES, ShareLoad
from bench.share_members import new_share_group, unfinished_records
from bench.shares import LOADS, load_name
from bench.suite import scratch_directory
from bench.versus import FOREBAY, GROUPS, KAFKA, compared
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.share_group_describe import ShareGroupDescribeRequest

ROUNDS_MAX = 3
MESSAGES = 200_000
WINDOW = 150_000
"""50 members hold up to 500 messages each, and have as many on the way."""
DELIVERIES = 300
DELIVERIES_WARM_UP = 50
DELIVERY_INTERVAL_US = 4_000
JOIN_S_MAX = 60.0
GROUP_RESOURCE = 32
LOCKS = AlterableConfig(name="share.record.lock.duration.ms", config_operation=0, value="60000")
"""Members take their first messages while the topic is filled, which takes long on a busy machine."""
SPEED_AT_LEAST = 1.0
CPU_AT_MOST = 0.5
LATENCY_AT_MOST = 1.0


@dataclass(slots=True)
class Side:
    """A group at one of the two brokers, and all that was measured of it under one load."""

    name: str
    server: Server
    client: Client
    group: str
    consumed: Rounds = field(default_factory=Rounds)
    delivered: list[Latency] = field(default_factory=list)


def versus_share_figures(round_count: int) -> tuple[list[Figure], str]:
    figures: list[Figure] = []
    with scratch_directory() as scratch:
        print("warming up the page cache", flush=True)
        warm_page_cache(scratch)
        with (
            ForebayServer(scratch, "forebay") as ours,
            KafkaServer(scratch, "kafka") as theirs,
            ShareLoad(scratch) as load,
        ):
            servers = {FOREBAY: ours, KAFKA: theirs}
            for number, (partitions, members) in enumerate(LOADS):
                with ExitStack() as opened:
                    sides = [
                        opened.enter_context(
                            joined_side(load, name, server, partitions=partitions, members=members)
                        )
                        for name, server in servers.items()
                    ]
                    # What JVMs compile once is compiled under the first load.
                    _run(load, sides, load_name(partitions, members), round_count, 1 if number else 2)
                figures += _figures(load_name(partitions, members), *sides)
    return sorted(figures, key=lambda figure: GROUPS.index(figure.group)), kafka_version()


@contextmanager
def joined_side(
    load: ShareLoad, name: str, server: Server, *, partitions: int, members: int
) -> Iterator[Side]:
    """A topic and a group with all its members, each of which has its partitions."""
    with fresh_topic(server, partitions) as (client, topic):
        side = Side(name, server, client, new_share_group(client, topic, partitions))
        group = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=side.group, configs=[LOCKS])
        answer = client.ask(IncrementalAlterConfigsRequest(resources=[group]))
        expect_success("setting the time of locks", answer.responses[0].error_code)
        load.ask("open", name, "{}:{}".format(*server.address), topic, partitions, side.group, members)
        started = time.monotonic()
        while (joined := _assigned(side)) < members:
            if time.monotonic() - started > JOIN_S_MAX:
                raise BenchError(f"{name} has given partitions to {joined} of {members} members")
            time.sleep(0.1)
        print(f"  {name}: {joined} with partitions after {time.monotonic() - started:.1f} s", flush=True)
        yield side
        load.ask("close", name)


def _assigned(side: Side) -> int:
    """How many members have partitions."""
    answer = side.client.ask(ShareGroupDescribeRequest(group_ids=[side.group]))
    expect_success("describing a share group", answer.groups[0].error_code)
    return sum(bool(member.assignment.topic_partitions) for member in answer.groups[0].members)


def _run(load: ShareLoad, sides: list[Side], name: str, round_count: int, warm_up: int) -> None:
    last = min(round_count, ROUNDS_MAX)
    for number in range(1 - warm_up, last + 1):
        print(f"  {name}: {f'round {number} of {last}' if number > 0 else 'warm-up'}", flush=True)
        for side in sides:
            consumed, delivered = consume(load, side), deliver(load, side)
            if number > 0:
                side.consumed.append(consumed)
                side.delivered.append(delivered)


def consume(load: ShareLoad, side: Side) -> Measure:
    load.ask("fill", side.name, MESSAGES)
    neighbours, cpu_s = Neighbours(), side.server.cpu_s()
    answer = load.ask("consume", side.name, MESSAGES, WINDOW)
    cpu_s = side.server.cpu_s() - cpu_s
    measure = Measure(
        requests=answer["acknowledged"],
        payload_bytes=answer["acknowledged"] * VALUE_BYTES,
        seconds=answer["seconds"],
        cpu_s=cpu_s,
        disturbance=neighbours.share(),
    )
    load.read()
    _check_finished(side)
    return measure


def deliver(load: ShareLoad, side: Side) -> Latency:
    neighbours = Neighbours()
    answer = load.ask("deliver", side.name, DELIVERIES_WARM_UP + DELIVERIES, DELIVERY_INTERVAL_US)
    _check_finished(side)
    latency = percentiles(answer["nanoseconds"][DELIVERIES_WARM_UP:])
    return replace(latency, disturbance=neighbours.share())


def _check_finished(side: Side) -> None:
    """The broker knows of everything that it has confirmed."""
    if unfinished := unfinished_records(side.client, side.group):
        raise BenchError(f"{side.name}: all messages were acknowledged, and {unfinished} are not finished")


def _figures(load: str, ours: Side, theirs: Side) -> list[Figure]:
    def both(attribute: str) -> tuple[float, float]:
        return ours.consumed.median(attribute), theirs.consumed.median(attribute)

    speed, cpu = both("requests_per_s"), both("cpu_us_per_request")
    return [
        compared("throughput", load, *speed, "messages/s", at_least=SPEED_AT_LEAST),
        compared("broker CPU", load, *cpu, "µs/message", at_most=CPU_AT_MOST),
        *(
            compared(
                "latency",
                f"produce to delivery, {load}, {label}",
                median_of(ours.delivered, attribute) / 1000,
                median_of(theirs.delivered, attribute) / 1000,
                "ms",
                at_most=LATENCY_AT_MOST,
            )
            for label, attribute in (("p50", "p50_us"), ("p99", "p99_us"))
        ),
    ]
