"""Processes that are killed, and processes that are stopped: which of them are counted as dead at once.

Leases are as long as they can be, so that none ends while a test runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forebay.testing import Cluster
from support.brokers.forebay_command import forebay

PARTITIONS = 6
LEASE_S = 60.0
SECONDS_MAX = 90.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"forebay.lease.ttl.ms": round(1000 * LEASE_S)}) as running:
        make = ("topic", "create", "t", "--partitions", str(PARTITIONS), "--replication-factor", "3")
        assert forebay(*make, bootstrap=running.bootstrap_servers).code == 0
        yield running


def described(cluster: Cluster, node: int) -> Any:
    done = forebay("cluster", "describe", "--json", bootstrap=cluster.address(node))
    assert done.code == 0, done.err
    return done.json()


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
    return found


def judged(cluster: Cluster, node: int) -> list[int]:
    """The brokers that were counted as dead."""
    return [failover["broker"] for failover in described(cluster, node)["failovers"]]


def wait_until_in_sync(cluster: Cluster, node: int) -> None:
    cluster.wait_until_ready()
    until(lambda: not described(cluster, node)["under_replicated"] and described(cluster, node)["controller"])


def test_a_process_that_is_killed_is_counted_as_dead_and_one_that_is_stopped_is_not(cluster: Cluster) -> None:
    wait_until_in_sync(cluster, 1)
    witness = described(cluster, 1)["controller"]
    stopped, killed = (node for node in cluster.node_ids if node != witness)
    cluster.pause(stopped)
    try:
        cluster.kill(killed)
        until(lambda: killed in judged(cluster, witness))
        found = described(cluster, witness)
        assert [broker["id"] for broker in found["brokers"] if not broker["alive"]] == [killed]
        assert judged(cluster, witness) == [killed]
    finally:
        cluster.resume(stopped)
        cluster.start(killed)
    wait_until_in_sync(cluster, witness)


def test_the_death_of_the_controller_is_noticed_by_the_others(cluster: Cluster) -> None:
    wait_until_in_sync(cluster, 1)
    victim = described(cluster, 1)["controller"]
    witness = next(node for node in cluster.node_ids if node != victim)
    cluster.kill(victim)
    until(lambda: victim in judged(cluster, witness))
    until(lambda: described(cluster, witness)["controller"])
    found = described(cluster, witness)
    assert found["controller"] != victim
    assert not found["leaderless"]
    table = forebay("cluster", "describe", bootstrap=cluster.address(witness)).out
    assert "last failovers:" in table
