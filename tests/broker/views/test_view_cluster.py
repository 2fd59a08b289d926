"""Views in a cluster: known to every broker, read from whichever leads the source."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forebay.coordination.store import Put
from forebay.core.cluster.stored.image_text import encode_view
from forebay.errors import ErrorCode
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.view_calls import counts_of, document, documents
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
FETCH, METADATA = 11, 12
NOT_YET = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def append(cluster: LocalCluster, numbers: range) -> None:
    async def attempt() -> tuple[int, int]:
        request = produce(SOURCE, documents(numbers), acks=-1)
        answer = only_partition(await cluster.ask(cluster.leader(SOURCE), request, PRODUCE))
        return answer.error_code, answer.error_code

    assert await retried(attempt, *NOT_YET) == ErrorCode.NONE


async def read(cluster: LocalCluster, node: int, offset: int = 0, *, wait_ms: int = 200) -> Any:
    async def attempt() -> tuple[Any, int]:
        answer = only_partition(await cluster.ask(node, fetch(VIEW, offset, max_wait_ms=wait_ms), FETCH))
        return answer, answer.error_code

    return await retried(attempt, *NOT_YET)


async def begin(cluster: LocalCluster) -> None:
    made = await cluster.ask(1, create_topic(SOURCE), CREATE_TOPICS)
    assert made.topics[0].error_code == ErrorCode.NONE
    await cluster.in_sync(SOURCE)
    configs = {"forebay_view_source": SOURCE, "forebay_view_where": "value.id % 2 = 1"}
    made = await cluster.ask(1, create_topic(VIEW, -1, **configs), CREATE_TOPICS)
    assert made.topics[0].error_code == ErrorCode.NONE, made.topics[0].error_message


def knows(cluster: LocalCluster, node: int) -> bool:
    return VIEW in cluster[node].image.views


async def test_every_broker_knows_a_view_and_names_the_leader_of_its_source(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await begin(cluster)
        for node in cluster.nodes:
            await eventually(partial(knows, cluster, node))
            request = MetadataRequest(topics=[MetadataRequestTopic(name=VIEW)])
            (topic,) = (await cluster.ask(node, request, METADATA)).topics
            assert topic.error_code == ErrorCode.NONE
            assert topic.partitions[0].leader_id == cluster.leader(SOURCE)


async def test_a_view_is_read_from_the_next_leader(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        await begin(cluster)
        await append(cluster, range(6))
        first = cluster.leader(SOURCE)
        expected = [(at, document(at)) for at in (1, 3, 5)]
        assert values_of((await read(cluster, first)).records) == expected
        second = next(node for node in cluster.nodes if node != first)
        elsewhere = only_partition(await cluster.ask(second, fetch(VIEW), FETCH))
        assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "only the leader filters"
        await eventually(lambda: cluster[second].partitions.held(SOURCE, 0).log.end_offset == 6)
        await cluster.lead(SOURCE, 0, second)
        await append(cluster, range(6, 8))
        assert values_of((await read(cluster, second)).records) == [*expected, (7, document(7))]


async def test_a_reader_of_a_view_that_comes_before_the_news_of_an_election_waits_for_it(
    tmp_path: Path,
) -> None:
    """The leader before has sent it to one that has not heard of its election."""
    async with local_cluster(tmp_path) as cluster:
        await begin(cluster)
        await append(cluster, range(2))
        heir = next(node for node in cluster.nodes if node != cluster.leader(SOURCE))
        await eventually(partial(knows, cluster, heir))
        await eventually(lambda: cluster[heir].partitions.held(SOURCE, 0).high_watermark == 2)
        with cluster.uninformed(heir):
            await cluster.lead(SOURCE, 0, heir)
            request = fetch(VIEW, leader_epoch=cluster.state(SOURCE).leader_epoch)
            asked = asyncio.create_task(cluster.ask(heir, request, FETCH))
            await asyncio.wait([asked], timeout=0.05)
        answer = only_partition(await asked)
        assert answer.error_code == ErrorCode.NONE
        assert values_of(answer.records) == [(1, document(1))]


async def test_a_reader_of_a_view_that_knows_of_an_election_that_never_was_is_refused(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        await begin(cluster)
        answer = only_partition(await cluster.ask(1, fetch(VIEW, leader_epoch=7), FETCH))
        assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_view_of_a_later_version_is_not_read_and_is_looked_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with local_cluster(tmp_path, brokers=1) as cluster:
        await begin(cluster)
        await append(cluster, range(2))
        node = cluster[1]
        key = node.metadata.keys.view(VIEW)
        stored = json.loads(encode_view(node.image.views[VIEW])) | {"format": 99, "id": "d" * 21 + "A"}
        await node.store.txn([], [Put(key=key, value=json.dumps(stored).encode())], [])
        await eventually(lambda: node.image.views[VIEW].format == 99)
        for _ in range(2):
            answer = only_partition(await cluster.ask(1, fetch(VIEW), FETCH))
            assert (answer.error_code, answer.records) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
        assert caplog.text.count("a view cannot be read here") == 1


async def test_what_is_not_committed_is_not_in_the_view(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, {"min.insync.replicas": "2"}) as cluster:
        await begin(cluster)
        await append(cluster, range(2))
        leader = cluster.leader(SOURCE)
        followers = [node for node in cluster.nodes if node != leader]
        assert values_of((await read(cluster, leader)).records) == [(1, document(1))]
        with cluster.deaf(SOURCE, *followers):
            request = produce(SOURCE, documents(range(1, 2)), acks=1)
            assert only_partition(await cluster.ask(leader, request, PRODUCE)).error_code == ErrorCode.NONE
            answer = await read(cluster, leader, 2)
            assert (counts_of(answer.records), answer.high_watermark) == ([], 2)
        await eventually(lambda: cluster[leader].partitions.get(SOURCE, 0).high_watermark == 3)
        assert values_of((await read(cluster, leader, 2)).records) == [(2, document(1))]
