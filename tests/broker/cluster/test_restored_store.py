"""etcd is restored from a backup that is older than the disks of the brokers, with etcd's own tools.

Everything is stopped, etcd restored, and everything started again, as docs/backup.md has it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from forebay.cli.client import Client
from forebay.core.cluster.replicas.balancing import Move
from forebay.local.cluster import Cluster
from forebay.local.metadata import leader_seen_by
from forebay.operations.cluster.reassignments import carry_out
from forebay.operations.wire import WireConnection
from support.brokers.forebay_command import forebay
from support.faults.etcd_backup import restore_backup, save_backup
from support.waiting import Patience

TOPIC = "orders"
SETTINGS = {
    "min.insync.replicas": "2",
    "forebay.lease.ttl.ms": "6000",
    "replica.lag.time.max.ms": "3000",
    "auto.leader.rebalance.enable": "false",
}
WAITING = "partitions have no leader before these brokers"
_SECONDS_MAX = 120.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, settings=SETTINGS) as running:
        yield running


def create(cluster: Cluster, topic: str, replicas: list[int] | None = None) -> None:
    """A topic with one partition, on all brokers or on these."""
    admin = AdminClient({**cluster.client_settings})
    new = (
        NewTopic(topic, 1, 3)
        if replicas is None
        else NewTopic(topic, 1, replica_assignment=[replicas], config={"min.insync.replicas": "1"})
    )
    admin.create_topics([new])[topic].result(_SECONDS_MAX)


def produce(cluster: Cluster, values: range, *, idempotent: bool = False) -> None:
    """Returns when every message is acknowledged by all in-sync replicas."""
    failed: list[object] = []
    producer = Producer(
        {
            **cluster.client_settings,
            "acks": "all",
            "message.timeout.ms": 100_000,
            "linger.ms": 5,
            "enable.idempotence": idempotent,
        }
    )
    for value in values:
        producer.produce(
            TOPIC,
            str(value).encode(),
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
    assert producer.flush(_SECONDS_MAX) == 0
    assert not failed


def read(cluster: Cluster, topic: str = TOPIC) -> list[int]:
    """All that can be read, once there is a leader."""
    cluster.leader(topic)
    consumer = Consumer({**cluster.client_settings, "group.id": "reader", "enable.auto.commit": False})
    place = TopicPartition(topic, 0, 0)
    patience = Patience("all messages are read")
    try:
        end = end_of(consumer, place)
        consumer.assign([place])
        found: dict[int, int] = {}
        while not found or max(found) + 1 < end:
            message = consumer.poll(1.0)
            patience.check(f"{len(found)} messages, until {end}")
            if message is not None and message.error() is None:
                found[message.offset() or 0] = int(message.value() or b"")
            if not end:
                break
        return list(found.values())
    finally:
        consumer.close()


def end_of(consumer: Consumer, place: TopicPartition) -> int:
    patience = Patience("a leader says where its log ends")
    while True:
        try:
            consumer.list_topics(place.topic, timeout=5)
            return int(consumer.get_watermark_offsets(place, timeout=5)[1])
        except KafkaException as error:
            patience.check(error)
            time.sleep(0.1)


def in_sync(cluster: Cluster, count: int, topic: str = TOPIC) -> list[int]:
    """The in-sync replicas, once there are as many."""
    admin = AdminClient({**cluster.client_settings})
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        partition = admin.list_topics(topic, timeout=30).topics[topic].partitions.get(0)
        if partition is not None and len(partition.isrs) == count:
            return list(partition.isrs)
        assert time.monotonic() < deadline, f"in sync are {partition and partition.isrs}, not {count}"
        time.sleep(0.05)


def move(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    """Returns when the partition is there."""
    wanted = Client(bootstrap=cluster.bootstrap_servers)
    with WireConnection.open(wanted) as connection:
        carry_out(
            connection, [Move(topic=topic, partition=0, replicas=tuple(replicas))], at_once=1, seconds_max=120
        )


def leads(cluster: Cluster, node: int, topic: str = TOPIC) -> bool:
    return leader_seen_by(cluster.address(node), topic, 0, cluster.client_settings) == node


def end_all(cluster: Cluster) -> None:
    for node in cluster.running:
        cluster.kill(node)


def test_what_was_committed_after_the_backup_is_kept(cluster: Cluster, tmp_path: Path) -> None:
    """The in-sync set of the backup names a follower that left it since, and that follower is back first."""
    create(cluster, TOPIC)
    produce(cluster, range(1000))
    in_sync(cluster, 3)
    save_backup(cluster.etcd, tmp_path / "backup")
    follower = next(node for node in cluster.running if node != cluster.leader(TOPIC))
    cluster.kill(follower)
    in_sync(cluster, 2)
    produce(cluster, range(1000, 2000))
    end_all(cluster)
    restore_backup(cluster.etcd, tmp_path / "backup")

    cluster.start(follower)
    # It is the controller as soon as the leases of the backup have ended, and waits for the others' logs.
    patience = Patience("a leader, or waiting for the others")
    while WAITING not in cluster.log(follower) and not leads(cluster, follower):
        patience.check(cluster.log(follower)[-2000:])
        time.sleep(0.1)
    for node in cluster.node_ids:
        cluster.start(node)
    assert sorted(read(cluster)) == list(range(2000))
    produce(cluster, range(2000, 2100))
    in_sync(cluster, 3)
    assert sorted(read(cluster)) == list(range(2100))
    shown = check(cluster)
    assert not shown["problems"], shown
    assert all(report["restores"] == 1 for report in shown["brokers"])


def test_a_missing_broker_is_named_and_an_administrator_may_go_on_without(
    cluster: Cluster, tmp_path: Path
) -> None:
    create(cluster, TOPIC)
    produce(cluster, range(100))
    in_sync(cluster, 3)
    save_backup(cluster.etcd, tmp_path / "backup")
    end_all(cluster)
    restore_backup(cluster.etcd, tmp_path / "backup")
    for node in (1, 2):
        cluster.start(node)
    wait_for_problem(cluster, "waits for brokers [3]")
    # It does not answer, and when its registration in the backup has ended, it is away.
    assert {"away", "no answer"} & {
        each["kind"] for each in check(cluster)["problems"] if each["broker"] == 3
    }
    offline = forebay("cluster", "check", "--data-dir", str(cluster.broker_data_dir(3)), "--json").json()
    (held,) = [each for each in offline["partitions"] if each["topic"] == TOPIC]
    assert held["topic_id"]
    elect_unclean(cluster)
    assert sorted(read(cluster)) == list(range(100))


def test_what_an_administrator_gives_up_is_kept_aside(cluster: Cluster, tmp_path: Path) -> None:
    """Broker 1 is elected without the others, which have more, and cut it off."""
    create(cluster, TOPIC)
    produce(cluster, range(100))
    in_sync(cluster, 3)
    save_backup(cluster.etcd, tmp_path / "backup")
    cluster.kill(1)
    in_sync(cluster, 2)
    produce(cluster, range(100, 150))
    end_all(cluster)
    restore_backup(cluster.etcd, tmp_path / "backup")
    cluster.start(1)
    wait_for_problem(cluster, "waits for brokers [2, 3]")
    elect_unclean(cluster)
    for node in (2, 3):
        cluster.start(node)
    in_sync(cluster, 3)
    assert sorted(read(cluster)) == list(range(100))
    kept = [each["broker"] for each in check(cluster)["problems"] if each["kind"] == "stray"]
    assert sorted(kept) == [2, 3]
    (stray,) = cluster.broker_data_dir(2).glob("*-stray")
    batches = forebay("log", "dump", str(stray / f"{0:020}.log"), "--json").json_lines()
    assert batches[-1]["last_offset"] == 149


def test_a_log_that_no_election_has_asked_for_is_not_deleted(cluster: Cluster, tmp_path: Path) -> None:
    """The partition was moved to broker 2 since the backup, and an administrator goes on without it."""
    create(cluster, TOPIC, [1])
    produce(cluster, range(100))
    save_backup(cluster.etcd, tmp_path / "backup")
    move(cluster, TOPIC, [2])
    produce(cluster, range(100, 150))
    end_all(cluster)
    restore_backup(cluster.etcd, tmp_path / "backup")
    for node in (1, 3):
        cluster.start(node)
    wait_for_problem(cluster, "waits for brokers [2]")
    elect_unclean(cluster)
    for _ in range(2):  # the second time it remembers the restored store
        cluster.start(2)
        cluster.stop(2)
    (stray,) = cluster.broker_data_dir(2).glob("*-stray")
    batches = forebay("log", "dump", str(stray / f"{0:020}.log"), "--json").json_lines()
    assert batches[-1]["last_offset"] == 149


@pytest.mark.parametrize("until_its_lease_has_ended", [False, True])
def test_a_broker_that_slept_through_a_restore_does_not_go_on_with_what_it_knew(
    cluster: Cluster, tmp_path: Path, until_its_lease_has_ended: bool
) -> None:
    """The store has a higher revision again than the broker has seen, and another history."""
    create(cluster, TOPIC)
    produce(cluster, range(100))
    in_sync(cluster, 3)
    save_backup(cluster.etcd, tmp_path / "backup")
    create(cluster, "since")
    cluster.leader("since")
    cluster.pause(3)
    for node in (1, 2):
        cluster.kill(node)
    restore_backup(cluster.etcd, tmp_path / "backup")
    for node in (1, 2):
        cluster.start(node)
    cluster.wait_until_ready()
    for number in range(10):
        create(cluster, f"later-{number}", [1])
    elect_unclean(cluster)
    patience = Patience("the lease of broker 3 ends")
    while until_its_lease_has_ended and ((image := cluster.seen_by(1)) is None or 3 in image.brokers):
        patience.check("it is still registered")
        time.sleep(0.1)
    cluster.resume(3)
    patience = Patience("broker 3 says why it does not join")
    while "the store has another history" not in cluster.log(3):
        patience.check(cluster.log(3)[-2000:])
        time.sleep(0.1)
    patience = Patience("broker 3 is not registered")
    while (seen := cluster.seen_by(1)) is None or 3 in seen.brokers:
        patience.check("its lease has not ended")
        time.sleep(0.1)
    cluster.stop(3)
    cluster.start(3)
    in_sync(cluster, 3)
    assert sorted(read(cluster)) == list(range(100))
    assert (cluster.broker_data_dir(3) / "since-0").is_dir(), "a topic that the store does not know"
    unused = {"kind": "stray", "broker": 3, "what": "since-0 is not used"}
    assert unused in check(cluster)["problems"]


def elect_unclean(cluster: Cluster) -> None:
    cluster.wait_until_ready()  # the registrations of the backup have ended, that of its controller too
    admin = AdminClient({**cluster.client_settings})
    admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(TOPIC, 0)]).result(_SECONDS_MAX)


def wait_for_problem(cluster: Cluster, words: str) -> None:
    """Until `forebay cluster check` says so; it asks every broker, so not all the time."""
    patience = Patience(f"a problem: {words}")
    while words not in str(problems := check(cluster)["problems"]):
        patience.check(problems)
        time.sleep(0.3)


def check(cluster: Cluster) -> dict[str, Any]:
    done = forebay("cluster", "check", "--json", bootstrap=cluster.bootstrap_servers)
    shown: dict[str, Any] = done.json()
    assert done.code == int(bool(shown["problems"])), done.err
    return shown


def test_no_producer_id_is_given_out_again(cluster: Cluster, tmp_path: Path) -> None:
    """A new producer with the id of an old one would be told the offsets of the old one's messages."""
    create(cluster, TOPIC)
    produce(cluster, range(5), idempotent=True)
    save_backup(cluster.etcd, tmp_path / "backup")
    # Each broker has a block, and takes another one when it is started again.
    for node in cluster.node_ids:
        cluster.stop(node)
        cluster.start(node)
    in_sync(cluster, 3)
    for number in range(1, 9):
        produce(cluster, range(number * 5, number * 5 + 5), idempotent=True)
    end_all(cluster)
    restore_backup(cluster.etcd, tmp_path / "backup")
    for node in cluster.node_ids:
        cluster.start(node)
    assert sorted(read(cluster)) == list(range(45))
    for number in range(9, 18):
        produce(cluster, range(number * 5, number * 5 + 5), idempotent=True)
    assert sorted(read(cluster)) == list(range(90))


def test_a_partition_that_was_moved_since_is_found_where_it_is(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, TOPIC, [1])
    produce(cluster, range(500))
    save_backup(cluster.etcd, tmp_path / "backup")
    move(cluster, TOPIC, [2])
    produce(cluster, range(500, 1000))
    end_all(cluster)
    restore_backup(cluster.etcd, tmp_path / "backup")
    for node in cluster.node_ids:
        cluster.start(node)
    assert sorted(read(cluster)) == list(range(1000))
    # It goes where the store says that it belongs, with all its messages.
    patience = Patience("broker 1 leads")
    while not leads(cluster, 1):
        patience.check()
        time.sleep(0.1)
    produce(cluster, range(1000, 1010))
    assert sorted(read(cluster)) == list(range(1010))


def test_replicas_with_later_epochs_than_the_store_elect_and_go_on(cluster: Cluster, tmp_path: Path) -> None:
    """Nothing remembers the store, as after an upgrade: the logs themselves show that it has gone back."""
    create(cluster, TOPIC)
    produce(cluster, range(1000))
    save_backup(cluster.etcd, tmp_path / "backup")
    for _ in range(2):  # new leaders, in later epochs
        cluster.stop(cluster.leader(TOPIC))
        in_sync(cluster, 2)
        for node in cluster.node_ids:
            cluster.start(node)
        in_sync(cluster, 3)
    produce(cluster, range(1000, 2000))
    end_all(cluster)
    for node in cluster.node_ids:
        (cluster.broker_data_dir(node) / "store-evidence").unlink()
    restore_backup(cluster.etcd, tmp_path / "backup")
    for node in cluster.node_ids:
        cluster.start(node)
    assert sorted(read(cluster)) == list(range(2000))
    produce(cluster, range(2000, 2100))
    in_sync(cluster, 3)
    assert sorted(read(cluster)) == list(range(2100))
    assert any("later leader epochs than the store" in cluster.log(node) for node in cluster.node_ids)
