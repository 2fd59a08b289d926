"""Movers under every fault that they may meet: each record is appended exactly once."""

from __future__ import annotations

from collections import Counter

import pytest

from support.machines.moving import World
from support.machines.walks import seeds


@pytest.mark.parametrize("seed", seeds(25, 100))
def test_each_record_is_moved_exactly_once(seed: int) -> None:
    world = World(seed)
    for _ in range(1000):
        world.turn()
    world.finish()
    assert Counter(world.target.items) == Counter(world.source.added)


@pytest.mark.parametrize("seed", seeds(15, 60))
def test_a_target_that_is_deleted_and_made_again_gets_no_record_twice(seed: int) -> None:
    world = World(seed, deletes_target=True)
    for _ in range(1000):
        world.turn()
    world.finish()
    assert max(Counter(world.target.items).values(), default=1) == 1


def test_the_walk_takes_every_step_and_more_than_one_mover_is_alive() -> None:
    world = World(7)
    alive = 0
    for _ in range(3000):
        world.turn()
        alive = max(alive, len(world.movers))
    assert alive > 2
    assert set(world.steps) == {"Open", "Ask", "Plan", "Identify", "Journal", "Send", "Confirm"}
