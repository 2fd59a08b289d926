"""A broker that is told to stop ends, whatever it waits for at that moment, and nobody counts on it after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from forebay.coordination.store import Delete, Put
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.stored.image_text import encode_broker
from forebay.sim.simulation import Simulation, Story
from forebay.sim.world.node import SimNode
from forebay.sim.world.store import KEYS
from forebay.sim.world.virtual_time import World

_STOP_S_MAX = 3.0
"""Less than a lease lasts, or a broker waits for one."""


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    simulation = Simulation(World(7), Story(seed=7, faults=False))
    yield simulation
    simulation.end()


def is_registered(simulation: Simulation, node: SimNode) -> bool:
    return simulation.store.own.keyspace.get(KEYS.broker(node.node_id)) is not None


def stop(simulation: Simulation, node: SimNode) -> None:
    assert node.running and not node.ready, "it is about to join"
    node.stop()
    simulation.world.run_until(simulation.world.now + _STOP_S_MAX, lambda: not node.running)
    assert simulation.world.breach is None, simulation.world.breach
    assert not node.running, "it does not end"


def test_a_broker_that_waits_for_a_lease_to_end_stops_although_it_watches_others(
    simulation: Simulation,
) -> None:
    world, (waiting, other, _) = simulation.world, simulation.nodes
    namesake = BrokerRegistration(id=waiting.node_id, host="elsewhere", port=1, directory="another")
    simulation.store.txn([], [Put(key=KEYS.broker(waiting.node_id), value=encode_broker(namesake))], [], "x")
    waiting.start()
    world.run_until(2.0)
    other.start()
    world.run_until(4.0, lambda: other.ready)
    world.run_until(world.now + 0.5)
    assert waiting.broker is not None
    assert other.node_id in waiting.broker.failover.watch.watched
    stop(simulation, waiting)


def test_a_broker_that_has_not_seen_its_registration_takes_it_back_when_it_stops(
    simulation: Simulation,
) -> None:
    world, (joining, other, _) = simulation.world, simulation.nodes
    other.start()
    world.run_until(10.0, lambda: other.ready)
    joining.start()
    world.run_until(world.now + 10.0, lambda: is_registered(simulation, joining))
    simulation.store.deafen(joining.host, 60.0)
    world.run_until(world.now + 0.5)
    assert is_registered(simulation, joining)
    stop(simulation, joining)
    assert not is_registered(simulation, joining)


def test_a_broker_whose_registration_is_on_its_way_takes_it_back_when_it_stops(
    simulation: Simulation,
) -> None:
    world, (joining, _, _) = simulation.world, simulation.nodes
    key, written = KEYS.broker(joining.node_id), simulation.store.on_txn
    stopped: list[str] = []

    def stop_before_the_answer(host: str, puts: Sequence[Put], deletes: Sequence[Delete]) -> None:
        written(host, puts, deletes)
        if any(put.key == key for put in puts):
            stopped.append(host)
            joining.stop()

    simulation.store.on_txn = stop_before_the_answer
    joining.start()
    world.run_until(10.0, lambda: bool(stopped) and not joining.running)
    assert stopped and not joining.running
    assert world.breach is None, world.breach
    assert not is_registered(simulation, joining)
