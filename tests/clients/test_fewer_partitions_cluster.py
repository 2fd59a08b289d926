"""A topic goes from 12 to 4 to 8 partitions while its leaders are killed: nothing is lost or doubled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing

import confluent_kafka
import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from forebay.testing import Cluster
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin
from support.clients.shrinking import GroupReader, stored, until
from support.clients.steady_producers import ConfluentIdempotent, ConfluentTransactional, SteadyProducer

MANY, FEW, MORE = 12, 4, 8
ENOUGH = 3 * MANY
SETTINGS = {
    "forebay.lease.ttl.ms": 6_000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as running:
        yield running


def resize(cluster: Cluster, topic: str, count: int) -> None:
    """As an administrator does it who gets no answer from a broker that dies: once more."""

    def is_done() -> bool:
        admin = confluent_admin(cluster.bootstrap_servers)
        try:
            admin.create_partitions([NewPartitions(topic, count)])[topic].result(DEADLINE_SECONDS)
        except confluent_kafka.KafkaException as error:
            return f"the topic has {count} partition(s)" in str(error)
        return True

    until(is_done)


def kill_leader(cluster: Cluster, topic: str, partition: int) -> int:
    leader = cluster.leader(topic, partition)
    cluster.kill(leader)
    return leader


def numbers_of(producer: SteadyProducer, partition: int, values: list[bytes]) -> list[int]:
    prefix = b"%s:%d:" % (producer.name.encode(), partition)
    return [int(value.rpartition(b":")[2]) for value in values if value.startswith(prefix)]


def check(producer: SteadyProducer, found: dict[int, list[bytes]]) -> None:
    """Every message is in its partition or in the one that took over, once, and each log is in order."""
    for partition in range(MANY):
        homes = sorted({partition, partition % FEW})
        logs = [numbers_of(producer, partition, found[home]) for home in homes]
        assert all(numbers == sorted(numbers) for numbers in logs), (producer.name, partition, logs)
        numbers = sorted(number for log in logs for number in log)
        assert numbers == list(range(len(numbers))), (producer.name, partition, logs)
        assert len(numbers) >= producer.acknowledged[partition], (producer.name, partition)


def test_leaders_are_killed_while_a_topic_gets_fewer_partitions_and_more(
    cluster: Cluster, topic: str
) -> None:
    bootstrap = cluster.bootstrap_servers
    new = NewTopic(topic, num_partitions=MANY, replication_factor=3)
    admin = confluent_admin(bootstrap)
    admin.create_topics([new])[topic].result(DEADLINE_SECONDS)
    try:
        with (
            closing(ConfluentIdempotent(bootstrap, topic, MANY)) as one,
            closing(ConfluentTransactional(bootstrap, topic, MANY)) as other,
            closing(GroupReader(bootstrap, topic, f"{topic}-group", "classic")) as reader,
        ):
            for producer in (one, other):
                producer.reach(ENOUGH)
            for count, killed in ((FEW, 1), (MORE, 5)):
                resize(cluster, topic, count)
                node = kill_leader(cluster, topic, killed)
                for producer in (one, other):
                    producer.reach(ENOUGH)
                cluster.start(node)
            for producer in (one, other):
                producer.finish()
            found = stored(bootstrap, topic, range(MANY))
            for producer in (one, other):
                check(producer, found)
            assert not any(value.startswith(b"%s:9:" % one.name.encode()) for value in found[5])
            assert max(numbers_of(one, 5, found[5])) > max(numbers_of(one, 5, found[1])), (
                "5 took messages again"
            )
            expected = {value for values in found.values() for value in values}
            until(lambda: {*reader.values} >= expected)
            assert {*reader.values} == expected
    finally:
        gc.collect()  # now, while the warnings about it are off
