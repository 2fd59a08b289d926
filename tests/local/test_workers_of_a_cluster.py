"""Two hosts with two workers each, coordinated by a real etcd.

Both hosts are this machine, at two of its loopback addresses: hosts are distinguished by their addresses.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from forebay.local.etcd import EtcdCluster
from support.brokers.forebay_command import forebay
from support.brokers.host_process import HostProcess, running_host
from support.brokers.replicated import until
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin
from support.clients.load import Load, read_all

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="macOS has no address 127.0.0.2")

ADDRESSES = ("127.0.0.1", "127.0.0.2")
WORKERS = 2
PARTITIONS = 6
SETTINGS = ("default.replication.factor=2", "min.insync.replicas=1", "offsets.topic.num.partitions=2")


@contextlib.contextmanager
def running_hosts(folder: Path, racks: tuple[str, ...] = ()) -> Iterator[list[HostProcess]]:
    with EtcdCluster(1) as etcd, contextlib.ExitStack() as closing:
        in_racks: list[tuple[str, ...]] = [("--rack", rack) for rack in racks]
        yield [
            closing.enter_context(
                running_host(
                    folder / address,
                    WORKERS,
                    *SETTINGS,
                    options=("--cluster", etcd.url("hosts"), *given),
                    address=address,
                )
            )
            for address, given in zip(ADDRESSES, in_racks or [()] * len(ADDRESSES), strict=True)
        ]


def hosts_of_brokers(bootstrap: str) -> dict[int, str]:
    found = confluent_admin(bootstrap).list_topics(timeout=DEADLINE_SECONDS).brokers
    return {number: str(broker.host) for number, broker in found.items()}


def create(hosts: list[HostProcess], topic: str) -> None:
    new = NewTopic(topic, PARTITIONS, replication_factor=-1)  # as the settings say
    admin = confluent_admin(hosts[0].bootstrap)
    admin.create_topics([new])[topic].result(DEADLINE_SECONDS)


def is_whole(bootstrap: str, topic: str) -> bool:
    """True if all workers of all hosts are there, and all replicas are in sync."""
    try:
        found = confluent_admin(bootstrap).list_topics(timeout=5)
    except KafkaException:
        return False
    parts = found.topics[topic].partitions.values()
    return len(found.brokers) == WORKERS * len(ADDRESSES) and all(
        len(part.isrs) == len(part.replicas) for part in parts
    )


@pytest.mark.parametrize("racks", [(), ("a", "a")], ids=["the host's name", "one rack for both"])
def test_replicas_of_a_partition_are_never_on_one_host(tmp_path: Path, racks: tuple[str, ...]) -> None:
    with running_hosts(tmp_path, racks) as hosts:
        create(hosts, "t")
        places = hosts_of_brokers(hosts[0].bootstrap)
        assert sorted(places.values()) == sorted(ADDRESSES * WORKERS)
        found = confluent_admin(hosts[1].bootstrap).list_topics("t", timeout=DEADLINE_SECONDS)
        parts = found.topics["t"].partitions
        for part in parts.values():
            assert sorted(places[replica] for replica in part.replicas) == sorted(ADDRESSES)
        assert {part.leader for part in parts.values()} == set(places)  # every worker leads some
        shown = forebay("cluster", "describe", "--json", bootstrap=hosts[0].bootstrap).json()
        rack = racks[0] if racks else socket.gethostname()
        assert {broker["rack"] for broker in shown["brokers"]} == {rack}


def test_nothing_is_lost_when_all_of_a_host_is_killed_and_later_all_of_the_other(tmp_path: Path) -> None:
    """Parent and workers of one host at once, under load. It comes back, and the other host is killed."""
    with running_hosts(tmp_path) as hosts:
        create(hosts, "t")
        everybody = ",".join(host.bootstrap for host in hosts)
        with Load(everybody, "t", partitions=PARTITIONS, idempotent=True, acks="all", pace_s=0.02) as load:
            load.wait_for_more(20)
            for killed, other in (hosts, hosts[::-1]):
                killed.kill_all()
                load.wait_for_more(PARTITIONS * 5)
                killed.start()
                until(partial(is_whole, other.bootstrap, "t"), "all replicas are in sync")
                load.wait_for_more(20)
        assert load.failed == []
        for partition in range(PARTITIONS):
            found = read_all(everybody, "t", partition)
            told = {at: value for (number, at), value in load.acknowledged.items() if number == partition}
            assert told == {offset: found.get(offset) for offset in told}
            assert list(found.values()) == load.sent[partition]
        for host in hosts:
            assert "Traceback" not in host.log(), host.log()[-4_000:]
            assert host.end() == 0


def test_a_worker_that_is_killed_leads_nothing_until_it_is_back_with_its_own_number(tmp_path: Path) -> None:
    with running_hosts(tmp_path) as hosts:
        create(hosts, "t")
        before = hosts_of_brokers(hosts[0].bootstrap)
        killed = hosts[1].kill_worker(2)
        until(lambda: hosts[1].worker_pids().get(2, killed) != killed, "the worker runs again")
        until(lambda: is_whole(hosts[0].bootstrap, "t"), "it has joined, and caught up")
        assert hosts_of_brokers(hosts[0].bootstrap) == before
