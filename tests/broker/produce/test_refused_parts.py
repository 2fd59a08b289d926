"""What comes behind a batch that is refused while the rest of its request still waits for an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from forebay.errors import ErrorCode
from forebay.wire.messages.produce import ProduceRequest
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.resizing import SETTINGS, fold, known, lead_apart, need_replicas, numbered, send, values
from support.clients.transacting import make_topic
from support.clients.wire_client import batch, create_topic, produce

LEADER = 3
SLOW = "slow"
CREATE_TOPICS, PRODUCE = 7, 9
PATIENT = SETTINGS | {"replica.lag.time.max.ms": "3600000"}


async def make_slow(cluster: LocalCluster) -> None:
    """A topic with one partition that the same broker leads."""
    await cluster.ask(1, create_topic(SLOW), CREATE_TOPICS)
    await cluster.knows(SLOW)
    await cluster.in_sync(SLOW)
    await cluster.lead(SLOW, 0, LEADER)
    await eventually(lambda: cluster[LEADER].partitions.get(SLOW, 0).is_followed)


def posted(cluster: LocalCluster, *requests: ProduceRequest) -> asyncio.Task[list[int]]:
    """The error codes of one request with what several of them have."""
    topics = [topic for request in requests for topic in request.topic_data]
    whole = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics)

    async def codes() -> list[int]:
        answer: Any = await cluster.ask(LEADER, whole, PRODUCE)
        return [each.error_code for topic in answer.responses for each in topic.partition_responses]

    return asyncio.create_task(codes())


async def test_one_that_another_broker_has_refused(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, PATIENT) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        await fold(cluster, topic, 2)
        await known(cluster, topic, 2, 1, 2, 3)
        await make_slow(cluster)

        def for_3(sequence: int) -> ProduceRequest:
            return produce(topic, numbered(sequence, of=3), partition=3)

        await send(cluster, topic, 3, batch(b"it is passed on"))
        await need_replicas(cluster, topic, 1, "4")
        failures = cluster[LEADER].metrics.produce_failures
        with cluster.deaf(SLOW, 1, 2):
            first = posted(cluster, for_3(0), produce(SLOW, batch(b"waits")))
            await eventually(lambda: cluster[LEADER].metrics.produce_failures > failures)
            await cluster.lead(topic, 1, 1)  # a connection that has heard of no refusal leads there
            await need_replicas(cluster, topic, 1, "2")
            assert not first.done()
            second = posted(cluster, for_3(1))
            await asyncio.sleep(0.1)
        assert await first == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]
        assert await second == [ErrorCode.NOT_ENOUGH_REPLICAS]
        for sequence in (0, 1):
            assert (await send(cluster, topic, 3, numbered(sequence, of=3)))[0] == ErrorCode.NONE
        assert (await values(cluster, topic, 1))[1:] == [b"3:0", b"3:1"]


async def test_one_that_was_taken_in_a_term_that_has_ended(tmp_path: Path) -> None:
    """It is gone, and its leader leads again without it."""
    async with local_cluster(tmp_path, PATIENT) as cluster:
        topic = await make_topic(cluster, 1)
        await cluster.in_sync(topic)
        await cluster.lead(topic, 0, LEADER)
        await make_slow(cluster)
        log = cluster[LEADER].partitions.get(topic, 0).log
        with cluster.deaf(SLOW, 1, 2):
            with cluster.deaf(topic, 1, 2):
                first = posted(cluster, produce(topic, numbered(0, of=0)), produce(SLOW, batch(b"waits")))
                await eventually(lambda: log.end_offset == 1)
                await cluster.lead(topic, 0, 1)
            await eventually(lambda: cluster[LEADER].partitions.held(topic, 0).log.end_offset == 0)
            await cluster.in_sync(topic)
            await cluster.lead(topic, 0, LEADER)
            assert not first.done()
            second = posted(cluster, produce(topic, numbered(1, of=0)))
            await asyncio.sleep(0.1)
        assert await first == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
        assert await second == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        for sequence in (0, 1):
            assert (await send(cluster, topic, 0, numbered(sequence, of=0)))[0] == ErrorCode.NONE
        assert await values(cluster, topic, 0) == [b"0:0", b"0:1"]


async def test_one_that_a_leader_was_not_sure_to_refuse(tmp_path: Path) -> None:
    """The client is told to send it again, and so is what comes behind it."""
    async with local_cluster(tmp_path, PATIENT) as cluster:
        topic = await make_topic(cluster, 1)
        await cluster.in_sync(topic)
        await cluster.lead(topic, 0, LEADER)
        assert (await send(cluster, topic, 0, numbered(0, of=0)))[0] == ErrorCode.NONE
        with cluster.deaf(topic, 1, 2):
            assert await posted(cluster, produce(topic, numbered(2, of=0))) == [
                ErrorCode.NOT_LEADER_OR_FOLLOWER
            ]
        assert await posted(cluster, produce(topic, numbered(3, of=0))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
