"""Fewer partitions in a cluster: any broker leads closed ones, and those that take their messages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.net.sockets import SocketNetwork
from forebay.broker.partition.closed_partition import is_settled
from forebay.errors import ErrorCode
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from support.brokers.local_cluster import eventually, local_cluster
from support.clients.resizing import (
    ONCE,
    SETTINGS,
    HeldHandovers,
    Pipelined,
    fold,
    known,
    lead_apart,
    need_replicas,
    numbered,
    send,
    values,
)
from support.clients.transacting import TRANSACTIONS, Producer, make_topic, read_committed
from support.clients.wire_client import batch, only_partition, produce


async def test_a_batch_reaches_the_leader_of_the_partition_that_takes_it(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        for sequence in range(3):
            assert await send(cluster, topic, 3, numbered(sequence, of=3)) == (0, sequence)
        await fold(cluster, topic, 2)
        await known(cluster, topic, 2, 1, 2, 3)
        assert await send(cluster, topic, 3, numbered(2, of=3)) == (0, 2)
        code, _ = await send(cluster, topic, 3, numbered(4, of=3))
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(cluster, topic, 3, numbered(3, of=3)) == (0, 0)
        assert await send(cluster, topic, 3, batch(b"plain")) == (0, 1)
        assert await send(cluster, topic, 3, numbered(3, of=3)) == (0, 0)
        assert await values(cluster, topic, 1) == [b"3:3", b"plain"]
        assert await values(cluster, topic, 3) == [b"3:0", b"3:1", b"3:2"]


@pytest.mark.parametrize("gone", [False, True])
async def test_what_comes_behind_a_batch_that_the_other_leader_has_refused_is_not_out_of_order(
    tmp_path: Path, gone: bool
) -> None:
    """The connection between the brokers, which others use too, has forgotten the refusal."""
    settings = SETTINGS | ({"forebay.fold.grace.ms": "0"} if gone else {})
    settings |= {"log.retention.check.interval.ms": "50"}
    async with local_cluster(tmp_path, settings) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        if not gone:
            assert await send(cluster, topic, 3, numbered(0, of=3)) == (0, 0)
        await fold(cluster, topic, 2)
        await known(cluster, topic, 2, 1, 2, 3)
        if gone:
            await eventually(
                lambda: all(len(cluster[n].image.topics[topic].partitions) == 2 for n in (1, 2, 3))
            )

        async def code(sequence: int) -> int:
            request = produce(topic, numbered(sequence, of=3), partition=3, acks=-1)
            return int(only_partition(await cluster.ask(3, request, 9)).error_code)

        await need_replicas(cluster, topic, 1, "4")
        assert await code(1) == ErrorCode.NOT_ENOUGH_REPLICAS
        await need_replicas(cluster, topic, 1, "2")
        other = await PeerConnection.open(
            SocketNetwork().connect, *cluster.address(3), client_id="test", response_bytes_max=1 << 20
        )
        for _ in range(7):
            request = produce(topic, batch(b"of another"), partition=3, acks=-1)
            answer = only_partition(await other.ask(request, 9, timeout_s=60))
            assert answer.error_code == ErrorCode.NONE
        other.close()
        assert [await code(2), await code(3)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
        assert [await code(sequence) for sequence in (1, 2, 3, 4)] == [ErrorCode.NONE] * 4
        found = [value for value in await values(cluster, topic, 1) if value.startswith(b"3:")]
        assert found == [b"3:1", b"3:2", b"3:3", b"3:4"]


async def test_pipelined_batches_keep_their_order_over_the_fold_and_moves_of_both_leaders(
    tmp_path: Path,
) -> None:
    """An idempotent producer keeps five batches in flight and sends again, in order, what was refused."""
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        producer = Pipelined(cluster, topic, 3, 120)
        await producer.reach(20)
        await fold(cluster, topic, 2)
        for number, (index, leader) in enumerate(((1, 3), (3, 1), (3, 2), (1, 1), (1, 2))):
            await producer.reach(35 + number * 15)
            await cluster.lead(topic, index, leader)
        await producer.finish()
        old, new = await values(cluster, topic, 3), await values(cluster, topic, 1)
        assert old + new == producer.expected
        assert len(old) >= 20 and len(new) >= 60


async def test_a_batch_waits_for_those_before_it_that_are_under_way_by_an_earlier_fold(
    tmp_path: Path,
) -> None:
    """7 went to 3, which is folded into 1 now, whose leader knows nothing of the batches before."""
    settings = SETTINGS | {"forebay.fold.grace.ms": "0", "log.retention.check.interval.ms": "50"}
    async with local_cluster(tmp_path, settings) as cluster:
        topic = await make_topic(cluster, 8)
        for index, leader in ((3, 2), (1, 1)):
            await cluster.lead(topic, index, leader)
        await fold(cluster, topic, 4)
        await eventually(lambda: all(len(cluster[n].image.topics[topic].partitions) == 4 for n in (1, 2, 3)))
        await send(cluster, topic, 7, batch(b"it is passed on"), node=3)
        with HeldHandovers(cluster, 3) as held:
            first = asyncio.create_task(send(cluster, topic, 7, numbered(0, of=7), *ONCE, node=3))
            await eventually(lambda: held.count)
            await fold(cluster, topic, 2)
            await known(cluster, topic, 2, 1, 2, 3)
            await cluster.lead(topic, 3, 3)
            await eventually(lambda: is_settled(cluster[3].partitions.get(topic, 3)))
            second = asyncio.create_task(send(cluster, topic, 7, numbered(1, of=7), *ONCE, node=3))
            await asyncio.sleep(0.2)
        assert (await first)[0] == (await second)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        for sequence in range(2):
            assert (await send(cluster, topic, 7, numbered(sequence, of=7), node=3))[0] == ErrorCode.NONE
        assert await values(cluster, topic, 1) == [b"7:0", b"7:1"]


async def test_nothing_is_passed_on_before_all_of_the_closed_log_is_committed(tmp_path: Path) -> None:
    """Otherwise a next leader without the last batches would have them sent again, behind later ones."""
    settings = SETTINGS | {"replica.lag.time.max.ms": "300000"}
    async with local_cluster(tmp_path, settings) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        await cluster.in_sync(topic, 3)
        partition = cluster[3].partitions.get(topic, 3)
        other = await PeerConnection.open(
            SocketNetwork().connect, *cluster.address(3), client_id="test", response_bytes_max=1 << 20
        )
        with cluster.deaf(topic, 1, 2, index=3), cluster.uninformed(1), cluster.uninformed(2):
            late = asyncio.create_task(send(cluster, topic, 3, numbered(0, of=3)))
            await eventually(lambda: partition.log.end_offset == 1)
            wanted = CreatePartitionsTopic(name=topic, count=2, assignments=None)
            await other.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=60_000), 3)
            assert cluster[3].image.topics[topic].closed_from == 2
            request = produce(topic, numbered(1, of=3), partition=3, acks=-1)
            answer = only_partition(await other.ask(request, 9))
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert not late.done()
        other.close()
        assert await late == (0, 0)
        assert await send(cluster, topic, 3, numbered(1, of=3)) == (0, 0)


async def test_nothing_is_passed_on_while_another_replica_may_have_more(tmp_path: Path) -> None:
    """It may lead next and commit it: what was passed on meanwhile would be there twice."""
    settings = SETTINGS | {"replica.lag.time.max.ms": "300000"}
    async with local_cluster(tmp_path, settings) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        await cluster.in_sync(topic, 3)
        logs = {node: cluster[node].partitions.held(topic, 3).log for node in (1, 2)}
        with cluster.deaf(topic, 1, index=3):
            lost = asyncio.create_task(send(cluster, topic, 3, numbered(0, of=3), *ONCE, node=3))
            await eventually(lambda: logs[2].end_offset == 1)
            with cluster.uninformed(2):
                await cluster.lead(topic, 3, 1)
                assert (await lost)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
                await fold(cluster, topic, 2, node=1)
                await known(cluster, topic, 2, 1, 3)
                assert (logs[1].end_offset, logs[2].end_offset) == (0, 1)
                code, _ = await send(cluster, topic, 3, numbered(0, of=3), *ONCE, node=1)
                assert code == ErrorCode.NOT_ENOUGH_REPLICAS
                await cluster.lead(topic, 3, 2)
        assert await send(cluster, topic, 3, numbered(0, of=3)) == (0, 0)
        assert await values(cluster, topic, 3) == [b"3:0"]
        assert await values(cluster, topic, 1) == []


@pytest.mark.parametrize("adds_itself", [False, True])
@pytest.mark.parametrize("commit", [False, True])
async def test_a_transaction_over_the_fold_ends_in_both_logs(
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
        await known(cluster, topic, 2, 1, 2, 3)
        assert await producer.send(3, b"after") == ErrorCode.NONE
        await producer.end(commit=commit)
        old, new = ([b"before"], [b"beside", b"after"]) if commit else ([], [])
        assert await read_committed(cluster, topic, 3) == old
        assert await read_committed(cluster, topic, 1) == new
        for value in (b"next", b"last"):  # and the next transactions, with the same numbers or new ones
            if not adds_itself:
                await producer.add(3)
            assert await producer.send(3, value) == ErrorCode.NONE
            await producer.end()
        assert await read_committed(cluster, topic, 1) == [*new, b"next", b"last"]
        assert await read_committed(cluster, topic, 3) == old


async def test_a_coordinator_that_has_not_heard_of_the_fold_does_not_end_half_a_transaction(
    tmp_path: Path,
) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        topic = await make_topic(cluster, 4)
        producer = Producer(cluster, topic)
        await producer.begin()
        for index in range(4):
            await cluster.lead(TRANSACTIONS, index, 1)
        await lead_apart(cluster, topic)
        await producer.add(3)
        assert await producer.send(3, b"before") == ErrorCode.NONE
        with cluster.uninformed(1):
            await fold(cluster, topic, 2, node=2)
            await known(cluster, topic, 2, 2, 3)
            assert await producer.send(3, b"after") == ErrorCode.NONE
            await producer.end(commit=False)
            taking = cluster[2].partitions.get(topic, 1)
            assert taking.producers.transactions, "the transaction is open there"
            assert cluster[3].partitions.get(topic, 3).producers.transactions
        assert await read_committed(cluster, topic, 1) == []
        assert await read_committed(cluster, topic, 3) == []


async def test_transactions_for_a_partition_that_is_gone(tmp_path: Path) -> None:
    """A client that never learns the new count goes on for ever, through brokers that never led it."""
    async with local_cluster(tmp_path, SETTINGS | {"forebay.fold.grace.ms": "0"}) as cluster:
        topic = await make_topic(cluster, 4)
        await lead_apart(cluster, topic)
        assert await send(cluster, topic, 3, numbered(0, of=3)) == (0, 0)
        await fold(cluster, topic, 2, drop_after_ms=500)
        await eventually(
            lambda: all(len(cluster[node].image.topics[topic].partitions) == 2 for node in (1, 2, 3))
        )
        for node in (1, 2, 3):
            # The first offset tells the numbers that 3 knew.
            assert await send(cluster, topic, 3, batch(b"by %d" % node), node=node) == (0, node)

        producer = Producer(cluster, topic)
        await producer.begin()
        for commit in (True, False, True):
            await producer.add(3, 0)
            producer_of_3 = _named(producer, node=1 + commit)
            assert await producer_of_3(3, b"%d" % commit) == ErrorCode.NONE
            assert await producer.send(0, b"%d" % commit) == ErrorCode.NONE
            await producer.end(commit=commit)
        plain = [b"by 1", b"by 2", b"by 3"]
        assert await read_committed(cluster, topic, 1) == [*plain, b"1", b"1"]
        assert await read_committed(cluster, topic, 0) == [b"1", b"1"]


def _named(producer: Producer, node: int) -> Any:
    """Its `send`, to a broker that the producer believes to lead."""
    cluster = producer.cluster

    class Believing:
        def __getattr__(self, name: str) -> Any:
            return getattr(cluster, name)

        def leader(self, _topic: str, _index: int = 0) -> int:
            return node

    async def send_there(partition: int, value: bytes) -> int:
        producer.cluster = Believing()  # type: ignore[assignment]
        try:
            return await producer.send(partition, value)
        finally:
            producer.cluster = cluster

    return send_there
