"""Share groups: acquire-acknowledge cycles a second, latency from produce to delivery, weight of locks.

One process drives all members of a round, each with one request under way. A cycle is a ShareFetch that
accepts 16 records and acquires the next 16; it is answered when the accepts are persisted. The records are
there before. Afterwards the group's start offsets must tell as many records as were accepted.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.client import Client
from bench.frames import B200_BATCH, batch_of, produce_frame
from bench.latency import PING, WAKE_WAIT_MS, WARM_UP, Latency, sampled, wakes
from bench.load import connect, receive_frame
from bench.machine import Neighbours, median_of
from bench.report import Figure
from bench.rounds import fresh_topic
from bench.server import Address, BenchError, ForebayServer, Server
from bench.share_members import (
    CYCLE_WAIT_MS,
    ShareMember,
    count,
    finished_records,
    members_of,
    new_share_group,
    topic_id_of,
)
from bench.suite import Suite

CYCLE_RECORDS = 16
CYCLE_BATCH = batch_of(CYCLE_RECORDS, 200)
ROUND_S = 1.0
ROUND_CYCLES_MAX = 6_400
LOADS = ((1, 1), (1, 50), (16, 1), (16, 50))
"""Partitions and members."""
DELIVERIES = 500
WEIGHED_GROUPS = 50
WEIGHED_RECORDS = 2_000
"""As many as a group may have in flight in a partition by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    cycles_per_s: float
    cpu_us_per_message: float
    disturbance: float


def share_figures(suite: Suite) -> list[Figure]:
    figures: list[Figure] = []
    for partitions, members in LOADS:
        load = load_name(partitions, members)
        rounds = [
            cycles(suite.broker, partitions=partitions, members=members)
            for _ in suite.each_round(f"acquire-acknowledge cycles, {load}")
        ]
        figures += [
            _figure(f"acquire-acknowledge cycles, {load}", median_of(rounds, "cycles_per_s"), "/s"),
            _figure(f"CPU per accepted message, {load}", median_of(rounds, "cpu_us_per_message"), "µs"),
        ]
    return [*figures, *_delivery_figures(suite), *_weight_figures(suite)]


# -- cycles ------------------------------------------------------------------------------------------------


def cycles(server: Server, *, partitions: int, members: int) -> Cycles:
    with fresh_topic(server, partitions) as (client, topic), ExitStack() as connections:
        for index in range(partitions):
            client.fill(topic, ROUND_CYCLES_MAX // partitions, CYCLE_BATCH, index)
        group = new_share_group(client, topic, partitions)
        crew = members_of(
            server.address, group, topic_id_of(client, topic), members=members, partitions=partitions
        )
        for member in crew:
            connections.enter_context(member.client)
            member.cycle(records=CYCLE_RECORDS, wait_ms=CYCLE_WAIT_MS)
        measured = _run(server, crew)
        for member in crew:
            member.leave()
        accepted, finished = sum(member.accepted for member in crew), finished_records(client, group)
        if accepted != finished:
            raise BenchError(f"{accepted} records were accepted, and {finished} are finished")
        return measured


def _run(server: Server, crew: Sequence[ShareMember]) -> Cycles:
    """Each member posts its next request as soon as its answer is read. The first without records ends it."""
    before = sum(member.accepted for member in crew)
    neighbours, cpu_s = Neighbours(), server.cpu_s()
    done = 0
    gc.disable()
    try:
        for member in crew:
            member.post_cycle(records=CYCLE_RECORDS, wait_ms=CYCLE_WAIT_MS)
        started = time.perf_counter()
        is_over = False
        while not is_over:
            for member in crew:
                is_over = is_over or not member.read_cycle()
                done += 1
                member.post_cycle(records=CYCLE_RECORDS, wait_ms=0 if is_over else CYCLE_WAIT_MS)
            is_over = is_over or time.perf_counter() - started > ROUND_S
        seconds = time.perf_counter() - started
        cpu_s = server.cpu_s() - cpu_s
        for member in crew:
            member.read_cycle()
    finally:
        gc.enable()
    accepted = sum(member.accepted for member in crew) - before
    return Cycles(
        cycles_per_s=done / seconds,
        cpu_us_per_message=cpu_s * 1e6 / accepted,
        disturbance=neighbours.share(),
    )


# -- latency -----------------------------------------------------------------------------------------------


def deliveries(address: Address, topic: str) -> Latency:
    """From sending a produce on one connection to the record's arrival at a waiting share fetch on another.

    The record is accepted before the next one is produced. That is not timed; both sides rest meanwhile,
    until the disk has it.
    """
    with Client(address) as consumer, connect(address) as producer:
        group = new_share_group(consumer, topic, 1)
        member = ShareMember(consumer, group, topic_id_of(consumer, topic), [0])
        while member.cycle(records=500):
            pass  # what other rounds have left
        frame = produce_frame(topic, B200_BATCH)

        def delivery_ns() -> int:
            member.post_cycle(records=1, wait_ms=WAKE_WAIT_MS)
            # Once something sent later is answered, the fetch waits; a pause would let the cores doze off.
            producer.sendall(PING)
            receive_frame(producer)
            started = time.perf_counter_ns()
            producer.sendall(frame)
            arrived = member.read_cycle()
            elapsed_ns = time.perf_counter_ns() - started
            receive_frame(producer)
            if arrived != 1:
                raise BenchError("a share fetch was answered without the record it waited for")
            member.accept(member.held)
            member.held = {}
            return elapsed_ns

        for _ in range(WARM_UP):
            delivery_ns()
        return sampled(delivery_ns, DELIVERIES)


def _delivery_figures(suite: Suite) -> list[Figure]:
    shared: list[Latency] = []
    plain: list[Latency] = []
    with fresh_topic(suite.broker) as (_, topic):
        for _ in suite.each_round("produce to delivery"):
            plain.append(wakes(suite.broker.address, topic, DELIVERIES))
            shared.append(deliveries(suite.broker.address, topic))
    return [
        Figure(
            group="share groups",
            name=f"produce to delivery, {label}",
            value=median_of(shared, attribute),
            unit="µs",
            limit=median_of(plain, attribute),
            limit_name="plain fetch",
        )
        for label, attribute in (("p50", "p50_us"), ("p99", "p99_us"))
    ]


# -- memory ------------------------------------------------------------------------------------------------


def _weight_figures(suite: Suite) -> list[Figure]:
    """Memory of the leader and of the share coordinator, which are one broker here.

    Whole batches are what consumers hold that keep up. Every second record is the worst there can be: a
    state of its own for each offset.
    """
    print("  weight of records in flight", flush=True)
    with ForebayServer(suite.scratch, "shares") as broker, fresh_topic(broker) as (client, topic):
        client.fill(topic, WEIGHED_RECORDS // CYCLE_RECORDS, CYCLE_BATCH)
        topic_id = topic_id_of(client, topic)
        groups = [new_share_group(client, topic, 1) for _ in range(WEIGHED_GROUPS + 1)]
        first, *members = [ShareMember(client, group, topic_id, [0]) for group in groups]
        _hold_all(first)
        _accept_every_second(first)
        rss = [broker.rss_bytes()]
        for step in (_hold_all, _accept_every_second):
            for member in members:
                step(member)
            rss.append(broker.rss_bytes())
        whole_kb, mixed_kb = ((each - rss[0]) / 1024 / WEIGHED_GROUPS for each in rss[1:])
        return [
            _figure(
                "memory of 1,000 records in flight, whole batches", whole_kb * 1000 / WEIGHED_RECORDS, "KB"
            ),
            _figure(
                "memory of 1,000 records in flight, every second one accepted",
                mixed_kb * 1000 / (WEIGHED_RECORDS / 2),
                "KB",
            ),
        ]


def _hold_all(member: ShareMember) -> None:
    if member.cycle(records=WEIGHED_RECORDS, wait_ms=WAKE_WAIT_MS) != WEIGHED_RECORDS:
        raise BenchError(f"a member was given {count(member.held)} records of {WEIGHED_RECORDS}")


def _accept_every_second(member: ShareMember) -> None:
    member.accept({0: [(offset, offset) for offset in range(1, WEIGHED_RECORDS, 2)]})


def load_name(partitions: int, members: int) -> str:
    counts = {"partition": partitions, "member": members}
    return ", ".join(f"{number} {what}{'' if number == 1 else 's'}" for what, number in counts.items())


def _figure(name: str, value: float, unit: str) -> Figure:
    return Figure(group="share groups", name=name, value=value, unit=unit)
