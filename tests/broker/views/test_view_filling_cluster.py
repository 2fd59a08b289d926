"""Materialized views in a cluster: each message once, whichever brokers lead both sides, or die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay.broker.views import fill_position
from forebay.errors import ErrorCode
from forebay.wire.batch import split
from forebay.wire.messages.describe_fills import DescribeFillsRequest
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.transacting import Producer
from support.clients.view_calls import document, documents
from support.clients.wire_client import (
    CREATE_TOPICS,
    PRODUCE,
    create_topic,
    fetch,
    only_partition,
    produce,
    values_of,
)

SOURCE, VIEW = "orders", "odd-orders"
FETCH = 12
NOT_YET = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)
ODD = "value.id % 2 = 1"


@pytest.fixture(autouse=True)
def _gaps_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill_position, "_GAP_S", 0.0)


async def begin(cluster: LocalCluster, where: str | None = ODD) -> None:
    made = await cluster.ask(1, create_topic(SOURCE), CREATE_TOPICS)
    assert made.topics[0].error_code == ErrorCode.NONE
    await cluster.in_sync(SOURCE)
    query = {"forebay_view_source": SOURCE, "forebay_view_materialize": "true"}
    if where is not None:
        query["forebay_view_where"] = where
    made = await cluster.ask(1, create_topic(VIEW, -1, **query), CREATE_TOPICS)
    assert made.topics[0].error_code == ErrorCode.NONE, made.topics[0].error_message
    await cluster.in_sync(VIEW)


async def append(cluster: LocalCluster, numbers: range) -> None:
    """Producers of these tests have no number, so what is sent again after a doubt may be there twice."""

    async def attempt() -> tuple[int, int]:
        request = produce(SOURCE, documents(numbers), acks=-1)
        answer = only_partition(await cluster.ask(cluster.leader(SOURCE), request, PRODUCE))
        return answer.error_code, answer.error_code

    assert await retried(attempt, *NOT_YET) == ErrorCode.NONE


async def read(cluster: LocalCluster, topic: str) -> list[tuple[int, bytes | None]]:
    """All messages that can be read, however many segments they are in."""
    found: list[tuple[int, bytes | None]] = []
    offset = 0

    async def attempt() -> tuple[Any, int]:
        answer = only_partition(await cluster.ask(cluster.leader(topic), fetch(topic, offset), FETCH))
        return answer, answer.error_code

    while batches := split(memoryview((answer := await retried(attempt, *NOT_YET)).records or b"")):
        found += [each for each in values_of(answer.records) if each[0] >= offset]
        offset = batches[-1][1].next_offset
    return found


def end_of(cluster: LocalCluster, topic: str) -> int:
    return cluster[cluster.leader(topic)].partitions.get(topic, 0).high_watermark


async def filled(cluster: LocalCluster) -> None:
    await eventually(lambda: end_of(cluster, VIEW) >= end_of(cluster, SOURCE) > 0)


async def expected(cluster: LocalCluster) -> list[tuple[int, bytes | None]]:
    return [each for each in await read(cluster, SOURCE) if each[1] is not None and _is_odd(each[1])]


def _is_odd(value: bytes) -> bool:
    return int(value.split(b":")[1].rstrip(b"}")) % 2 == 1


async def test_each_message_comes_once_while_leaders_change(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await begin(cluster)
        for turn in range(6):
            await append(cluster, range(turn * 10, turn * 10 + 5))
            await cluster.in_sync(VIEW)
            await cluster.lead(VIEW, 0, turn % 3 + 1)
            await append(cluster, range(turn * 10 + 5, turn * 10 + 10))
            await cluster.in_sync(SOURCE)
            await cluster.lead(SOURCE, 0, (turn + 1) % 3 + 1)
        await append(cluster, range(60, 62))
        await filled(cluster)
        assert await read(cluster, VIEW) == await expected(cluster)
        assert len(await read(cluster, VIEW)) == 31


async def test_each_message_comes_once_though_brokers_crash(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, {"min.insync.replicas": "1"}) as cluster:
        await begin(cluster)
        for turn, topic in enumerate((VIEW, SOURCE, VIEW)):
            await append(cluster, range(turn * 10, turn * 10 + 10))
            dies = cluster.leader(topic)
            await cluster.crash(dies)
            await cluster.start(dies)
            await eventually(lambda: cluster.leader(VIEW) > 0 and cluster.leader(SOURCE) > 0)
        await append(cluster, range(30, 32))
        await filled(cluster)
        assert await read(cluster, VIEW) == await expected(cluster)


async def test_only_committed_messages_are_copied(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await begin(cluster, where=None)
        producer = Producer(cluster, SOURCE)
        await producer.begin()
        for commit in (False, True, False, True):
            await producer.add(0)
            for number in range(2):
                value = document(number, commit=commit)
                assert await producer.send(0, value) == ErrorCode.NONE
            await producer.end(commit=commit)
        await append(cluster, range(9, 10))
        await filled(cluster)
        values = [value for _, value in await read(cluster, VIEW)]
        assert values == [document(number, commit=True) for number in (0, 1)] * 2 + [document(9)]


async def test_it_waits_for_a_transaction_that_is_open(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await begin(cluster, where=None)
        producer = Producer(cluster, SOURCE)
        await producer.begin()
        await append(cluster, range(1))
        await producer.add(0)
        assert await producer.send(0, document(1)) == ErrorCode.NONE
        await append(cluster, range(2, 3))
        await eventually(lambda: end_of(cluster, VIEW) == 1)
        assert await read(cluster, VIEW) == [(0, document(0))]
        await producer.end()
        await filled(cluster)
        assert [value for _, value in await read(cluster, VIEW)] == [document(at) for at in range(3)]


async def test_it_is_not_filled_from_a_source_that_has_lost_what_was_copied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with local_cluster(tmp_path, {"min.insync.replicas": "1"}) as cluster:
        await begin(cluster, where=None)
        await append(cluster, range(2))
        await filled(cluster)
        first = cluster.leader(SOURCE)
        await cluster.in_sync(VIEW)
        await cluster.lead(VIEW, 0, first)
        others = [node for node in cluster.nodes if node != first]
        for node in others:
            await cluster.kill(node)
            await cluster.bury(node)
        await eventually(lambda: cluster.state(SOURCE).isr == cluster.state(VIEW).isr == (first,))
        await append(cluster, range(2, 4))
        await filled(cluster)
        copied = await read(cluster, VIEW)
        assert len(copied) == 4
        await cluster.kill(first)
        await cluster.bury(first)
        for node in others:
            await cluster.start(node)
        epoch = cluster.state(SOURCE).leader_epoch + 1
        await cluster.change(SOURCE, 0, leader=others[0], isr=(others[0],), leader_epoch=epoch)
        await append(cluster, range(20, 26))
        await cluster.start(first)
        await eventually(lambda: "a materialized view is not filled" in caplog.text)
        await eventually(lambda: end_of(cluster, VIEW) == 4)
        assert await read(cluster, VIEW) == copied, "other messages have the offsets of those that were lost"
        leader = cluster.leader(VIEW)
        (found,) = (await cluster.ask(leader, DescribeFillsRequest(topic=VIEW), 0)).partitions
        assert (found.partition_index, found.position, found.reason) == (0, 4, "source_lost_messages")
        assert "create it again" in found.problem
        metric = 'forebay_view_fills_stopped{reason="source_lost_messages"}'
        assert f"{metric} 1\n" in cluster[leader].exporter.page()
        other = next(node for node in cluster.nodes if node != leader)
        assert f"{metric} 0\n" in cluster[other].exporter.page()
        assert (await cluster.ask(other, DescribeFillsRequest(topic=VIEW), 0)).partitions == []
