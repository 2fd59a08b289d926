"""Which losses a story leaves out: those after which docs/guarantees.md promises nothing, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest

from forebay.core.cluster.partition_state import PartitionState
from forebay.sim.actors.topic_maker import TopicMaker
from forebay.sim.simulation import Simulation, Story
from forebay.sim.world.node import SimNode
from forebay.sim.world.places import SURE
from forebay.sim.world.store import STORE_HOST
from forebay.sim.world.virtual_time import World


def wait(simulation: Simulation, enough: Callable[[], bool], seconds: float = 60.0) -> None:
    world = simulation.world
    world.run_until(world.now + seconds, enough)
    assert world.breach is None, world.breach
    assert enough()


def states(simulation: Simulation) -> list[PartitionState]:
    found = [simulation.store.image().partition(*at) for at in SURE]
    return [state for state in found if state is not None]


@pytest.fixture
def simulation(one_is_enough: bool) -> Iterator[Simulation]:
    """Three brokers with all replicas in sync, in a story with or without min.insync.replicas=1."""
    stories = (Simulation(World(seed), Story(seed=seed)) for seed in count())
    simulation = next(each for each in stories if each.scene.one_is_enough == one_is_enough)
    begin(simulation)
    yield simulation
    simulation.end()


def begin(simulation: Simulation) -> None:
    for node in simulation.nodes:
        node.start()
    wait(simulation, lambda: all(node.ready for node in simulation.nodes))
    maker = simulation.workload.add("maker", partial(TopicMaker, replication_factor=3))
    wait(simulation, lambda: maker.done)
    wait(simulation, simulation.invariants.converged)


def lose_power_beside_one_without_a_lease(simulation: Simulation) -> tuple[SimNode, SimNode]:
    """Of two that are in sync one loses its power, and before its lease the one of the other ends.

    The other is the controller, so that it is the third, which was away, that decides who leads.
    """
    store, scene = simulation.store, simulation.scene
    away, *rest = simulation.nodes
    away.kill()
    wait(simulation, lambda: all(away.node_id not in state.isr for state in states(simulation)))
    wait(simulation, lambda: store.image().controller in [node.node_id for node in rest])
    robbed, cut_off = sorted(rest, key=lambda node: node.node_id == store.image().controller)
    simulation.network.cut(cut_off.host, STORE_HOST)
    simulation.world.run_until(simulation.world.now + 3.0)
    away.start()
    assert scene.may_rob(robbed)
    scene.lose(robbed, robbed.lose_power)
    wait(simulation, lambda: store.image().controller == away.node_id)
    wait(simulation, lambda: all(state.leader != cut_off.node_id for state in states(simulation)))
    return robbed, cut_off


@pytest.mark.parametrize("one_is_enough", [True, False])
def test_who_lost_its_power_is_not_the_only_one_who_may_lead(simulation: Simulation) -> None:
    robbed, cut_off = lose_power_beside_one_without_a_lease(simulation)
    robbed.power_back()
    wait(simulation, lambda: robbed.ready)
    for state in states(simulation):
        assert (*state.isr, *state.eligible) == (cut_off.node_id,)
    simulation.network.mend(cut_off.host, STORE_HOST)
    wait(simulation, simulation.invariants.converged)


@pytest.mark.parametrize("one_is_enough", [False])
def test_where_two_have_to_be_in_sync_it_seems_to_be_alive_and_is_elected(simulation: Simulation) -> None:
    robbed, cut_off = lose_power_beside_one_without_a_lease(simulation)
    expected = robbed.node_id, (robbed.node_id,), (cut_off.node_id,)
    wait(
        simulation,
        lambda: all((state.leader, state.isr, state.eligible) == expected for state in states(simulation)),
        seconds=1.0,
    )


@pytest.mark.parametrize("one_is_enough", [True])
def test_nobody_is_robbed_whom_the_others_are_leaving_alone(simulation: Simulation) -> None:
    one, two, three = simulation.nodes
    one.kill()
    wait(simulation, lambda: all(set(state.isr) == {2, 3} for state in states(simulation)))
    assert simulation.scene.may_rob(two)
    three.stop()
    assert not simulation.scene.may_rob(two)


@pytest.mark.parametrize("one_is_enough", [True, False])
def test_nobody_is_robbed_of_what_only_a_failed_disk_has_too(simulation: Simulation) -> None:
    one, two, three = simulation.nodes
    one.disk_failed = True
    assert simulation.scene.may_rob(two)
    three.disk_failed = True
    assert not simulation.scene.may_rob(two)


@pytest.mark.parametrize("one_is_enough", [False])
def test_no_disk_fails_while_one_without_power_seems_to_be_alive(simulation: Simulation) -> None:
    two, scene = simulation.nodes[1], simulation.scene
    scene.robbed = two
    scene.lose(two, two.lose_power)
    assert {scene.unreliable() for _ in range(50)} == {None, two}
    assert {scene.mortal() for _ in range(50)} == set(simulation.nodes)
    wait(simulation, lambda: not scene.is_taken_for_alive(two))
    assert {scene.unreliable() for _ in range(50)} == set(simulation.nodes)
