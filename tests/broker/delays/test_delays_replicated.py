"""Messages that wait in a cluster: whoever leads delivers them, once, and nobody loses them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import records, split
from forebay.wire.messages.alter_delays import CANCEL, AlterDelaysRequest
from forebay.wire.messages.describe_delays import DescribeDelaysRequest
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.delaying import Sent, after, at, batch_of, named, now_ms
from support.clients.wire_client import CREATE_TOPICS, PRODUCE, create_topic, fetch, only_partition, produce

TOPIC = "later"
FETCH = 11
NOT_YET = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
)


async def make_topic(cluster: LocalCluster) -> None:
    request = create_topic(TOPIC, forebay_delay_enable="true")
    made = await cluster.ask(1, request, CREATE_TOPICS)
    assert made.topics[0].error_code == ErrorCode.NONE
    await cluster.in_sync(TOPIC)


async def send(cluster: LocalCluster, *messages: Sent) -> int:
    async def attempt() -> tuple[Any, int]:
        request = produce(TOPIC, batch_of(*messages), acks=-1)
        answer = only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))
        return answer, answer.error_code

    answer = await retried(attempt, *NOT_YET)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    offset: int = answer.base_offset
    return offset


async def delivered(cluster: LocalCluster) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = 0
    while True:

        async def attempt(offset: int = offset) -> tuple[Any, int]:
            request = fetch(TOPIC, offset, partition_max_bytes=1 << 24)
            answer = only_partition(await cluster.ask(cluster.leader(TOPIC), request, FETCH))
            return answer, answer.error_code

        answer = await retried(attempt, *NOT_YET)
        data = memoryview(answer.records or b"")
        batches = split(data)
        if not batches:
            return found
        for position, header in batches:
            offset = header.next_offset
            if not header.is_control and header.record_count:
                found += [record.value for record in records(data[position : position + header.size])]


async def comes_to(cluster: LocalCluster, expected: list[bytes | None]) -> None:
    """Wait until these are delivered, in their order, and nothing else."""

    async def attempt() -> tuple[list[bytes | None], bool]:
        found = await delivered(cluster)
        return found, len(found) < len(expected)

    assert await retried(attempt, True) == expected


async def waiting(cluster: LocalCluster) -> list[int]:
    async def attempt() -> tuple[Any, int]:
        answer = await cluster.ask(cluster.leader(TOPIC), DescribeDelaysRequest(topic=TOPIC), 0)
        return answer, answer.error_code

    answer = await retried(attempt, *NOT_YET)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return [each.id for each in answer.messages]


def others(cluster: LocalCluster) -> list[int]:
    return [node for node in cluster.nodes if node != cluster.leader(TOPIC)]


@pytest.mark.parametrize("how", ["moved", "killed", "stopped"])
async def test_another_leader_delivers_what_waits_and_nothing_twice(tmp_path: Path, how: str) -> None:
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster)
        first = cluster.leader(TOPIC)
        await send(cluster, (b"first", at(now_ms() + 100)))
        await comes_to(cluster, [b"first"])
        due_ms = now_ms() + 1_500
        for number in range(20):
            await send(cluster, (b"%d" % number, at(due_ms + number % 2)))
        await send(cluster, (b"far", after("1h")), (b"gone", after("1h", schedule_key="k")))
        await send(cluster, (None, named(schedule_key="k")))
        if how == "moved":
            await cluster.lead(TOPIC, 0, others(cluster)[0])
        elif how == "killed":
            await cluster.crash(first)
            await cluster.bury(first)
        else:
            await cluster.stop(first)
        assert cluster.leader(TOPIC) != first
        even, odd = ([b"%d" % number for number in range(start, 20, 2)] for start in (0, 1))
        await comes_to(cluster, [b"first", *even, *odd])
        assert len(await waiting(cluster)) == 1


async def test_leaders_that_change_all_the_time_deliver_once(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster)
        due_ms = now_ms() + 300
        count = 200
        for number in range(0, count, 10):
            await send(
                cluster, *((b"%d" % each, at(due_ms + 10 * each)) for each in range(number, number + 10))
            )
        for _ in range(6):
            await asyncio.sleep(0.3)
            await cluster.lead(TOPIC, 0, others(cluster)[0])
        await comes_to(cluster, [b"%d" % number for number in range(count)])
        assert await waiting(cluster) == []


async def test_every_replica_keeps_the_same_index(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster)
        ids = [await send(cluster, (b"%d" % number, after(f"{number}h"))) for number in range(1, 4)]
        request = AlterDelaysRequest(topic=TOPIC, action=CANCEL, ids=[ids[1]])
        assert (await cluster.ask(cluster.leader(TOPIC), request, 0)).results[0].error_code == ErrorCode.NONE

        def pending(node: int) -> int:
            held = cluster[node].partitions.held(TOPIC, 0)
            assert held.delayed_messages is not None
            return held.delayed_messages.pending

        await eventually(lambda: {pending(node) for node in cluster.nodes} == {2})
        for leader in others(cluster):
            await cluster.lead(TOPIC, 0, leader)
            assert await waiting(cluster) == [ids[0], ids[2]]
        with pytest.raises(KafkaError):
            follower = others(cluster)[0]
            cluster[follower].delays.led(TOPIC, 0)


async def test_a_replica_that_was_away_learns_what_waits(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await make_topic(cluster)
        away = others(cluster)[0]
        await cluster.kill(away)
        await cluster.bury(away)
        kept = await send(cluster, (b"far", after("1h")))
        await send(cluster, (b"soon", at(now_ms() + 200)))
        await comes_to(cluster, [b"soon"])
        await cluster.start(away, "another disk")
        await cluster.in_sync(TOPIC)
        await cluster.lead(TOPIC, 0, away)
        assert await waiting(cluster) == [kept]
        assert await delivered(cluster) == [b"soon"]
