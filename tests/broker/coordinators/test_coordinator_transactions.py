"""Transactions over several brokers: partitions, groups and coordinators live on different ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.broker.coordinators import transactions
from forebay.broker.partition.partition import Partition
from forebay.broker.produce.transaction_verification import Verdict, Verification
from forebay.coordination.store import Put
from forebay.core.partition.transaction_verification import Verifications
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import TRANSACTIONAL, EndTxnMarker, read_marker
from forebay.wire.coordinator_partition import partition_for
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from forebay.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.transacting import (
    COME_BACK,
    GROUP,
    ID,
    OFFSETS,
    TRANSACTIONS,
    Producer,
    give_leader,
    group_home,
    make_topic,
    read_committed,
    spread,
    states,
    take_leader,
)
from support.clients.wire_client import batch, only_partition, produce

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
ADDS_PARTITIONS = 12
"""The first version of Produce that adds partitions to transactions by itself: it always asks first."""


def _markers(cluster: LocalCluster, topic: str, partition: int) -> list[EndTxnMarker]:
    """All markers in a partition's log."""
    led = cluster[cluster.leader(topic, partition)].partitions.get(topic, partition)
    found = [read_marker(batch) for batch, header in led.log.files.scan(0) if header.is_control]
    return [marker for marker in found if marker is not None]


async def _group_offset(cluster: LocalCluster) -> int:
    request = OffsetFetchRequest(
        group_id=GROUP,
        topics=[OffsetFetchRequestTopic(name="events", partition_indexes=[0])],
        require_stable=True,
    )

    async def attempt() -> tuple[int, int]:
        response = await cluster.ask(group_home(cluster), request, 7)
        if response.error_code != ErrorCode.NONE:
            return -1, response.error_code
        (partition,) = response.topics[0].partitions
        return partition.committed_offset, partition.error_code

    offset: int = await retried(attempt, *COME_BACK, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return offset


@pytest.mark.parametrize("adds_itself", [False, True], ids=["version 1", "version 2"])
async def test_a_transaction_over_all_brokers_is_committed_or_aborted_whole(
    tmp_path: Path, adds_itself: bool
) -> None:
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        await spread(cluster, topic, range(3))
        producer = Producer(cluster, topic, adds_itself=adds_itself)
        await producer.begin()
        for commit, value in ((True, b"kept"), (False, b"gone"), (True, b"kept too")):
            if not adds_itself:
                await producer.add(0, 1, 2)
            for partition in range(3):
                assert await producer.send(partition, value) == ErrorCode.NONE
            await producer.end(commit=commit)
        for partition in range(3):
            assert await read_committed(cluster, topic, partition) == [b"kept", b"kept too"]


async def test_a_partition_takes_no_transaction_that_its_coordinator_does_not_know_of(tmp_path: Path) -> None:
    """Wherever the partition is led: the coordinator on another broker is asked."""
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        await spread(cluster, topic, range(3))
        producer = Producer(cluster, topic)
        await producer.begin()
        await producer.add(0)
        for partition in (1, 2):
            assert await producer.send(partition, b"no") == ErrorCode.TRANSACTION_ABORTABLE
        assert await producer.send(0, b"yes") == ErrorCode.NONE
        stranger = Producer(cluster, topic, producer_id=producer.producer_id, producer_epoch=9)
        for partition in range(3):
            assert await stranger.send(partition, b"never") != ErrorCode.NONE
        await producer.end()
        assert [await read_committed(cluster, topic, partition) for partition in range(3)] == [
            [b"yes"],
            [],
            [],
        ]


async def test_a_partition_is_told_nothing_that_a_failover_may_forget(tmp_path: Path) -> None:
    """The coordinator knows of the partition, its followers do not yet: the answer waits for them."""
    async with local_cluster(tmp_path) as cluster:
        producer = Producer(cluster, await make_topic(cluster))
        await producer.begin()
        home, index, at = producer.home, partition_for(ID, 4), (producer.topic, 0)
        question = Verification(ID, producer.producer_id, producer.producer_epoch, [at], add=False)
        answers: list[Verdict] = []
        broker = cluster[home]
        machine = broker.transactions.coordinator.at(index).machine
        with cluster.deaf(TRANSACTIONS, *(node for node in cluster.nodes if node != home), index=index):
            adding = asyncio.create_task(producer.add(0))
            await eventually(lambda: machine.transactions[ID].partitions)
            broker.transactions.verify(question, answers.append)
            assert not answers
            assert not adding.done()
        await adding
        assert await eventually(lambda: answers) == [{}]
        broker.transactions.verify(question, answers.append)
        assert answers == [{}, {}], "answered at once where all is committed"


async def test_a_partition_that_asks_too_much_at_once_has_its_clients_come_again(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        producer = Producer(cluster, await make_topic(cluster))
        await producer.begin()
        await producer.add(0)
        await producer.add_offsets()
        partition = cluster[cluster.leader(producer.topic, 0)].partitions.get(producer.topic, 0)
        offsets_at = partition_for(GROUP, 4)
        assert await producer.send_offset(1) == ErrorCode.NONE  # and the group's coordinator is there
        await producer.end()
        offsets = cluster[group_home(cluster)].partitions.get(OFFSETS, offsets_at)
        await producer.add(0)
        await producer.add_offsets()
        for busy in (partition, offsets):
            busy.verifications = Verifications(producers_max=0)
        assert await producer.send(0, b"value", retry=False) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await producer.send_offset(2, retry=False) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for idle in (partition, offsets):
            idle.verifications = Verifications()
        assert await producer.send(0, b"value") == ErrorCode.NONE
        assert await producer.send_offset(2) == ErrorCode.NONE
        await producer.end()
        assert await read_committed(cluster, producer.topic, 0) == [b"value"]
        assert await _group_offset(cluster) == 2


async def test_a_batch_that_is_verified_and_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        producer = Producer(cluster, await make_topic(cluster))
        await producer.begin()
        await producer.add(0)
        leader = cluster.leader(producer.topic, 0)
        data = batch(
            producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
        )
        broken = produce(producer.topic, data[:-1] + b"?", acks=-1, transactional_id=ID)
        for _ in range(3):
            answer = only_partition(await cluster.ask(leader, broken, 11))
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
        assert len(cluster[leader].partitions.get(producer.topic, 0).verifications) == 0
        assert await producer.send(0, b"value") == ErrorCode.NONE


async def test_a_mistake_of_ours_after_a_verification_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answer the connection would stand still until the client gives it up."""
    async with local_cluster(tmp_path) as cluster:
        producer = Producer(cluster, await make_topic(cluster))
        await producer.begin()
        leader = cluster.leader(producer.topic, 0)
        partition = cluster[leader].partitions.get(producer.topic, 0)
        data = batch(
            producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
        )
        request = produce(producer.topic, data, acks=-1, transactional_id=ID)
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append", _raise)
            with pytest.raises(KafkaError, match="broke"):
                async with asyncio.timeout(60):
                    await cluster.ask(leader, request, ADDS_PARTITIONS)
        assert len(partition.verifications) == 0
        assert (
            only_partition(await cluster.ask(leader, request, ADDS_PARTITIONS)).error_code == ErrorCode.NONE
        )


def _raise(*_: object, **__: object) -> None:
    raise RuntimeError("a mistake of ours")


async def test_brokers_ask_for_many_transactions_at_once(tmp_path: Path) -> None:
    """AddPartitionsToTxn of brokers: each transaction is answered for itself."""
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producer = Producer(cluster, topic)
        await producer.begin()
        await producer.add(1)
        identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        partitions = [AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])]
        known, unknown = (
            AddPartitionsToTxnTransaction(
                transactional_id=name, verify_only=True, topics=partitions, **identity
            )
            for name in (ID, _beside(ID))
        )
        response = await cluster.ask(
            producer.home, AddPartitionsToTxnRequest(transactions=[known, unknown]), 5
        )
        codes = {
            (result.transactional_id, partition.partition_index): partition.partition_error_code
            for result in response.results_by_transaction
            for partition in result.topic_results[0].results_by_partition
        }
        assert codes == {
            (ID, 0): ErrorCode.TRANSACTION_ABORTABLE,
            (ID, 1): ErrorCode.NONE,
            (_beside(ID), 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            (_beside(ID), 1): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        }


def _beside(transactional_id: str) -> str:
    """Another id of the same shard."""
    wanted = partition_for(transactional_id, 4)
    return next(name for n in range(100) if partition_for(name := f"other-{n}", 4) == wanted)


@pytest.mark.parametrize(
    ("adds_itself", "version"), [(False, 3), (True, 5)], ids=["added before", "adds itself"]
)
@pytest.mark.parametrize("commit", [True, False])
async def test_offsets_of_a_group_elsewhere_count_with_the_transaction(
    tmp_path: Path, adds_itself: bool, version: int, commit: bool
) -> None:
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producer = Producer(cluster, topic, adds_itself=adds_itself)
        await producer.begin()
        assert await producer.send_offset(1, version) == (
            ErrorCode.NONE if adds_itself else ErrorCode.INVALID_TXN_STATE
        )
        if not adds_itself:
            await producer.add_offsets()
        away = next(node for node in cluster.nodes if node != producer.home)
        await cluster.lead(OFFSETS, partition_for(GROUP, 4), away)
        await eventually(lambda: cluster[away].groups.coordinator.availability is not LOADING)
        assert await producer.send_offset(42, version) == ErrorCode.NONE
        await producer.end(commit=commit)
        assert await _group_offset(cluster) == (42 if commit else -1)


async def test_offsets_without_a_transaction_are_refused(tmp_path: Path) -> None:
    """Nobody would ever decide about them, and the group could not go on."""
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producer = Producer(cluster, topic)
        await producer.begin()
        assert await producer.send_offset(1, 3) == ErrorCode.INVALID_TXN_STATE
        assert await producer.send_offset(1, 4) == ErrorCode.TRANSACTION_ABORTABLE
        await producer.add_offsets()
        assert await producer.send_offset(2) == ErrorCode.NONE
        await producer.end()
        fenced = Producer(cluster, topic, producer_id=producer.producer_id, producer_epoch=0)
        await producer.begin()
        await producer.add_offsets()
        assert await producer.send_offset(3) == ErrorCode.NONE
        assert await fenced.send_offset(4) == ErrorCode.INVALID_PRODUCER_EPOCH
        await producer.end()
        assert await _group_offset(cluster) == 3


async def test_a_decided_transaction_is_ended_by_the_next_coordinator(tmp_path: Path) -> None:
    """Its first one dies while it tries to reach a partition; the marker carries the epoch of the next."""
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        await spread(cluster, topic, range(3))
        producer = Producer(cluster, topic)
        await producer.begin()
        await producer.add(0, 1, 2)
        for partition in range(3):
            assert await producer.send(partition, b"kept") == ErrorCode.NONE
        home, index = producer.home, partition_for(ID, 4)
        unreachable = next(node for node in cluster.nodes if node != home)
        await take_leader(cluster, topic, unreachable - 1)
        await producer.end()
        assert await states(cluster, home) == ["PrepareCommit"]
        epoch = cluster.state(TRANSACTIONS, index).leader_epoch
        await cluster.kill(home)
        await cluster.bury(home)
        await give_leader(cluster, topic, unreachable - 1, unreachable)
        for partition in range(3):
            assert await read_committed(cluster, topic, partition) == [b"kept"]
        assert _markers(cluster, topic, unreachable - 1)[-1].coordinator_epoch == epoch + 1
        await producer.begin()
        await producer.add(0)
        assert await producer.send(0, b"more") == ErrorCode.NONE
        await producer.end()
        assert await read_committed(cluster, topic, 0) == [b"kept", b"more"]


async def test_an_open_transaction_goes_on_over_the_death_of_coordinator_and_leader(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        await spread(cluster, topic, range(3))
        producer = Producer(cluster, topic)
        await producer.begin()
        for round_ in range(3):
            await producer.add(0, 1, 2)
            for partition in range(3):
                assert await producer.send(partition, b"%d" % round_) == ErrorCode.NONE
            dead = producer.home
            await cluster.kill(dead)
            await cluster.bury(dead)
            for partition in range(3):
                assert await producer.send(partition, b"%d again" % round_) == ErrorCode.NONE
            await producer.end()
            await cluster.start(dead)
            for partition in range(3):
                await cluster.in_sync(topic, partition)
            for index in range(4):
                await cluster.in_sync(TRANSACTIONS, index)
        for partition in range(3):
            assert await read_committed(cluster, topic, partition) == [
                text for round_ in range(3) for text in (b"%d" % round_, b"%d again" % round_)
            ]


async def test_a_coordinator_that_was_replaced_ends_nothing(tmp_path: Path) -> None:
    """It may still believe in its term; partitions have heard of a later one."""
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producer = Producer(cluster, topic)
        await producer.begin()
        for _ in range(2):
            await producer.add(0)
            assert await producer.send(0, b"first") == ErrorCode.NONE
            await producer.end()
            await read_committed(cluster, topic, 0)
            heir = next(node for node in cluster.nodes if node != producer.home)
            await cluster.lead(TRANSACTIONS, partition_for(ID, 4), heir)
        await producer.add(0)
        assert await producer.send(0, b"open") == ErrorCode.NONE
        late = EndTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            commit=False,
            coordinator_epoch=0,
        )
        for node in cluster.nodes:
            codes = await cluster[node].transactions.markers.write(late, [(topic, 0)], bumps_epoch=False)
            assert codes == {(topic, 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        await producer.end()
        assert await read_committed(cluster, topic, 0) == [b"first", b"first", b"open"]


async def test_a_marker_on_a_connection_that_was_given_up_comes_too_late(tmp_path: Path) -> None:
    """The same coordinator may have sent it again and gone on: it would end the next transaction."""
    async with local_cluster(tmp_path, brokers=2) as cluster:
        peers = cluster[1].peers
        assert peers.admit("forebay-broker-2.7.3")
        assert peers.admit("forebay-broker-2.7.5")
        assert peers.admit("forebay-broker-2.7.5")
        assert not peers.admit("forebay-broker-2.7.4")
        assert peers.admit("forebay-broker-2.8.1")
        assert not peers.admit("forebay-broker-2.7.9")
        assert peers.admit("forebay-broker-1.1.1")
        assert peers.admit("an administrator") and peers.admit(None)


async def test_a_marker_for_a_partition_without_a_leader_waits_for_one(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producer = Producer(cluster, topic)
        await producer.begin()
        await producer.add(0)
        assert await producer.send(0, b"x") == ErrorCode.NONE
        home = cluster.leader(topic)
        await take_leader(cluster, topic, 0)
        await producer.end()
        await asyncio.sleep(0.2)
        assert await states(cluster, producer.home) == ["PrepareCommit"]
        await give_leader(cluster, topic, 0, home)
        assert await read_committed(cluster, topic, 0) == [b"x"]


async def test_a_marker_for_a_topic_that_cannot_be_read_waits_until_it_can(tmp_path: Path) -> None:
    """If it counted as deleted, the transaction would end without the marker, and never in its partition."""
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producer = Producer(cluster, topic)
        await producer.begin()
        await producer.add(0)
        assert await producer.send(0, b"x") == ErrorCode.NONE
        store, key = cluster.session(1), cluster[1].metadata.keys.topic(topic)
        stored = await store.get(key)
        assert stored is not None
        await store.txn(puts=[Put(key=key, value=b"{}")])
        await eventually(
            lambda: all(topic in cluster[node].image.unreadable.topics for node in cluster.nodes)
        )
        await producer.end()
        await asyncio.sleep(0.2)
        assert await states(cluster, producer.home) == ["PrepareCommit"]
        await store.txn(puts=[Put(key=key, value=stored.value)])
        await cluster.knows(topic)
        assert await read_committed(cluster, topic, 0) == [b"x"]


async def test_a_marker_is_written_as_soon_as_its_partition_has_another_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_RETRY_S", "_RETRY_S_MAX"):
        monkeypatch.setattr(transactions, name, 3600.0)
    async with local_cluster(tmp_path) as cluster, asyncio.timeout(60):
        topic = await make_topic(cluster)
        producer = Producer(cluster, topic)
        await producer.begin()
        await producer.add(0)
        assert await producer.send(0, b"x") == ErrorCode.NONE
        await take_leader(cluster, topic, 0)
        await producer.end()
        await asyncio.sleep(0.05)
        assert await states(cluster, producer.home) == ["PrepareCommit"]
        await give_leader(cluster, topic, 0, producer.home)
        assert await read_committed(cluster, topic, 0) == [b"x"]


async def test_a_broker_that_lost_its_lease_is_still_listened_to(tmp_path: Path) -> None:
    """It writes markers on while it is registered nowhere; they would never be taken if it seemed older."""
    async with local_cluster(tmp_path, brokers=2) as cluster:
        peers, other = cluster[1].peers, cluster[2]
        assert peers.admit(other.peers.client_id(1))
        image = other.metadata.image
        other.metadata.image = replace(image, brokers={})
        try:
            assert peers.admit(other.peers.client_id(2))
        finally:
            other.metadata.image = image
