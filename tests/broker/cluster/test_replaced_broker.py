"""A broker that joins again after another process was the same node, with other data.

A pod that was cut off, for example, while its successor got an empty disk, joined, caught up, and ended. What
the store says of the node is then about the successor's log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.coordination.store import KeyValue, Put, StoreError
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.stored.image_text import encode_broker
from forebay.errors import ErrorCode
from forebay.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import batch, only_partition, produce

PRODUCE, CREATE_TOPICS = 9, 7
TOPIC, NODE, OTHER = "t", 2, 1


async def with_one_replica(cluster: LocalCluster) -> None:
    """A topic with an acknowledged message, on the broker alone."""
    place = CreatableReplicaAssignment(partition_index=0, broker_ids=[NODE])
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[place])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    (made,) = (await cluster.ask(NODE, request, CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.in_sync(TOPIC)
    wrote = await cluster.ask(NODE, produce(TOPIC, batch(b"a"), acks=-1), PRODUCE)
    assert only_partition(wrote).error_code == ErrorCode.NONE


async def joined_again(cluster: LocalCluster, meanwhile: Callable[[str], list[Put]]) -> None:
    """The broker loses its registration, and joins again when `meanwhile` is written at its node's key."""
    lease, epoch = cluster[NODE].lease, cluster[NODE].lease.epoch
    key = f"{cluster[OTHER].metadata.keys.node_ids}{NODE}"
    with cluster.unwritable(NODE) as refused:
        await cluster.end_registration(NODE)
        await refused.wait()
        await cluster[OTHER].store.txn(puts=meanwhile(key))
    await eventually(lambda: lease.valid() and lease.epoch > epoch)
    await cluster.settle()


@pytest.mark.parametrize("written", [[], [b"no directory"]], ids=["nothing", "by hand"])
async def test_it_leads_again_if_nobody_else_was_the_node(tmp_path: Path, written: list[bytes]) -> None:
    async with local_cluster(tmp_path, brokers=2) as cluster:
        await with_one_replica(cluster)
        await joined_again(cluster, lambda key: [Put(key=key, value=value) for value in written])
        assert cluster.leader(TOPIC) == NODE


@pytest.mark.parametrize("is_copied", [False, True], ids=["new directory", "copied directory"])
async def test_it_leads_nothing_by_what_is_true_of_the_other(tmp_path: Path, is_copied: bool) -> None:
    async with local_cluster(tmp_path, brokers=2) as cluster:
        await with_one_replica(cluster)
        directory = cluster[NODE].data.directory_id if is_copied else "0" * 32
        await joined_again(cluster, lambda key: [Put(key=key, value=directory.encode())])
        state = cluster.state(TOPIC)
        assert (state.leader, state.isr) == (NO_LEADER, ())


async def test_two_that_start_as_one_node_do_not_both_join(tmp_path: Path) -> None:
    """The other has claimed the id after this one, and is about to register."""
    async with local_cluster(tmp_path, brokers=2) as cluster:
        broker = cluster[NODE]
        key, register = f"{broker.metadata.keys.node_ids}{NODE}", broker.membership._register
        refusals: list[str] = []

        async def claimed_meanwhile() -> None:
            broker.membership._register = register  # type: ignore[method-assign]
            await cluster[OTHER].store.txn(puts=[Put(key=key, value=b"0" * 32)])
            try:
                await register()
            except StoreError as error:
                refusals.append(str(error))
                raise

        broker.membership._register = claimed_meanwhile  # type: ignore[method-assign]
        await cluster.end_registration(NODE)
        await eventually(lambda: refusals)
        await eventually(lambda: broker.lease.valid() and NODE in cluster[OTHER].image.brokers)
        assert "another broker starts as node 2" in refusals[0]


async def test_it_leads_nothing_by_what_is_true_of_one_that_joined_while_it_left_the_sets(
    tmp_path: Path,
) -> None:
    """The other had claimed the id before, and registers before this one claims it."""
    async with local_cluster(tmp_path, brokers=2) as cluster:
        await with_one_replica(cluster)
        broker, store = cluster[NODE], cluster[OTHER].store
        membership, key = broker.membership, broker.metadata.keys.broker(NODE)
        claim, lease, tried = membership._claim_node, await store.lease(100), asyncio.Event()

        async def claim_late(before: KeyValue | None) -> None:
            membership._claim_node = claim  # type: ignore[method-assign]
            assert membership._registration is not None
            other = replace(membership._registration, directory="0" * 32, process="1" * 16)
            await store.txn(puts=[Put(key=key, value=encode_broker(other), lease=lease.id)])
            await cluster.change(TOPIC, 0, leader=NODE, isr=(NODE,))
            try:
                await claim(before)
            finally:
                tried.set()

        membership._claim_node = claim_late  # type: ignore[method-assign]
        again = asyncio.create_task(joined_again(cluster, lambda at: [Put(key=at, value=b"0" * 32)]))
        await tried.wait()
        assert cluster.leader(TOPIC) == NODE
        await lease.revoke()
        await again
        state = cluster.state(TOPIC)
        assert (state.leader, state.isr) == (NO_LEADER, ())
