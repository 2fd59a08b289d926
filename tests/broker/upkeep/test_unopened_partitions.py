"""Partitions that a broker cannot open: nothing of them is forgotten, and nothing is taken for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.storage.real_disk import RealDisk
from forebay.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from support.brokers.local_broker import local_broker
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.wire_client import (
    CREATE_TOPICS,
    EARLIEST,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    offset_at,
    only_partition,
    produce,
    read,
    read_all,
    values_of,
)
from support.faults.faulty_disk import FaultyDisk

TOPIC, OTHER = "t", "other"
DELETE_RECORDS = 2


def delete_below(client: WireClient, offset: int) -> None:
    wanted = DeleteRecordsTopic(
        name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    answer = client.call(DeleteRecordsRequest(topics=[wanted], timeout_ms=5000), DELETE_RECORDS)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("spoiled", ["leader-epoch-checkpoint", "partition.metadata"])
def test_a_clean_stop_forgets_nothing_of_a_partition_that_could_not_be_opened(
    tmp_path: Path, spoiled: str
) -> None:
    """Stopping is an orderly matter for the other partitions only."""
    directory = tmp_path / f"{TOPIC}-0"
    log = directory / "00000000000000000000.log"
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        create(client, TOPIC)
        create(client, OTHER)
        for number in range(10):
            append(client, TOPIC, batch(b"%d" % number))
        delete_below(client, 4)
    tear(tmp_path, log)
    file = directory / spoiled
    whole = file.read_bytes() if file.exists() else None
    file.write_text("spoiled")
    for _ in range(2):
        with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
            assert read(client, TOPIC).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert append(client, OTHER, batch(b"fine")).error_code == ErrorCode.NONE
    if whole is None:
        file.unlink()
    else:
        file.write_bytes(whole)
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        assert offset_at(client, TOPIC, EARLIEST) == 4, "what was deleted stays deleted"
        found = read_all(client, TOPIC)
        assert found == [(number, b"%d" % number) for number in range(4, 10)]
        assert values_of(log.read_bytes()) == [(number, b"%d" % number) for number in range(10)]


def tear(data: Path, log: Path) -> None:
    """As if the broker had been killed in the middle of a write."""
    (data / ".kafka_cleanshutdown").unlink()
    whole = log.read_bytes()
    next_batch = bytearray(whole[-len(whole) // 10 :])
    next_batch[:8] = (10).to_bytes(8, "big")
    next_batch[-5:] = bytes(5)
    log.write_bytes(whole + next_batch)


async def test_a_new_partition_that_cannot_be_made_is_led_by_another(tmp_path: Path) -> None:
    async with local_cluster(tmp_path / "cluster", make_disk=FaultyDisk) as cluster:
        break_new(cluster[1], "/t-0/")
        await create_on(cluster, TOPIC, 1, 2, 3, by=2)
        await eventually(lambda: cluster.leader(TOPIC) == 2)
        assert 1 not in cluster.state(TOPIC).isr

        async def attempt() -> tuple[int, int]:
            answer = await cluster.ask(2, produce(TOPIC, batch(b"taken"), acks=-1), PRODUCE)
            code = only_partition(answer).error_code
            return code, code

        assert await retried(attempt, ErrorCode.NOT_LEADER_OR_FOLLOWER) == ErrorCode.NONE


async def test_the_only_replica_of_what_it_cannot_open_is_not_elected_over_and_over(tmp_path: Path) -> None:
    async with local_cluster(tmp_path / "cluster", brokers=1, make_disk=FaultyDisk) as cluster:
        break_new(cluster[1], "/t-0/")
        await create_on(cluster, TOPIC, 1)
        answer = await cluster.ask(1, produce(TOPIC, batch(b"refused")), PRODUCE)
        assert only_partition(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for number in range(10):
            await create_on(cluster, f"{OTHER}-{number}", 1)
        assert cluster.state(TOPIC).leader_epoch == 0
        answer = await cluster.ask(1, produce(TOPIC, batch(b"refused")), PRODUCE)
        assert only_partition(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_store_that_does_not_answer_keeps_no_broken_leader(tmp_path: Path) -> None:
    """It is asked again: nobody else would ever take the partition from a broker that lives."""
    async with local_cluster(tmp_path / "cluster", make_disk=FaultyDisk) as cluster:
        break_new(cluster[1], "/t-0/")
        with cluster.unwritable(1) as refused:
            await create_on(cluster, TOPIC, 1, 2, 3, by=2)
            await eventually(refused.is_set)
            assert cluster.leader(TOPIC) == 1
        await eventually(lambda: cluster.leader(TOPIC) == 2)


def break_new(broker: Node, path: str) -> None:
    assert isinstance(broker.disk, FaultyDisk)
    broker.disk.break_path("create", path)


async def create_on(cluster: LocalCluster, name: str, *brokers: int, by: int = 1) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(brokers))],
    )
    (made,) = (await cluster.ask(by, CreateTopicsRequest(topics=[topic]), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE


class MistakenDisk(RealDisk):
    """What looks into the directory of the topic runs into a mistake of ours."""

    def list(self, path: str) -> list[str]:
        if path.endswith(f"/{TOPIC}-0"):
            raise RuntimeError("a mistake")
        return super().list(path)


def test_a_mistake_of_ours_in_one_partition_leaves_the_others(tmp_path: Path) -> None:
    with local_broker(tmp_path, make_disk=MistakenDisk) as broker, WireClient(broker.bootstrap) as client:
        create(client, TOPIC, partitions=2)
        create(client, OTHER)
        assert append(client, TOPIC, batch(), partition=1).error_code == ErrorCode.NONE
    with local_broker(tmp_path, make_disk=MistakenDisk) as broker, WireClient(broker.bootstrap) as client:
        assert append(client, TOPIC, batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert append(client, TOPIC, batch(), partition=1).base_offset == 1


def test_a_log_that_could_not_be_synced_is_checked_at_the_next_start(tmp_path: Path) -> None:
    """The system may have dropped what it could not write: an orderly stop proves nothing."""
    directory = tmp_path / f"{TOPIC}-0"
    with local_broker(tmp_path, make_disk=FaultyDisk) as broker, WireClient(broker.bootstrap) as client:
        create(client, TOPIC)
        create(client, OTHER)
        assert append(client, TOPIC, batch(b"synced"), acks=-1).error_code == ErrorCode.NONE
        disk = broker.node.disk
        assert isinstance(disk, FaultyDisk)
        disk.break_path("datasync", f"{TOPIC}-0/")
        answer = append(client, TOPIC, batch(b"not synced"), acks=-1)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    log = directory / "00000000000000000000.log"
    dropped = bytearray(log.read_bytes())
    dropped[-10:] = bytes(10)
    log.write_bytes(dropped)
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        assert read_all(client, TOPIC) == [(0, b"synced")]
        assert append(client, TOPIC, batch(b"after"), acks=-1).base_offset == 1
