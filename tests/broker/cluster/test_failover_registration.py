"""What brokers say of each other, and in whose name, while registrations come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.broker.cluster import membership
from forebay.coordination.store import Delete
from forebay.core.cluster.image import ClusterImage
from forebay.errors import ConfigError, ErrorCode
from forebay.wire.messages.metadata import MetadataRequest
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import (
    batch,
    create_topic,
    fetch,
    list_offsets,
    only_partition,
    produce,
    values_of,
)

PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS, METADATA = 9, 12, 7, 7, 12
ACKS_ALL, LATEST = -1, -1
TOPIC = "t"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path) as running:
        (made,) = (await running.ask(1, create_topic(TOPIC), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await running.in_sync(TOPIC)
        yield running


async def test_a_broker_names_itself_though_nobody_is_registered(cluster: LocalCluster) -> None:
    """So it is for a moment when etcd comes back after all leases ended. Clients need somebody to ask."""
    broker = cluster[2]
    keys = broker.metadata.keys
    # None of them can register again yet.
    with cluster.uninformed(1), cluster.uninformed(3), cluster.unwritable(2):
        await cluster[1].store.txn(deletes=[Delete(key=keys.broker(node)) for node in cluster.nodes])
        await eventually(lambda: not broker.image.brokers)
        answer = await cluster.ask(2, MetadataRequest(topics=[]), METADATA)
    assert [found.node_id for found in answer.brokers] == [2]


async def test_a_broker_that_loses_its_lease_before_it_sees_its_registration_registers_again(
    cluster: LocalCluster,
) -> None:
    """It would wait for ever if the store was put back: no image comes to that revision then."""
    lease = cluster[2].lease
    with cluster.uninformed(2):
        for _ in range(2):
            epoch, held = lease.epoch, lease.current
            assert held is not None
            await held.revoke()
            await eventually(lambda epoch=epoch: lease.epoch > epoch)  # type: ignore[misc]
    await eventually(lease.valid)


async def test_a_broker_whose_registration_ends_as_soon_as_it_is_seen_registers_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict may come before the broker goes on that has waited for its image to show the registration."""
    broker = cluster[2]
    metadata, wait_for = broker.metadata, broker.metadata.wait_for
    ended: list[int] = []

    async def late(revision: int) -> ClusterImage:
        image = await wait_for(revision)
        if revision == broker.lease.epoch and not ended:
            ended.append(revision)
            await cluster.end_registration(2)
            await eventually(lambda: 2 not in metadata.image.brokers)
        return image

    monkeypatch.setattr(metadata, "wait_for", late)
    await cluster.end_registration(2)
    await eventually(lambda: ended and 2 in broker.image.brokers and broker.image.brokers[2].epoch > ended[0])
    await eventually(broker.lease.valid)
    assert broker.image.brokers[2].epoch == broker.lease.epoch


async def test_nobody_speaks_for_a_live_broker(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process of a node, on another disk, waits for the lease of the first and touches nothing."""
    before = cluster.state(TOPIC)
    # The lease never ends here, so the second need not wait for as long as it takes.
    monkeypatch.setattr(membership, "_EXPIRY_MARGIN_S", -7.0)
    with pytest.raises(ExceptionGroup) as caught:
        await cluster.start(1, "another-disk")
    (refusal,) = caught.value.exceptions
    assert isinstance(refusal, ConfigError)
    assert "give each broker its own node.id" in str(refusal)
    assert cluster.state(TOPIC) == before
    assert before.isr and 1 in before.isr


async def test_a_broker_with_a_new_lease_serves_nobody_before_it_knows_who_was_elected(
    cluster: LocalCluster,
) -> None:
    """It would lead on as of the old lease, and show consumers an end below what they have read."""
    old, *others = cluster.state(TOPIC).replicas
    lease, epoch = cluster[old].lease, cluster[old].lease.epoch
    assert lease.current is not None
    with cluster.uninformed(old):
        await cluster.change(TOPIC, 0, leader=others[0], leader_epoch=1, isr=tuple(others))
        wrote = await cluster.ask(others[0], produce(TOPIC, batch(b"a"), acks=ACKS_ALL), PRODUCE)
        assert only_partition(wrote).error_code == ErrorCode.NONE
        await lease.current.revoke()
        await eventually(lambda: lease.epoch > epoch)  # it is registered anew
        fetched = await cluster.ask(old, fetch(TOPIC, 1), FETCH)
        asked = await cluster.ask(old, list_offsets(TOPIC, LATEST), LIST_OFFSETS)
        late = await cluster.ask(old, produce(TOPIC, batch(b"b"), acks=1), PRODUCE)
    assert only_partition(fetched).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert asked.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only_partition(late).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await eventually(lease.valid)
    await cluster.in_sync(TOPIC)
    shown = only_partition(await cluster.ask(others[0], fetch(TOPIC), FETCH))
    assert values_of(shown.records) == [(0, b"a")]


async def test_a_leader_that_does_not_know_yet_that_it_is_replaced_commits_nothing(
    cluster: LocalCluster,
) -> None:
    """Its lease holds. Who has heard of the new leader is sent away, who has not is shown nothing new."""
    old, *others = cluster.state(TOPIC).replicas
    with cluster.uninformed(old):
        await cluster.change(TOPIC, 0, leader=others[0], leader_epoch=1, isr=tuple(others))
        request = produce(TOPIC, batch(b"nowhere"), acks=ACKS_ALL)
        request.timeout_ms = 100
        late = only_partition(await cluster.ask(old, request, PRODUCE))
        wrote = await cluster.ask(others[0], produce(TOPIC, batch(b"a"), acks=ACKS_ALL), PRODUCE)
        informed = await cluster.ask(old, list_offsets(TOPIC, LATEST, leader_epoch=1), LIST_OFFSETS)
        others_see = await cluster.ask(old, list_offsets(TOPIC, LATEST), LIST_OFFSETS)
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert only_partition(wrote).error_code == ErrorCode.NONE
    assert informed.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert others_see.topics[0].partitions[0].offset == 0, "the end as it was"
    await cluster.in_sync(TOPIC)
    shown = only_partition(await cluster.ask(others[0], fetch(TOPIC), FETCH))
    assert values_of(shown.records) == [(0, b"a")]


async def test_a_broker_that_stops_with_a_late_watch_knows_what_it_has_handed_over(
    cluster: LocalCluster,
) -> None:
    """It would go on as the leader, and show clients an end of the log that is not the new leader's."""
    leader = cluster.leader(TOPIC)
    broker = cluster[leader]

    def led_by() -> int:
        state = broker.image.partition(TOPIC, 0)
        assert state is not None
        return state.leader

    with cluster.uninformed(leader):
        stopping = asyncio.create_task(cluster.stop(leader))
        await eventually(lambda: led_by() != leader)
        await stopping
