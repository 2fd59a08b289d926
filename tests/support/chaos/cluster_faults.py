"""What can happen to a cluster, one function each: it strikes, and mends again when its block is left.

A fault picks its victim among the brokers that are well, so that two faults at a time make sense. Those that
bring processes back must not find etcd away: so they strike first, and mend last.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from forebay.local.etcd import EtcdServer
from support.chaos.chaos_cluster import ChaosCluster
from support.faults.links import Link, broker_name

Strike = Callable[[ChaosCluster, random.Random], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    name: str
    strike: Strike
    seconds: tuple[float, float]
    """How long it lasts, at least and at most. The lease of a broker is six seconds."""
    restarts: bool = False
    """Whether it ends processes and starts them again."""
    alone: bool = False
    """Whether it needs all replicas in sync before, and no other fault beside it: it destroys one."""
    needs_small_disk: bool = False


def victim(cluster: ChaosCluster, chance: random.Random) -> int:
    return chance.choice(cluster.well)


def _of_one(
    strike: Callable[[ChaosCluster, int], object], mend: Callable[[ChaosCluster, int], object]
) -> Strike:
    """A fault of one broker."""

    @contextlib.contextmanager
    def fault(cluster: ChaosCluster, chance: random.Random) -> Iterator[None]:
        node = victim(cluster, chance)
        strike(cluster, node)
        yield
        mend(cluster, node)

    return fault


# -- processes -----------------------------------------------------------------------------------------------

killed = _of_one(ChaosCluster.kill, ChaosCluster.start)
stopped = _of_one(ChaosCluster.stop, ChaosCluster.start)
paused = _of_one(ChaosCluster.pause, ChaosCluster.resume)


@contextlib.contextmanager
def all_killed(cluster: ChaosCluster, chance: random.Random) -> Iterator[None]:
    nodes = cluster.well
    chance.shuffle(nodes)
    for node in nodes:
        cluster.kill(node)
    yield
    for node in nodes:
        cluster.start(node)


# -- network -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _held(cluster: ChaosCluster, links: list[Link]) -> Iterator[None]:
    cluster.links.hold(*links)
    yield
    cluster.links.heal(*links)


def cut_from_brokers(cluster: ChaosCluster, chance: random.Random) -> AbstractContextManager[None]:
    return _held(cluster, cluster.links_to_brokers(victim(cluster, chance)))


def cut_one_way(cluster: ChaosCluster, chance: random.Random) -> AbstractContextManager[None]:
    """It hears the others, or they hear it."""
    node = victim(cluster, chance)
    side = chance.randrange(2)
    return _held(
        cluster, [pair for pair in cluster.links_to_brokers(node) if pair[side] == broker_name(node)]
    )


def cut_from_etcd(cluster: ChaosCluster, chance: random.Random) -> AbstractContextManager[None]:
    return _held(cluster, cluster.links_to_etcd(victim(cluster, chance)))


def cut_from_clients(cluster: ChaosCluster, chance: random.Random) -> AbstractContextManager[None]:
    return _held(cluster, cluster.links_to_clients(victim(cluster, chance)))


def cut_but_for_clients(cluster: ChaosCluster, chance: random.Random) -> AbstractContextManager[None]:
    """Nobody but its clients believes that it leads."""
    node = victim(cluster, chance)
    return _held(cluster, cluster.links_to_brokers(node) + cluster.links_to_etcd(node))


@contextlib.contextmanager
def torn(cluster: ChaosCluster, _chance: random.Random) -> Iterator[None]:
    cluster.links.tear(*cluster.all_links())
    yield


# -- etcd ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def etcd_leader_killed(cluster: ChaosCluster, _chance: random.Random) -> Iterator[None]:
    leader = cluster.etcd.leader()
    cluster.etcd.servers[leader].kill()
    yield
    cluster.etcd.restart(leader)


@contextlib.contextmanager
def etcd_leader_paused(cluster: ChaosCluster, _chance: random.Random) -> Iterator[None]:
    with _paused([cluster.etcd.servers[cluster.etcd.leader()]]):
        yield


@contextlib.contextmanager
def etcd_away(cluster: ChaosCluster, _chance: random.Random) -> Iterator[None]:
    with _paused(cluster.etcd.servers):
        yield


@contextlib.contextmanager
def _paused(servers: list[EtcdServer]) -> Iterator[None]:
    for server in servers:
        server.pause()
    yield
    for server in servers:
        server.resume()


# -- disks ---------------------------------------------------------------------------------------------------


def _lose_disk(cluster: ChaosCluster, node: int) -> None:
    cluster.kill(node)
    cluster.lose_disk(node)


disk_full = _of_one(ChaosCluster.fill_disk, ChaosCluster.empty_disk)
disk_lost = _of_one(_lose_disk, ChaosCluster.start)

FAULTS = (
    Fault(name="killed", strike=killed, seconds=(0.0, 9.0), restarts=True),
    Fault(name="all killed", strike=all_killed, seconds=(0.0, 2.0), restarts=True),
    Fault(name="stopped", strike=stopped, seconds=(0.0, 4.0), restarts=True),
    Fault(name="paused", strike=paused, seconds=(0.2, 4.0)),
    Fault(name="paused past its lease", strike=paused, seconds=(7.0, 10.0)),
    Fault(name="cut from brokers", strike=cut_from_brokers, seconds=(1.0, 9.0)),
    Fault(name="cut from brokers one way", strike=cut_one_way, seconds=(1.0, 9.0)),
    Fault(name="cut from etcd", strike=cut_from_etcd, seconds=(1.0, 9.0)),
    Fault(name="cut from clients", strike=cut_from_clients, seconds=(0.5, 5.0)),
    Fault(name="cut from all but clients", strike=cut_but_for_clients, seconds=(2.0, 10.0)),
    Fault(name="all connections torn", strike=torn, seconds=(0.0, 0.5)),
    Fault(name="etcd leader killed", strike=etcd_leader_killed, seconds=(0.5, 4.0)),
    Fault(name="etcd leader paused", strike=etcd_leader_paused, seconds=(0.5, 6.0)),
    Fault(name="etcd away", strike=etcd_away, seconds=(1.0, 9.0)),
    Fault(name="disk full", strike=disk_full, seconds=(1.0, 6.0), alone=True, needs_small_disk=True),
    Fault(name="disk lost", strike=disk_lost, seconds=(0.0, 2.0), restarts=True, alone=True),
)
