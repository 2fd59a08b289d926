"""Several transactions ended by one request, over brokers that die: readers see all of them or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, islice
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.testing import Broker
from forebay.wire.coordinator_partition import partition_for
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.end_txn import END_TOGETHER, EndTxnRequest, EndTxnResponse, FurtherTxn
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.transacting import (
    COME_BACK,
    TRANSACTIONS,
    Producer,
    give_leader,
    make_topic,
    read_committed,
    spread,
    states,
    take_leader,
)
from support.clients.wire_client import WireClient

END_TXN = 4
SHARDS = 4
HOME = 2
PARTITIONS = range(3)


def names_at_home() -> Iterable[str]:
    """Transactional ids of one shard."""
    return (name for name in (f"task-{n}" for n in count()) if partition_for(name, SHARDS) == HOME)


async def written(cluster: LocalCluster, topic: str) -> list[Producer]:
    """Each partition, led by another broker, with a message of another producer's open transaction."""
    await spread(cluster, topic, PARTITIONS)
    producers = [Producer(cluster, topic, name) for name in islice(names_at_home(), len(PARTITIONS))]
    for partition, producer in enumerate(producers):
        await producer.begin()
        await producer.add(partition)
        assert await producer.send(partition, b"row") == ErrorCode.NONE
    return producers


async def end(producers: list[Producer], *, commit: bool = True) -> EndTxnResponse:
    first, *others = producers
    request = EndTxnRequest(
        transactional_id=first.transactional_id,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        committed=commit,
        further=[
            FurtherTxn(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
            )
            for each in others
        ],
    )

    async def attempt() -> tuple[EndTxnResponse, int]:
        response = await first.cluster.ask(first.home, request, END_TXN)
        return response, response.error_code

    answered: EndTxnResponse = await retried(attempt, *COME_BACK)
    return answered


async def all_marked(producers: list[Producer], *, commit: bool) -> None:
    """Wait until a coordinator knows that every partition has its marker, and followers have it."""
    cluster, complete = producers[0].cluster, "CompleteCommit" if commit else "CompleteAbort"

    async def attempt() -> tuple[None, int]:
        found = await states(cluster, producers[0].home)
        done = found == [complete] * len(producers)
        return None, ErrorCode.NONE if done else ErrorCode.CONCURRENT_TRANSACTIONS

    await retried(attempt, ErrorCode.CONCURRENT_TRANSACTIONS)
    await eventually(
        lambda: all(is_replicated(cluster, producers[0].topic, partition) for partition in PARTITIONS)
    )


def is_replicated(cluster: LocalCluster, topic: str, partition: int) -> bool:
    """A new leader lets readers see what it has when its followers have said that they have it, too."""
    led = cluster[cluster.leader(topic, partition)].partitions.get(topic, partition)
    return led.high_watermark == led.log.end_offset


async def seen(cluster: LocalCluster, topic: str) -> list[list[bytes]]:
    return [await read_committed(cluster, topic, partition) for partition in PARTITIONS]


@pytest.mark.parametrize("commit", [True, False])
async def test_transactions_on_all_brokers_are_ended_by_one_request(tmp_path: Path, commit: bool) -> None:
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producers = await written(cluster, topic)
        answer = await end(producers, commit=commit)
        assert (answer.error_code, answer.further_error_codes) == (ErrorCode.NONE, [ErrorCode.NONE] * 2)
        assert await seen(cluster, topic) == [[b"row"] if commit else []] * 3


async def test_one_that_is_fenced_keeps_all_others_from_being_committed(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producers = await written(cluster, topic)
        await Producer(cluster, topic, producers[1].transactional_id).begin()
        answer = await end(producers)
        assert answer.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
        assert answer.further_error_codes == [ErrorCode.PRODUCER_FENCED, ErrorCode.OPERATION_NOT_ATTEMPTED]
        await end([producers[0], producers[2]], commit=False)
        assert await seen(cluster, topic) == [[]] * 3


async def test_one_of_another_coordinator_is_not_known_here(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producers = await written(cluster, topic)
        elsewhere = next(name for name in map(str, count()) if partition_for(name, SHARDS) != HOME)
        stranger = Producer(cluster, topic, elsewhere)
        await stranger.begin()
        await stranger.add(0)
        answer = await end([*producers, stranger])
        assert answer.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
        assert answer.further_error_codes == [
            *[ErrorCode.OPERATION_NOT_ATTEMPTED] * 2,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ]


@pytest.mark.parametrize("reachable", range(3))
@pytest.mark.parametrize("commit", [True, False])
async def test_all_are_ended_by_the_next_coordinator_when_the_first_dies(
    tmp_path: Path, reachable: int, commit: bool
) -> None:
    """It dies with the decision in its log and so many of the transactions marked."""
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producers = await written(cluster, topic)
        home = producers[0].home
        lost = [partition for partition in PARTITIONS if partition >= reachable]
        for partition in lost:
            await take_leader(cluster, topic, partition)
        assert (await end(producers, commit=commit)).error_code == ErrorCode.NONE
        prepared = "PrepareCommit" if commit else "PrepareAbort"
        assert (await states(cluster, home)).count(prepared) >= len(lost)
        await cluster.kill(home)
        await cluster.bury(home)
        heirs = [node for node in cluster.nodes if node != home]
        for partition in lost:
            await give_leader(cluster, topic, partition, heirs[partition % len(heirs)])
        await all_marked(producers, commit=commit)
        assert await seen(cluster, topic) == [[b"row"] if commit else []] * 3
        # Whoever missed the answer asks again, and hears the same from the next coordinator.
        again = await end(producers, commit=commit)
        assert (again.error_code, again.further_error_codes) == (ErrorCode.NONE, [ErrorCode.NONE] * 2)


async def test_all_decisions_are_in_one_batch_of_the_log(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producers = await written(cluster, topic)
        for partition in PARTITIONS:
            await take_leader(cluster, topic, partition)  # so that nothing follows the decision
        log = cluster[producers[0].home].partitions.get(TRANSACTIONS, HOME).log
        before = log.end_offset
        await end(producers)
        headers = [header for _, header in log.files.scan(before)]
        assert [header.record_count for header in headers] == [len(producers)]


# -- families -----------------------------------------------------------------------------------------------


async def look_after(
    cluster: LocalCluster, node: int, *, renew: Sequence[str] = (), forget: Sequence[str] = ()
) -> int:
    """How many ids the coordinator knows of them; -1 if it did not do anything."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=next(iter(names_at_home())), renew=list(renew), forget=list(forget)
    )
    answer = await cluster.ask(node, request, 3)
    assert isinstance(answer, AddPartitionsToTxnResponse)
    return answer.affected


async def test_a_family_is_looked_after_by_the_coordinator_of_its_ids(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        topic = await make_topic(cluster)
        producers = await written(cluster, topic)
        home = producers[0].home
        for node in cluster.nodes:
            assert await look_after(cluster, node, renew=["task-"]) == (3 if node == home else -1)
        assert (await end(producers)).error_code == ErrorCode.NONE
        await all_marked(producers, commit=True)
        assert await look_after(cluster, home, renew=["task-"]) == 0
        assert await look_after(cluster, home, forget=["task-"]) == 3
        assert await states(cluster, home) == []
        await cluster.kill(home)
        await cluster.bury(home)
        await eventually(lambda: producers[0].home not in (home, -1))

        async def attempt() -> tuple[int, int]:
            left = await look_after(cluster, producers[0].home, forget=["task-"])
            return left, ErrorCode.NOT_COORDINATOR if left < 0 else ErrorCode.NONE

        assert await retried(attempt, ErrorCode.NOT_COORDINATOR) == 0


# -- what others see ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("software", ["forebay", "apache-kafka-java", ""])
def test_a_broker_tells_its_own_clients_that_it_ends_transactions_together(software: str) -> None:
    """Clients of version 3 are spared features that begin at 0: Java's could not connect."""
    request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
    with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
        for version in (3, 4):
            answer = client.call(request, version)
            levels = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
            assert levels.pop(END_TOGETHER, None) == ((1, 2) if software == "forebay" else None)
            expected = {"group.version": (0, 1), "share.version": (0, 1), "transaction.version": (0, 2)}
            assert levels == (expected if version == 4 else {})
            assert [(each.name, each.max_version_level) for each in answer.finalized_features] == [
                ("group.version", 1),
                ("share.version", 1),
                ("transaction.version", 2),
            ]
