"""Strangers that cost time: requests that keep the loop of a simulated broker busy."""

from __future__ import annotations

import pytest

from forebay.sim.simulation import Ending, Simulation, Story, simulate
from forebay.sim.world.virtual_time import World


def told(plot: str, seed: int) -> tuple[Ending, int]:
    """The story, and how often a broker noticed that it had lost its lease."""
    lines: list[str] = []
    ending = simulate(Story(seed=seed, plot=plot), on_line=lines.append)
    assert ending.breach is None, ending.breach
    return ending, sum("the lease is lost" in line for line in lines)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_lease_is_lost_while_each_request_takes_less_than_a_quarter_of_it(seed: int) -> None:
    ending, leases_lost = told("strangers", seed)
    assert ending.faults["besiege"]
    assert leases_lost == 0


def test_requests_that_outlast_the_lease_end_it_and_nothing_else_is_lost() -> None:
    stories = [told("busy-loops", seed) for seed in (1, 2, 3)]
    assert all(ending.faults["busy loop"] for ending, _ in stories)
    assert any(leases_lost for _, leases_lost in stories)


def test_time_that_a_broker_wastes_by_itself_still_counts() -> None:
    simulation = Simulation(World(1), Story(seed=1, plot="strangers", faults=False))
    node = simulation.nodes[0]
    node.start()
    simulation.world.run_until(30.0, lambda: node.ready)
    node.burden(node.stall_s_max * 2)
    simulation.world.run_until(simulation.world.now + 5 * node.stall_s_max)
    assert simulation.world.breach is None
    assert node.broker is not None
    loop = node.broker.loop
    node.burden(node.stall_s_max * 2)
    loop.call_soon(lambda: loop.spend(node.stall_s_max * 1.1))  # type: ignore[attr-defined]
    simulation.world.run_until(simulation.world.now + 5 * node.stall_s_max)
    simulation.end()
    assert "stood still for 2.2 s" in str(simulation.world.breach)
