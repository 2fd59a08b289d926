"""`forebay cluster`: seeing, balancing and draining a real one; starting one and stopping it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.testing import Cluster
from support.brokers.forebay_command import command, forebay, running_command
from support.scraping import scrape, visit

PARTITIONS = 6
MESSAGES = 200
SECONDS_MAX = 90.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"forebay.lease.ttl.ms": 6_000}
    with Cluster(brokers=2, racks=["north", "south"], settings=settings) as running:
        servers = running.bootstrap_servers
        for arguments in (
            ("topic", "create", "spread", "--partitions", str(PARTITIONS), "--replication-factor", "2"),
            ("topic", "create", "single", "--partitions", str(PARTITIONS), "--replication-factor", "1"),
        ):
            assert forebay(*arguments, bootstrap=servers).code == 0
        lines = "".join(f"{number}\n" for number in range(MESSAGES))
        for topic in ("spread", "single"):
            assert forebay("produce", topic, bootstrap=servers, stdin=lines).code == 0
        yield running


def test_a_topic_that_needs_every_replica_is_created_with_a_note(cluster: Cluster) -> None:
    def make(name: str, *options: str) -> str:
        done = forebay("topic", "create", name, *options, bootstrap=cluster.bootstrap_servers)
        assert done.code == 0, done.err
        return done.err

    assert "acks=all needs both replicas in sync (min.insync.replicas is 2)" in make("both")
    assert make("one", "--replication-factor", "1") == ""
    assert make("either", "--replication-factor", "2", "--config", "min.insync.replicas=1") == ""
    until(lambda: any("topic=both replicas=2 min_insync=2" in line for line in warned(cluster)))
    assert not any("topic=one" in line or "topic=either" in line for line in warned(cluster))
    for name, minimum, told in (("both", 2, True), ("either", 1, False)):
        done = forebay("topic", "describe", name, bootstrap=cluster.bootstrap_servers)
        assert f"acks=all needs {minimum} of 2 replicas in sync" in done.out
        assert ("note: acks=all needs both" in done.err) == told
        shown = forebay("topic", "describe", name, "--json", bootstrap=cluster.bootstrap_servers).json()
        assert shown["min_insync_replicas"] == minimum


def warned(cluster: Cluster) -> list[str]:
    logs = "".join(cluster.log(node) for node in cluster.node_ids)
    return [line for line in logs.splitlines() if "acks=all will be refused" in line]


def until(condition: Callable[[], bool]) -> None:
    """Brokers hear of changes one after the other, and write their logs when they have time."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def described(cluster: Cluster) -> Any:
    done = forebay("cluster", "describe", "--json", bootstrap=cluster.bootstrap_servers)
    assert done.code == 0, done.err
    return done.json()


def holdings(cluster: Cluster) -> dict[int, int]:
    """How many replicas each broker has."""
    return {broker["id"]: broker["replicas"] for broker in described(cluster)["brokers"]}


def assert_everything_is_there(cluster: Cluster) -> None:
    for topic in ("spread", "single"):
        done = forebay("consume", topic, "--exit-at-end", bootstrap=cluster.bootstrap_servers)
        assert sorted(map(int, done.out.split())) == list(range(MESSAGES))


def test_describe_shows_brokers_and_their_shares(cluster: Cluster) -> None:
    found = described(cluster)
    assert [(broker["id"], broker["rack"]) for broker in found["brokers"]] == [(1, "north"), (2, "south")]
    assert found["partitions"] == sum(broker["leaders"] for broker in found["brokers"])
    assert found["controller"] in (1, 2)
    assert (found["leaderless"], found["under_replicated"], found["reassignments"]) == ([], [], [])
    table = forebay("cluster", "describe", bootstrap=cluster.bootstrap_servers).out
    assert f"controller: broker {found['controller']}" in table
    assert re.search(r"1\s+127\.0\.0\.1:\d+\s+north", table)


def test_describe_shows_what_a_dead_broker_leaves_behind(cluster: Cluster) -> None:
    cluster.kill(2)
    try:
        until(lambda: len(described(cluster)["under_replicated"]) >= PARTITIONS)
        found = described(cluster)
        assert [broker["alive"] for broker in found["brokers"]] == [True, False]
        # What has one replica only waits for its broker.
        assert {place.rpartition("-")[0] for place in found["leaderless"]} >= {"single"}
        assert "under-replicated:" in forebay("cluster", "describe", bootstrap=cluster.bootstrap_servers).out
    finally:
        cluster.start(2)
        cluster.wait_until_ready()


def test_a_broker_that_was_restarted_leads_its_share_again(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers

    def leaders() -> dict[int, int]:
        return {broker["id"]: broker["leaders"] for broker in described(cluster)["brokers"]}

    assert forebay("cluster", "rebalance", bootstrap=servers).code == 0
    until(lambda: max(leaders().values()) - min(leaders().values()) <= 1)
    before = leaders()
    cluster.kill(2)
    until(lambda: len(described(cluster)["under_replicated"]) >= PARTITIONS)
    cluster.start(2)
    cluster.wait_until_ready()
    until(lambda: not described(cluster)["under_replicated"])
    assert leaders() != before, "what it led is led by the other one, which nobody takes it from at once"
    planned = forebay("cluster", "rebalance", "--dry-run", bootstrap=servers)
    assert "leaderships would go" in planned.out and leaders() != before
    done = forebay("cluster", "rebalance", bootstrap=servers)
    assert done.code == 0 and "leaderships went" in done.out, done.err
    until(lambda: leaders() == before)
    assert forebay("cluster", "rebalance", bootstrap=servers).out == "nothing to move\n"


def test_a_new_broker_gets_its_share_and_an_old_one_is_drained(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    node = cluster.add(rack="east")
    cluster.wait_until_ready()
    assert node not in holdings(cluster) or holdings(cluster)[node] == 0

    planned = forebay("cluster", "rebalance", "--dry-run", "--json", bootstrap=servers).json()
    assert {replica for move in planned for replica in move["to"]} >= {node}
    assert holdings(cluster).get(node, 0) == 0, "a dry run moves nothing"

    done = forebay("cluster", "rebalance", "--at-once", "3", bootstrap=servers)
    assert done.code == 0, done.err
    assert f"moved {len(planned)} of {len(planned)} partitions" in done.err
    until(lambda: max(holdings(cluster).values()) - min(holdings(cluster).values()) <= 1)
    assert forebay("cluster", "rebalance", bootstrap=servers).out == "nothing to move\n"
    assert_everything_is_there(cluster)

    done = forebay("topic", "create", "everywhere", "--replication-factor", "3", bootstrap=servers)
    assert done.code == 0, done.err
    done = forebay("cluster", "drain", "1", bootstrap=servers)
    assert done.code == 1
    assert "--fewer-replicas" in done.err
    done = forebay("cluster", "drain", "1", "--fewer-replicas", bootstrap=servers)
    assert done.code == 0, done.err
    assert "broker 1 holds nothing" in done.out
    until(lambda: holdings(cluster)[1] == 0)
    assert_everything_is_there(cluster)

    # It is about to leave, so it gets nothing new, however empty it is.
    assert forebay("topic", "create", "later", "--partitions", "6", bootstrap=servers).code == 0
    assert forebay("cluster", "rebalance", bootstrap=servers).code == 0
    assert holdings(cluster)[1] == 0
    assert "(drained)" in forebay("cluster", "describe", bootstrap=servers).out
    done = forebay("cluster", "drain", "1", "--undo", bootstrap=servers)
    assert "broker 1 gets partitions again" in done.out
    assert forebay("cluster", "rebalance", bootstrap=servers).code == 0
    until(lambda: holdings(cluster)[1] > 0)


def test_a_broker_that_was_stopped_for_good_is_forgotten(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    node = cluster.add(rack="west")
    cluster.wait_until_ready()
    refused = forebay("cluster", "forget", "2", bootstrap=servers)
    assert refused.code == 1 and "forebay cluster drain 2" in refused.err
    assert forebay("cluster", "drain", str(node), bootstrap=servers).code == 0
    running = forebay("cluster", "forget", str(node), bootstrap=servers)
    assert running.code == 1 and "is running" in running.err
    cluster.stop(node)
    until(lambda: node not in holdings(cluster))
    assert forebay("cluster", "forget", str(node), bootstrap=servers).out == f"forgot broker {node}\n"
    again = forebay("cluster", "forget", str(node), bootstrap=servers)
    assert again.code == 1 and "not currently registered" in again.err


def test_what_cannot_be_done_says_why(cluster: Cluster) -> None:
    done = forebay("cluster", "drain", "77", bootstrap=cluster.bootstrap_servers)
    assert done.code == 1
    assert "there is no broker 77" in done.err
    nobody = forebay("cluster", "describe", bootstrap="127.0.0.1:1")
    assert nobody.code == 1
    assert "no broker answers at 127.0.0.1:1" in nobody.err


def test_start_runs_until_it_is_stopped_and_keeps_its_data(tmp_path: Path) -> None:
    for expected in (1, 2):
        with running_command(
            "cluster", "start", "--brokers", "1", "--port", "0", "--data", str(tmp_path)
        ) as (child, out):
            ready = out.readline().decode()
            found = re.match(r"forebay cluster ready on (\S+) \(1 broker, data ", ready)
            assert found is not None, ready
            assert forebay("produce", "t", bootstrap=found[1], stdin="x\n").code == 0
            offsets = forebay("topic", "describe", "t", "--json", bootstrap=found[1]).json()["partitions"]
            assert sum(part["end_offset"] for part in offsets) == expected, json.dumps(offsets)
            child.send_signal(signal.SIGINT)
            assert child.wait(SECONDS_MAX) == 0


def neighbouring_ports() -> int:
    """The first of two ports that are free."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def test_each_broker_serves_its_metrics_at_a_port_of_its_own() -> None:
    port = neighbouring_ports()
    with running_command(
        "cluster", "start", "--brokers", "2", "--port", "0", "--metrics-port", str(port)
    ) as (child, out):
        assert b"cluster ready" in out.readline()
        addresses = [("127.0.0.1", port), ("127.0.0.1", port + 1)]
        assert [visit(address, "/readyz").status for address in addresses] == [200, 200]
        pages = [scrape(address) for address in addresses]
        assert [page("kafka_brokers") for page in pages] == [2, 2]
        assert sum(page("kafka_controller_kafkacontroller_activecontrollercount") for page in pages) == 1
        child.send_signal(signal.SIGINT)
        assert child.wait(SECONDS_MAX) == 0


def test_a_broker_that_somebody_kills_is_told_and_is_no_failure() -> None:
    with running_command("cluster", "start", "--brokers", "1", "--port", "0") as (child, out):
        assert b"cluster ready" in out.readline()
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        (broker,) = (pid for pid in children if b"local.serve" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(int(broker), signal.SIGKILL)
        assert b"broker 1 has ended; its log:" in out.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(SECONDS_MAX) == 0


def test_start_says_when_a_port_is_taken(cluster: Cluster) -> None:
    port = cluster.address(1).rpartition(":")[2]
    done = subprocess.run(
        command("cluster", "start", "--brokers", "1", "--port", port),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr
