"""A world in which nothing has happened yet."""

from __future__ import annotations

import pytest

from forebay.sim.world.network import SimNetwork
from forebay.sim.world.virtual_time import World


@pytest.fixture
def world() -> World:
    return World(7)


@pytest.fixture
def network(world: World) -> SimNetwork:
    return SimNetwork(world)
