"""More partitions after fewer, in a cluster: numbers and transactions go on, whoever leads and knows what."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forebay.core.partition.folds.aliases import alias_of
from forebay.errors import ErrorCode
from forebay.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.resizing import (
    ONCE,
    SETTINGS,
    HeldHandovers,
    Pipelined,
    fold,
    known,
    lead_apart,
    numbered,
    send,
    values,
)
from support.clients.transacting import TRANSACTIONS, Producer, make_topic, read_committed
from support.clients.wire_client import batch
from support.faults.faulty_disk import FaultyDisk


async def grow(cluster: LocalCluster, topic: str, count: int, *, node: int = 1) -> None:
    await fold(cluster, topic, count, node=node)


async def settled(cluster: LocalCluster, topic: str) -> None:
    """Every broker knows that the growth is over."""

    def is_over() -> bool:
        foldings = [cluster[node].image.topics[topic].record.folding for node in (1, 2, 3)]
        return all(folding is not None and folding.growth is None for folding in foldings)

    await eventually(is_over)


async def test_the_numbers_come_from_the_leader_of_the_other_partition(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        await send(cluster, topic, 3, numbered(0, of=3))
        await fold(cluster, topic, 2)
        for sequence in (1, 2):
            assert (await send(cluster, topic, 3, numbered(sequence, of=3)))[0] == ErrorCode.NONE
        await grow(cluster, topic, 4)
        for sequence in range(4):
            assert (await send(cluster, topic, 3, numbered(sequence, of=3)))[0] == ErrorCode.NONE
        code, _ = await send(cluster, topic, 3, numbered(5, of=3))
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await values(cluster, topic, 3) == [b"3:0", b"3:3"]
        assert await values(cluster, topic, 1) == [b"3:1", b"3:2"]
        await settled(cluster, topic)
        for node in (1, 2):  # what was gathered is in the logs of all replicas
            await cluster.lead(topic, 3, node)
            assert (await send(cluster, topic, 3, numbered(3, of=3)))[0] == ErrorCode.NONE
        assert await values(cluster, topic, 3) == [b"3:0", b"3:3"]


async def test_what_the_disk_has_refused_is_gathered_again(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS, make_disk=FaultyDisk) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        await send(cluster, topic, 3, numbered(0, of=3))
        await fold(cluster, topic, 2)
        for sequence in (1, 2):
            assert (await send(cluster, topic, 3, numbered(sequence, of=3)))[0] == ErrorCode.NONE
        disk = cluster[cluster.leader(topic, 3)].disk
        assert isinstance(disk, FaultyDisk)
        disk.break_path("append", f"{topic}-3/")
        await grow(cluster, topic, 4)
        await eventually(lambda: cluster.leader(topic, 3) != 3)  # its log is offline
        disk.repair()
        assert (await send(cluster, topic, 3, numbered(3, of=3)))[0] == ErrorCode.NONE
        assert await values(cluster, topic, 3) == [b"3:0", b"3:3"]


async def test_pipelined_batches_are_stored_once_and_in_order_while_leaders_move(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        producer = Pipelined(cluster, topic, 3, 160)
        reached = 0
        for count in (2, 4, 2, 4):
            await producer.reach(reached := reached + 15)
            await eventually(lambda: _has_settled(cluster, topic))
            await fold(cluster, topic, count)
            await cluster.lead(topic, 1, 1 + count % 3)
            await producer.reach(reached := reached + 15)
            await cluster.lead(topic, 3, 1 + (count + 1) % 3)
        await producer.finish()
        stored = {index: await values(cluster, topic, index) for index in (1, 3)}
        assert sorted(stored[1] + stored[3]) == sorted(producer.expected)
        for found in stored.values():
            numbers = [int(value.rpartition(b":")[2]) for value in found]
            assert numbers == sorted(numbers) and len(numbers) > 15


def _has_settled(cluster: LocalCluster, topic: str) -> bool:
    folding = cluster[1].image.topics[topic].record.folding
    return folding is None or folding.growth is None


async def test_a_partition_waits_for_one_that_has_not_heard_of_it(tmp_path: Path) -> None:
    """Until then that one might take more."""
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        await fold(cluster, topic, 2)
        await known(cluster, topic, 2, 1, 2, 3)
        await send(cluster, topic, 3, numbered(0, of=3))
        with cluster.uninformed(2):
            await grow(cluster, topic, 4, node=3)
            await known(cluster, topic, 4, 1, 3)
            for _ in range(20):  # it asks again and again, in vain
                code, _ = await send(cluster, topic, 3, numbered(1, of=3), *ONCE)
                assert code == ErrorCode.NOT_ENOUGH_REPLICAS
                await asyncio.sleep(0.05)
        assert (await send(cluster, topic, 3, numbered(1, of=3)))[0] == ErrorCode.NONE
        assert await values(cluster, topic, 3) == [b"3:1"]


async def test_a_partition_waits_while_a_replica_of_the_other_may_have_more(tmp_path: Path) -> None:
    """It may lead next and commit it. Then it was sent again, and is there twice."""
    settings = SETTINGS | {"replica.lag.time.max.ms": "300000"}
    async with local_cluster(tmp_path, settings) as cluster:
        topic = await make_topic(cluster, 4)
        for index in (1, 3):
            await cluster.lead(topic, index, 2)
        await fold(cluster, topic, 2)
        await known(cluster, topic, 2, 1, 2, 3)
        await cluster.in_sync(topic, 1)
        other = cluster[3].partitions.held(topic, 1)
        with cluster.deaf(topic, 1, index=1):
            passing = (*ONCE, ErrorCode.NOT_ENOUGH_REPLICAS)  # its own partition may be closing for a moment
            lost = asyncio.create_task(send(cluster, topic, 3, numbered(0, of=3), *passing, node=2))
            await eventually(lambda: other.log.end_offset == 1)
            with cluster.uninformed(3):
                await cluster.lead(topic, 1, 1)
                assert (await lost)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
                await grow(cluster, topic, 4)
                await known(cluster, topic, 4, 1, 2)
                for _ in range(10):  # it asks again and again, in vain
                    code, _ = await send(cluster, topic, 3, numbered(0, of=3), *ONCE)
                    assert code == ErrorCode.NOT_ENOUGH_REPLICAS
                    await asyncio.sleep(0.05)
                await cluster.lead(topic, 1, 3)
        assert await send(cluster, topic, 3, numbered(0, of=3)) == (0, 0)
        assert await values(cluster, topic, 1) == [b"3:0"]
        assert await values(cluster, topic, 3) == []


async def test_a_partition_waits_for_the_answers_to_what_it_has_passed_on(tmp_path: Path) -> None:
    """One is under way to the other partition, and will be refused there. The next must not come before."""
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        await fold(cluster, topic, 2)
        await known(cluster, topic, 2, 1, 2, 3)
        await send(cluster, topic, 3, batch(b"it is passed on"))
        with HeldHandovers(cluster, 3) as held:
            first = asyncio.create_task(send(cluster, topic, 3, numbered(0, of=3), *ONCE))
            await eventually(lambda: held.count)
            await grow(cluster, topic, 4)
            await known(cluster, topic, 4, 1, 2, 3)
            await asyncio.sleep(1)  # it could open
            second = asyncio.create_task(send(cluster, topic, 3, numbered(1, of=3), *ONCE))
            await asyncio.sleep(0.2)
        assert (await first)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await second)[0] == ErrorCode.NOT_ENOUGH_REPLICAS
        for sequence in range(2):
            assert (await send(cluster, topic, 3, numbered(sequence, of=3)))[0] == ErrorCode.NONE
        assert await values(cluster, topic, 3) == [b"3:0", b"3:1"]


async def test_a_leader_that_has_not_heard_of_it_cannot_pass_on(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        await fold(cluster, topic, 2)
        await known(cluster, topic, 2, 1, 2, 3)
        await send(cluster, topic, 3, numbered(0, of=3))
        with cluster.uninformed(3):
            await grow(cluster, topic, 4, node=2)
            await known(cluster, topic, 4, 1, 2)
            code, _ = await send(cluster, topic, 3, numbered(1, of=3), *ONCE, node=3)
            assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await send(cluster, topic, 3, numbered(1, of=3)))[0] == ErrorCode.NONE
        assert await values(cluster, topic, 3) == [b"3:1"]
        assert await values(cluster, topic, 1) == [b"3:0"]


@pytest.mark.parametrize("adds_itself", [False, True])
@pytest.mark.parametrize("commit", [False, True])
async def test_a_transaction_over_fold_and_growth_ends_in_both_logs(
    tmp_path: Path, adds_itself: bool, commit: bool
) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        producer = Producer(cluster, topic, adds_itself=adds_itself)
        await producer.begin()
        if not adds_itself:
            await producer.add(3, 1)
        assert await producer.send(3, b"before") == ErrorCode.NONE
        assert await producer.send(1, b"beside") == ErrorCode.NONE
        await fold(cluster, topic, 2)
        assert await producer.send(3, b"folded") == ErrorCode.NONE
        await grow(cluster, topic, 4)
        producer.sequences[3] -= 1
        assert await producer.send(3, b"folded") == ErrorCode.NONE, "its answer was lost"
        assert await producer.send(3, b"after") == ErrorCode.NONE
        await producer.end(commit=commit)
        own, other = ([b"before", b"after"], [b"beside", b"folded"]) if commit else ([], [])
        assert await read_committed(cluster, topic, 3) == own
        assert await read_committed(cluster, topic, 1) == other
        await settled(cluster, topic)
        for value in (b"next", b"last"):
            if not adds_itself:
                await producer.add(3)
            assert await producer.send(3, value) == ErrorCode.NONE
            await producer.end()
        assert await read_committed(cluster, topic, 3) == [*own, b"next", b"last"]
        assert await read_committed(cluster, topic, 1) == other


@pytest.mark.parametrize("sends_after", [False, True])
async def test_a_coordinator_that_has_not_heard_of_it_does_not_end_half_a_transaction(
    tmp_path: Path, sends_after: bool
) -> None:
    """It knows nothing of the transaction's part in the partition that takes messages again."""
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        producer = Producer(cluster, topic)
        await producer.begin()
        for index in range(4):
            await cluster.lead(TRANSACTIONS, index, 1)
        await lead_apart(cluster, topic)
        await fold(cluster, topic, 2)
        await known(cluster, topic, 2, 1, 2, 3)
        await producer.add(3)
        assert await producer.send(3, b"folded") == ErrorCode.NONE
        with cluster.uninformed(1):
            await grow(cluster, topic, 4, node=2)
            own = cluster[3].partitions.get(topic, 3)
            await eventually(lambda: own.fold is None)
            assert own.producers.transactions, "the transaction is open there, too"
            if sends_after:
                assert await producer.send(3, b"after") == ErrorCode.NONE
            await producer.end(commit=True)
            assert cluster[2].partitions.get(topic, 1).producers.transactions
        assert await read_committed(cluster, topic, 1) == [b"folded"]
        assert await read_committed(cluster, topic, 3) == [b"after"] * sends_after
        await settled(cluster, topic)


async def test_a_marker_that_was_sent_before_the_change_is_refused_behind_it(tmp_path: Path) -> None:
    """The partition that takes messages again may have said that it needs none, when it did not yet."""
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        await fold(cluster, topic, 2)
        producer = Producer(cluster, topic)
        await producer.begin()
        await producer.add(3)
        assert await producer.send(3, b"folded") == ErrorCode.NONE
        marker = WritableTxnMarker(
            producer_id=alias_of(producer.producer_id, 3, 0),
            producer_epoch=producer.producer_epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[1])],
        )
        late = WriteTxnMarkersRequest(markers=[marker], revision=cluster[2].image.revision)
        await grow(cluster, topic, 4)
        own, taking = cluster[3].partitions.get(topic, 3), cluster[2].partitions.get(topic, 1)
        await eventually(lambda: own.fold is None)
        answer = (await cluster.ask(2, late, WriteTxnMarkersRequest.MAX_VERSION)).markers[0]
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert taking.producers.transactions and own.producers.transactions
        await producer.end(commit=False)
        assert await read_committed(cluster, topic, 1) == [] == await read_committed(cluster, topic, 3)


async def test_a_transaction_ends_where_its_marker_came_last_before_its_partition_takes_messages_again(
    tmp_path: Path,
) -> None:
    """Its new epoch would be known there from the partition that had the marker first."""
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        producer = Producer(cluster, topic, adds_itself=True)
        await producer.begin()
        assert await producer.send(3, b"aborted") == ErrorCode.NONE
        await fold(cluster, topic, 2)
        await known(cluster, topic, 2, 1, 2, 3)
        marker = WritableTxnMarker(
            producer_id=alias_of(producer.producer_id, 3, 0),
            producer_epoch=producer.producer_epoch + 1,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[1])],
            transaction_version=2,
        )
        first = WriteTxnMarkersRequest(markers=[marker], revision=cluster[2].image.revision)
        answer = (await cluster.ask(2, first, WriteTxnMarkersRequest.MAX_VERSION)).markers[0]
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        await grow(cluster, topic, 4)
        await eventually(lambda: _gathering(cluster, topic) == (3,))
        own = cluster[3].partitions.get(topic, 3)
        for _ in range(10):  # it is asked for again and again
            assert own.fold is not None and own.producers.transactions
            await asyncio.sleep(0.05)
        await producer.end(commit=False)
        await settled(cluster, topic)
        assert await producer.send(3, b"committed") == ErrorCode.NONE
        await producer.end(commit=True)
        assert await read_committed(cluster, topic, 3) == [b"committed"]


async def test_the_count_does_not_change_again_while_a_transaction_is_open(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        await fold(cluster, topic, 2)
        producer = Producer(cluster, topic)
        await producer.begin()
        await producer.add(3)
        assert await producer.send(3, b"folded") == ErrorCode.NONE
        await grow(cluster, topic, 4)
        own = cluster[3].partitions.get(topic, 3)
        await eventually(lambda: own.fold is None)
        folding = cluster[3].image.topics[topic].record.folding
        assert folding is not None and folding.growth is not None and 1 in folding.growth.draining
        with pytest.raises(AssertionError, match="transactions that were open"):
            await eventually(lambda: _gathering(cluster, topic) == ())
            await fold(cluster, topic, 2)
        await producer.end(commit=False)
        await settled(cluster, topic)
        await fold(cluster, topic, 2)


def _gathering(cluster: LocalCluster, topic: str) -> tuple[int, ...]:
    folding = cluster[1].image.topics[topic].record.folding
    return () if folding is None or folding.growth is None else folding.growth.gathering
