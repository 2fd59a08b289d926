"""What a new leader does not tell before it has heard how far the leader before has committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from forebay.broker.fetch.end_offsets import EndOffsets
from forebay.broker.node import Node
from forebay.broker.partition.partition import Partition
from forebay.broker.shares.persistence.start_offsets import StartOffsets
from forebay.config.offset_reset import OffsetReset
from forebay.errors import ErrorCode, KafkaError
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import (
    CREATE_TOPICS,
    EARLIEST,
    LATEST,
    PRODUCE,
    batch,
    create_topic,
    list_offsets,
    only_partition,
    produce,
)

TOPIC = "t"
END_OFFSET = 4
KNOWN = 1


class Uncertain(NamedTuple):
    cluster: LocalCluster
    node: Node
    partition: Partition
    others: list[int]

    async def become_certain(self) -> None:
        for other in self.others:
            await self.cluster.start(other, at_once=True)


@pytest.fixture
async def uncertain(tmp_path: Path) -> AsyncIterator[Uncertain]:
    async with local_cluster(tmp_path) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        request = produce(TOPIC, batch(b"a", b"b", b"c", b"d"), acks=-1)
        answer = only_partition(await cluster.ask(cluster.leader(TOPIC), request, PRODUCE))
        assert answer.error_code == ErrorCode.NONE
        leader, heir, third = cluster.state(TOPIC).replicas
        partition = cluster[heir].partitions.held(TOPIC, 0)
        with cluster.deaf(TOPIC, heir):
            for node in (leader, third):
                await cluster.kill(node)  # nobody knows
            partition.high_watermark = KNOWN
            await cluster.lead(TOPIC, 0, heir)
            await eventually(lambda: partition.is_leader)
        yield Uncertain(cluster, cluster[heir], partition, [leader, third])


async def test_it_tells_no_other_part_of_the_broker_where_its_log_ends(uncertain: Uncertain) -> None:
    node = uncertain.node
    ends = EndOffsets(node.metadata, node.partitions, node.peers, node.local.delays, node_id=node.node_id)
    topic_id = uncertain.partition.topic_id
    with pytest.raises(KafkaError) as refusal:
        await ends.of(topic_id, 0)
    assert refusal.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
    await uncertain.become_certain()
    await eventually(lambda: uncertain.partition.high_watermark == END_OFFSET)
    assert await ends.of(topic_id, 0) == END_OFFSET


@pytest.mark.parametrize("reset", ["latest", "by_duration:PT0S"])
async def test_a_share_group_begins_where_its_log_ends_when_that_is_known(
    uncertain: Uncertain, reset: str
) -> None:
    node = uncertain.node
    starts = StartOffsets(node.offsets_by_time, node.remote.offsets, node.local.delays, node.time)
    settings = replace(node.groups.settings_of("g").share, offset_reset=OffsetReset.parse(reset))
    chosen = asyncio.create_task(starts.resolve(uncertain.partition, settings, lambda: True))
    await asyncio.wait([chosen], timeout=0.1)
    assert not chosen.done()
    await uncertain.become_certain()
    assert await chosen == END_OFFSET


async def test_a_share_group_that_begins_with_the_first_message_need_not_wait(uncertain: Uncertain) -> None:
    node = uncertain.node
    starts = StartOffsets(node.offsets_by_time, node.remote.offsets, node.local.delays, node.time)
    settings = replace(node.groups.settings_of("g").share, offset_reset=OffsetReset.parse("earliest"))
    assert await starts.resolve(uncertain.partition, settings, lambda: True) == 0


async def test_who_is_not_asked_for_a_beginning_any_more_does_not_wait(uncertain: Uncertain) -> None:
    node = uncertain.node
    starts = StartOffsets(node.offsets_by_time, node.remote.offsets, node.local.delays, node.time)
    settings = replace(node.groups.settings_of("g").share, offset_reset=OffsetReset.parse("latest"))
    with pytest.raises(KafkaError):
        await starts.resolve(uncertain.partition, settings, lambda: False)


@pytest.mark.parametrize(
    ("version", "refusal"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
async def test_clients_that_ask_for_an_end_that_is_not_known_are_told_so_at_once(
    uncertain: Uncertain, version: int, refusal: ErrorCode
) -> None:
    async def ask(timestamp: int) -> tuple[int, int]:
        request = list_offsets(TOPIC, timestamp)
        answer = await uncertain.cluster.ask(uncertain.node.node_id, request, version)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    assert await ask(LATEST) == (refusal, -1)
    assert await ask(EARLIEST) == (ErrorCode.NONE, 0)
    assert await ask(0) == (ErrorCode.NONE, 0), "it lies below what is known to be committed"
    await uncertain.become_certain()
    await eventually(lambda: uncertain.partition.high_watermark == END_OFFSET)
    assert await ask(LATEST) == (ErrorCode.NONE, END_OFFSET)
