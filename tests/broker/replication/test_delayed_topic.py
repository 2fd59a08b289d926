"""A topic with `forebay.delay.ms` in a cluster: whoever leads, nothing is seen before it is due."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.wire_client import (
    CREATE_TOPICS,
    PRODUCE,
    batch,
    create_topic,
    fetch,
    only_partition,
    produce,
    values_of,
)

TOPIC = "later"
HOUR_MS = 3_600_000
FETCH = 11
NOT_YET = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def append(cluster: LocalCluster, value: bytes, timestamp: int) -> None:
    async def attempt() -> tuple[int, int]:
        request = produce(TOPIC, batch(value, timestamp=timestamp), acks=-1)
        answer = only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))
        return answer.error_code, answer.error_code

    assert await retried(attempt, *NOT_YET) == ErrorCode.NONE


async def read(cluster: LocalCluster, node: int, *, wait_ms: int = 500) -> Any:
    async def attempt() -> tuple[Any, int]:
        answer = only_partition(await cluster.ask(node, fetch(TOPIC, 0, max_wait_ms=wait_ms), FETCH))
        return answer, answer.error_code

    return await retried(attempt, *NOT_YET)


async def test_a_new_leader_shows_nothing_early_and_loses_nothing(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        made = await cluster.ask(1, create_topic(TOPIC, forebay_delay_ms=str(HOUR_MS)), CREATE_TOPICS)
        assert made.topics[0].error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        due_ms = now_ms() + 2_000
        await append(cluster, b"due", now_ms() - 2 * HOUR_MS)
        await append(cluster, b"soon", due_ms - HOUR_MS)
        await append(cluster, b"late", now_ms())
        first = cluster.leader(TOPIC)
        assert values_of((await read(cluster, first)).records)[0] == (0, b"due")
        second = next(node for node in cluster.nodes if node != first)
        await eventually(lambda: cluster[second].partitions.held(TOPIC, 0).log.end_offset == 3)
        await cluster.lead(TOPIC, 0, second)
        seen: list[tuple[int, bytes | None]] = []
        while len(seen) < 2:
            seen = values_of((await read(cluster, second)).records)
            assert (1, b"soon") not in seen or now_ms() >= due_ms
        assert seen == [(0, b"due"), (1, b"soon")]


async def test_a_follower_sends_consumers_to_the_leader(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        made = await cluster.ask(1, create_topic(TOPIC, forebay_delay_ms=str(HOUR_MS)), CREATE_TOPICS)
        assert made.topics[0].error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        await append(cluster, b"due", now_ms() - 2 * HOUR_MS)
        follower = next(node for node in cluster.nodes if node != cluster.leader(TOPIC))
        answer = only_partition(await cluster.ask(follower, fetch(TOPIC, 0), FETCH))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert values_of((await read(cluster, cluster.leader(TOPIC))).records) == [(0, b"due")]
