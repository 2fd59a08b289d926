"""Producers that give the numbers of an aborted transaction to the next one, as librdkafka does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, local_cluster, retried
from support.clients.transacting import Producer, make_topic, read_committed, states
from support.clients.wire_client import LATEST, list_offsets


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(tmp_path) as running:
        yield running


async def transacting(cluster: LocalCluster, *, adds_itself: bool) -> Producer:
    """A producer of transaction version 1: its epoch stays the same from one transaction to the next."""
    producer = Producer(cluster, await make_topic(cluster), adds_itself=adds_itself)
    await producer.begin()
    return producer


async def send(producer: Producer, value: bytes) -> int:
    if not producer.adds_itself:
        await producer.add(0)
    return await producer.send(0, value)


async def abort(producer: Producer) -> None:
    """Abort, and wait for the markers, as AddPartitionsToTxn of the next transaction would."""
    adds_itself, producer.adds_itself = producer.adds_itself, False
    await producer.end(commit=False)
    producer.adds_itself = adds_itself

    async def attempt() -> tuple[None, int]:
        done = await states(producer.cluster, producer.home) == ["CompleteAbort"]
        return None, ErrorCode.NONE if done else ErrorCode.CONCURRENT_TRANSACTIONS

    await retried(attempt, ErrorCode.CONCURRENT_TRANSACTIONS)


async def move_leader(cluster: LocalCluster, topic: str) -> None:
    leader = cluster.leader(topic, 0)
    await cluster.lead(topic, 0, next(node for node in cluster.state(topic).replicas if node != leader))


async def end_offset(cluster: LocalCluster, topic: str) -> int:
    response = await cluster.ask(cluster.leader(topic, 0), list_offsets(topic, LATEST), 7)
    offset: int = response.topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("moves", [False, True], ids=["same leader", "new leader"])
@pytest.mark.parametrize("adds_itself", [False, True], ids=["added by client", "added by Produce"])
async def test_numbers_used_again_after_an_abort_are_refused(
    cluster: LocalCluster, adds_itself: bool, moves: bool
) -> None:
    producer = await transacting(cluster, adds_itself=adds_itself)
    assert await send(producer, b"aborted") == ErrorCode.NONE
    await abort(producer)
    if moves:
        await move_leader(cluster, producer.topic)
    producer.sequences.clear()
    assert await send(producer, b"never") == ErrorCode.UNKNOWN_PRODUCER_ID
    await abort_if_begun(producer)
    epoch = producer.producer_epoch
    await producer.begin()
    assert producer.producer_epoch > epoch
    assert await send(producer, b"kept") == ErrorCode.NONE
    await producer.end()
    assert await read_committed(cluster, producer.topic, 0) == [b"kept"]


async def abort_if_begun(producer: Producer) -> None:
    if not producer.adds_itself:
        await abort(producer)


@pytest.mark.parametrize("moves", [False, True], ids=["same leader", "new leader"])
async def test_a_retry_within_its_transaction_is_stored_once(cluster: LocalCluster, moves: bool) -> None:
    producer = await transacting(cluster, adds_itself=False)
    assert await send(producer, b"once") == ErrorCode.NONE
    if moves:
        await move_leader(cluster, producer.topic)
    producer.sequences.clear()
    assert await producer.send(0, b"once") == ErrorCode.NONE
    assert await end_offset(cluster, producer.topic) == 1
    await producer.end()
    assert await read_committed(cluster, producer.topic, 0) == [b"once"]


async def test_a_refused_batch_does_not_begin_a_transaction(cluster: LocalCluster) -> None:
    """Produce 12 adds its partition to the transaction, but not for a batch that cannot be appended."""
    producer = await transacting(cluster, adds_itself=True)
    assert await send(producer, b"aborted") == ErrorCode.NONE
    await abort(producer)
    for used_or_ahead, code in (
        (0, ErrorCode.UNKNOWN_PRODUCER_ID),
        (5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ):
        producer.sequences[0] = used_or_ahead
        assert await send(producer, b"never") == code
        assert (await states(cluster, producer.home)) == ["CompleteAbort"]


@pytest.mark.parametrize("moves", [False, True], ids=["same leader", "new leader"])
async def test_a_late_batch_of_an_aborted_transaction_is_not_taken_for_one_of_the_next(
    cluster: LocalCluster, moves: bool
) -> None:
    """It arrives when the next transaction has begun, under the number of that one's first batch."""
    producer = await transacting(cluster, adds_itself=False)
    assert await send(producer, b"before") == ErrorCode.NONE
    await abort(producer)
    assert await send(producer, b"late") == ErrorCode.NONE
    if moves:
        await move_leader(cluster, producer.topic)
    producer.sequences[0] -= 1
    assert await producer.send(0, b"next") == ErrorCode.UNKNOWN_PRODUCER_ID
    await abort(producer)
    await producer.begin()
    assert await send(producer, b"next") == ErrorCode.NONE
    await producer.end()
    assert await read_committed(cluster, producer.topic, 0) == [b"next"]
