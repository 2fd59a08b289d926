"""A follower that is far behind takes in what it lacks in pieces, and its loop goes on between them."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

from forebay.broker.node import Node
from forebay.broker.replication.fetch_size import BATCHES_MAX, FIRST_BYTES, AnswerSize
from forebay.errors import ErrorCode
from support.brokers.local_cluster import eventually, local_cluster
from support.clients.wire_client import CREATE_TOPICS, batch, create_topic

TOPIC = "t"
QUIET = {"replica.lag.time.max.ms": "60000"}


def test_small_batches_make_small_answers() -> None:
    size = AnswerSize()
    assert size.limit(1 << 30) == FIRST_BYTES
    size.taken(FIRST_BYTES, FIRST_BYTES // 70)
    assert size.limit(1 << 30) // 70 <= BATCHES_MAX
    for expected in (2, 4, 8):  # one batch after the other is large; the next may not be
        size.taken(FIRST_BYTES, 2)
        assert size.limit(1 << 30) < expected * 2 * FIRST_BYTES
    assert size.limit(1000) == 1000, "never more than the setting"
    size.taken(0, 0)
    size.taken(10_000_000, 100_000)
    assert size.limit(1 << 30) == 100 * BATCHES_MAX


def fill(broker: Node, count: int) -> None:
    partition = broker.partitions.get(TOPIC, 0)
    for number in range(count):
        partition.append(memoryview(bytearray(batch(b"", timestamp=1))), 1)
        if number % 500 == 0:
            partition.write()
    partition.write()


async def test_the_loop_takes_a_bounded_number_of_batches_at_a_time(tmp_path: Path) -> None:
    count = 3 * BATCHES_MAX
    async with local_cluster(tmp_path, QUIET, brokers=2) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.knows(TOPIC)
        leader, follower = cluster.state(TOPIC).replicas
        metrics = cluster[follower].metrics
        taken = [metrics.replication_batches_in]

        async def watch() -> None:
            while taken[-1] < count:
                await asyncio.sleep(0)
                taken.append(metrics.replication_batches_in)

        with cluster.deaf(TOPIC, follower):
            fill(cluster[leader], count)
        async with asyncio.timeout(60):
            await watch()
        await eventually(lambda: cluster[follower].partitions.held(TOPIC, 0).log.end_offset == count)
        assert max(after - before for before, after in pairwise(taken)) <= BATCHES_MAX
