"""Which brokers are counted as dead before their leases end, in virtual time: so each bound is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from forebay.coordination.store import StoreError
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.sim.actors.topic_maker import TopicMaker
from forebay.sim.simulation import Simulation, Story, simulate
from forebay.sim.world.node import SimNode
from forebay.sim.world.places import SURE
from forebay.sim.world.virtual_time import World

SOON_S = 2.0
KEEP_ALIVE_S = 2.0
LEASE_LEFT_S = 5.0
"""What is left of a lease of 8 s at least: it is renewed every 2 s, and its holder stops in time."""


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    """Three brokers with all replicas in sync."""
    simulation = Simulation(World(3), Story(seed=3, plot="refusals"))
    for node in simulation.nodes:
        node.start()
    wait(simulation, lambda: all(node.ready for node in simulation.nodes))
    maker = simulation.workload.add("maker", partial(TopicMaker, replication_factor=3))
    wait(simulation, lambda: maker.done)
    wait(simulation, simulation.invariants.converged)
    simulation.world.run_until(simulation.world.now + 3.0)
    yield simulation
    simulation.end()


def wait(simulation: Simulation, enough: Callable[[], bool], seconds: float = 60.0) -> float:
    """How long it took."""
    world = simulation.world
    began = world.now
    world.run_until(began + seconds, enough)
    assert world.breach is None, world.breach
    assert enough()
    return world.now - began


def leader(simulation: Simulation) -> SimNode:
    state = simulation.store.image().partition(*SURE[0])
    assert state is not None
    return simulation.nodes[state.leader - 1]


def replaced(simulation: Simulation, victim: SimNode) -> bool:
    state = simulation.store.image().partition(*SURE[0])
    return state is not None and state.leader not in (NO_LEADER, victim.node_id)


def reset_all(simulation: Simulation, victim: SimNode) -> list[str]:
    """Break the connections of a broker to the others; their names."""
    others = [node.host for node in simulation.nodes if node is not victim]
    for other in others:
        simulation.network.reset_between(other, victim.host)
    return others


def keep_out(simulation: Simulation, victim: SimNode) -> None:
    """Let a broker seem to refuse the others."""
    for other in reset_all(simulation, victim):
        simulation.network.refuse(other, victim.host)


def let_in(simulation: Simulation, victim: SimNode) -> None:
    for node in simulation.nodes:
        simulation.network.accept(node.host, victim.host)


def test_a_process_that_is_killed_is_replaced_soon(simulation: Simulation) -> None:
    victim = leader(simulation)
    victim.kill()
    assert wait(simulation, lambda: replaced(simulation, victim)) < SOON_S
    assert simulation.verdicts.count == 1


def test_a_controller_that_is_killed_is_replaced_soon(simulation: Simulation) -> None:
    victim = simulation.nodes[simulation.store.image().controller - 1]
    victim.kill()
    took = wait(simulation, lambda: simulation.store.image().controller not in (-1, victim.node_id))
    assert took < SOON_S
    assert simulation.verdicts.count == 1


def test_two_that_are_killed_together_are_both_noticed(simulation: Simulation) -> None:
    victims = [node for node in simulation.nodes if node is not leader(simulation)]
    for victim in victims:
        victim.kill()
    survivor = leader(simulation).node_id
    took = wait(simulation, lambda: [*simulation.store.image().brokers] == [survivor])
    assert took < SOON_S


def test_a_process_that_is_paused_is_replaced_when_its_lease_ends(simulation: Simulation) -> None:
    victim = leader(simulation)
    victim.pause()
    assert wait(simulation, lambda: replaced(simulation, victim)) > LEASE_LEFT_S
    assert simulation.verdicts.count == 0


def test_a_machine_without_power_is_replaced_when_its_lease_ends(simulation: Simulation) -> None:
    victim = leader(simulation)
    victim.lose_power()
    assert wait(simulation, lambda: replaced(simulation, victim)) > LEASE_LEFT_S
    assert simulation.verdicts.count == 0


def test_a_broker_that_cannot_be_reached_is_not_judged(simulation: Simulation) -> None:
    victim = leader(simulation)
    for other in reset_all(simulation, victim):
        simulation.network.cut(other, victim.host)
        simulation.network.cut(victim.host, other)
    simulation.world.run_until(simulation.world.now + 20.0)
    assert simulation.verdicts.count == 0


def test_a_reset_alone_proves_nothing(simulation: Simulation) -> None:
    reset_all(simulation, leader(simulation))
    simulation.world.run_until(simulation.world.now + SOON_S)
    assert simulation.verdicts.count == 0


def test_a_live_broker_that_is_refused_is_replaced_and_comes_back(simulation: Simulation) -> None:
    victim = leader(simulation)
    assert victim.broker is not None
    epoch = victim.broker.lease.epoch
    keep_out(simulation, victim)
    wait(simulation, lambda: simulation.verdicts.count == 1, SOON_S)
    let_in(simulation, victim)
    held = victim.broker.lease
    wait(simulation, lambda: held.valid() and held.epoch > epoch, SOON_S)
    wait(simulation, simulation.invariants.converged)
    assert victim.starts == 1


def test_a_live_broker_that_is_refused_and_cannot_read_the_image_knows_by_its_lease(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = leader(simulation)
    assert victim.broker is not None
    held, epoch = victim.broker.lease, victim.broker.lease.epoch
    keep_out(simulation, victim)
    simulation.store.deafen(victim.host, 30.0)
    with monkeypatch.context() as patch:
        patch.setattr(victim.broker.metadata, "catch_up", no_answer)
        wait(simulation, lambda: simulation.verdicts.count == 1, SOON_S)
        wait(simulation, lambda: not held.valid(), KEEP_ALIVE_S + 1.0)
    let_in(simulation, victim)
    wait(simulation, lambda: held.valid() and held.epoch > epoch)
    wait(simulation, simulation.invariants.converged)


async def no_answer() -> None:
    raise StoreError("no answer")


def test_a_broker_that_is_back_before_the_second_try_is_not_judged(simulation: Simulation) -> None:
    victim = leader(simulation)
    keep_out(simulation, victim)
    wait(simulation, lambda: any(there == victim.host for _, there in simulation.network.refusals), SOON_S)
    let_in(simulation, victim)
    simulation.world.run_until(simulation.world.now + SOON_S)
    assert simulation.verdicts.count == 0


def test_a_broker_that_flaps_is_judged_no_more_often_than_the_bound(simulation: Simulation) -> None:
    victim = leader(simulation)
    for _ in range(4):
        keep_out(simulation, victim)
        simulation.world.run_until(simulation.world.now + SOON_S)
        let_in(simulation, victim)
        simulation.world.run_until(simulation.world.now + SOON_S)
    assert simulation.world.breach is None
    assert simulation.verdicts.count == 1


@pytest.mark.parametrize("plot", ["refusals", "wrong-refusals"])
def test_stories_of_the_plot_have_verdicts(plot: str) -> None:
    endings = [simulate(Story(seed=seed, plot=plot)) for seed in (1, 2)]
    assert [ending.breach for ending in endings] == [None, None]
    assert sum(ending.counts.verdicts for ending in endings) > 0
