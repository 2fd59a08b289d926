"""An older state of the store answers only where every broker refuses it for good. They would write to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from forebay.broker.worker_threads import WorkerThreads
from forebay.sim.faults import links
from forebay.sim.faults.links import LinkFaults
from forebay.sim.simulation import Simulation, Story
from forebay.sim.world.store import KEYS
from forebay.sim.world.virtual_time import World

_AGE_S = 8.0


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulation]:
    monkeypatch.setattr(links, "_BACKUP_AGE_S", (_AGE_S, _AGE_S))
    simulation = Simulation(World(7), Story(seed=7, brokers=1, faults=False))
    yield simulation
    simulation.end()


def lose_lease(simulation: Simulation) -> None:
    simulation.store.forget(1)


def lose_lease_and_write_nothing(simulation: Simulation) -> None:
    """As a broker of an earlier version, which writes its evidence a minute later."""

    async def write_nothing(_workers: WorkerThreads) -> None:
        pass

    broker = simulation.nodes[0].broker
    assert broker is not None
    broker.store_memory.renew = write_nothing  # type: ignore[assignment,method-assign]
    lose_lease(simulation)


def restart(simulation: Simulation) -> None:
    node = simulation.nodes[0]
    node.kill()
    node.start()


@pytest.mark.parametrize(
    ("event", "goes_back"),
    [(lose_lease_and_write_nothing, False), (lose_lease, True), (restart, True)],
    ids=["only a lease began anew", "a broker joined again", "a broker was started anew"],
)
def test_the_store_goes_back_only_if_more_than_leases_tells(
    simulation: Simulation, event: Callable[[Simulation], None], goes_back: bool
) -> None:
    world, (node,) = simulation.world, simulation.nodes
    node.start()
    world.run_until(world.now + 10.0, lambda: node.ready)
    kinds = [fault for fault, _ in LinkFaults(simulation.scene).kinds()]
    go_back = next(fault for fault in kinds if fault.__name__ == "_store_goes_back")
    before = simulation.store.own.keyspace.get(KEYS.broker(1))
    assert before is not None
    go_back()
    event(simulation)
    world.run_until(world.now + _AGE_S - 0.1)
    after = simulation.store.own.keyspace.get(KEYS.broker(1))
    assert after is not None and after.create_revision > before.create_revision
    world.run_until(world.now + 0.2)
    assert any("the store goes back" in line for line in world.recent) == goes_back
