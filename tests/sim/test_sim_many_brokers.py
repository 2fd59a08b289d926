"""Fifty brokers on one store, in virtual time: they find each other, and replace those that die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from forebay.core.cluster.partition_state import NO_LEADER
from forebay.sim.actors.topic_maker import TopicMaker
from forebay.sim.simulation import Simulation, Story
from forebay.sim.world.virtual_time import World

BROKERS = 50
SOON_S = 3.0


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    simulation = Simulation(World(3), Story(seed=3, plot="refusals", brokers=BROKERS))
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
    """How long it took, in virtual time."""
    world = simulation.world
    began = world.now
    world.run_until(began + seconds, enough)
    assert world.breach is None, world.breach
    assert enough()
    return world.now - began


def leaders(simulation: Simulation) -> set[int]:
    topics = simulation.store.image().topics.values()
    return {state.leader for topic in topics for state in topic.partitions}


def test_those_that_die_are_replaced_soon(simulation: Simulation) -> None:
    controller = simulation.store.image().controller
    victims = [controller, *sorted(leaders(simulation) - {controller, NO_LEADER})[:1]]
    for victim in victims:
        simulation.nodes[victim - 1].kill()
        took_s = wait(simulation, lambda: leaders(simulation).isdisjoint({victim, NO_LEADER}))  # noqa: B023
        assert took_s < SOON_S
    image = simulation.store.image()
    assert image.controller not in (controller, NO_LEADER)
    assert len(image.brokers) == BROKERS - len(victims)
