"""Brokers of a cluster with many partitions join before they have opened their logs."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.partition.opening.partition_opener import PartitionOpener
from forebay.coordination.store import Put
from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, create_topic, only_partition, produce

PRODUCE, CREATE_TOPICS = 9, 7
TOPIC = "t"
LATER = 19
"""A partition of many that is opened after the others."""
BEHIND = {"forebay.open.before.ready.max": "0", "replica.lag.time.max.ms": "60000"}


async def create(cluster: LocalCluster, *, replicas: int = 3, partitions: int = 1) -> None:
    request = create_topic(TOPIC, partitions)
    request.topics[0].replication_factor = replicas
    (made,) = (await cluster.ask(cluster.nodes[0], request, CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)


async def put(cluster: LocalCluster, node: int, value: bytes, index: int = 0) -> Any:
    request = produce(TOPIC, batch(value), acks=-1, partition=index)
    return only_partition(await cluster.ask(node, request, PRODUCE))


async def stop_all(cluster: LocalCluster, last: int) -> None:
    for node in cluster.nodes:
        if node != last:
            await cluster.stop(node)
    await cluster.stop(last)


def end_offsets(cluster: LocalCluster) -> list[int]:
    return [cluster[node].partitions.held(TOPIC, 0).log.end_offset for node in cluster.nodes]


def hold_opening(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Partitions of the topic are opened when the event is set."""
    go_on, really_open = threading.Event(), PartitionOpener.open

    def open_(self: PartitionOpener, image: Any, topic: Any, state: Any) -> Any:
        if topic.name == TOPIC:
            go_on.wait()
        return really_open(self, image, topic, state)

    monkeypatch.setattr(PartitionOpener, "open", open_)
    return go_on


@pytest.mark.parametrize("remove", [False, True])
async def test_one_whose_log_lost_messages_does_not_lead_without_them(tmp_path: Path, remove: bool) -> None:
    async with local_cluster(tmp_path, BEHIND) as cluster:
        await create(cluster)
        last, *others = cluster.state(TOPIC).replicas
        for number in range(10):
            assert (await put(cluster, cluster.leader(TOPIC), b"%d" % number)).error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        directory = Path(cluster[last].partitions.held(TOPIC, 0).log.directory)
        await stop_all(cluster, last)
        if remove:
            shutil.rmtree(directory)
        else:
            (directory / "00000000000000000000.log").write_bytes(b"")
        await cluster.start(last)
        await eventually(lambda: not cluster[last].assignment.later.has_unchecked)
        await eventually(lambda: last not in cluster.state(TOPIC).isr)
        for node in others:
            await cluster.start(node)
        await eventually(lambda: cluster.leader(TOPIC) in others)
        await eventually(lambda: not any(cluster[node].assignment.later.has_unchecked for node in others))
        assert [cluster[node].partitions.held(TOPIC, 0).log.end_offset for node in others] == [10, 10]


async def test_one_whose_turn_comes_while_its_state_cannot_be_read_does_not_lead_without_lost_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_cluster(tmp_path, BEHIND) as cluster:
        await create(cluster, partitions=20)  # more than are opened at once
        last, *others = cluster.state(TOPIC, LATER).replicas
        for number in range(10):
            sent = await put(cluster, cluster.leader(TOPIC, LATER), b"%d" % number, LATER)
            assert sent.error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC, LATER)
        directory = Path(cluster[last].partitions.held(TOPIC, LATER).log.directory)
        await stop_all(cluster, last)
        (directory / "00000000000000000000.log").write_bytes(b"")
        go_on = hold_opening(monkeypatch)
        try:
            await cluster.start(last)
            await eventually(lambda: cluster.leader(TOPIC, LATER) == last)
            metadata, store = cluster[last].metadata, cluster.session(last)
            key = metadata.keys.state(metadata.image.topics[TOPIC].topic_id, LATER)
            item = await store.get(key)
            assert item is not None
            await store.txn(puts=[Put(key=key, value=b"?")])
            await eventually(lambda: cluster.state(TOPIC, LATER).unreadable)
        finally:
            go_on.set()
        await eventually(lambda: not cluster[last].assignment.later.has_unchecked)
        await store.txn(puts=[Put(key=key, value=item.value)])
        await eventually(lambda: last not in cluster.state(TOPIC, LATER).isr)
        for node in others:
            await cluster.start(node)
        await eventually(lambda: cluster.leader(TOPIC, LATER) in others)


async def test_one_that_could_be_elected_alone_knows_before_it_joins_that_its_log_lost_messages(
    tmp_path: Path,
) -> None:
    """With min.insync.replicas=1 its election would let the others leave, who have the messages."""
    async with local_cluster(tmp_path, {**BEHIND, "min.insync.replicas": "1"}) as cluster:
        await create(cluster)
        first, *others = cluster.state(TOPIC).replicas
        for number in range(10):
            assert (await put(cluster, cluster.leader(TOPIC), b"%d" % number)).error_code == ErrorCode.NONE
        await cluster.in_sync(TOPIC)
        directory = Path(cluster[first].partitions.held(TOPIC, 0).log.directory)
        cluster[first].partitions.held(TOPIC, 0).log.files.settle()
        cluster[first].assignment.checkpoint()
        await cluster.kill_all()
        (directory / "00000000000000000000.log").write_bytes(b"")
        await cluster.start(first)
        assert set(cluster.state(TOPIC).isr) == set(others)
        for node in others:
            await cluster.start(node)
        await eventually(lambda: cluster.leader(TOPIC) in others)
        answer = await put(cluster, cluster.leader(TOPIC), b"new")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 10)


async def test_one_that_lacks_nothing_stays_in_sync_and_leads_again(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, BEHIND) as cluster:
        await create(cluster, partitions=5)
        last = cluster.leader(TOPIC)
        await put(cluster, last, b"kept")
        await cluster.in_sync(TOPIC)
        await stop_all(cluster, last)
        await cluster.start(last)
        assert (await put(cluster, last, b"new")).error_code in (
            ErrorCode.NONE,
            ErrorCode.NOT_ENOUGH_REPLICAS,
        )
        assert last in cluster.state(TOPIC).isr
        for node in {1, 2, 3} - {last}:
            await cluster.start(node)
        await cluster.in_sync(TOPIC)
        assert len(set(end_offsets(cluster))) == 1


async def test_a_request_for_what_is_not_open_yet_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_cluster(tmp_path, BEHIND) as cluster:
        await create(cluster, replicas=1)
        leader = cluster.leader(TOPIC)
        await put(cluster, leader, b"kept")
        await cluster.stop(leader)
        go_on = hold_opening(monkeypatch)
        try:
            await cluster.start(leader)
            await eventually(lambda: cluster.leader(TOPIC) == leader)
            asked = asyncio.create_task(put(cluster, leader, b"late"))
            await eventually(lambda: len(cluster[leader].local.opening_waits) == 1)
            assert not asked.done()
        finally:
            go_on.set()
        answer = await asked
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)
