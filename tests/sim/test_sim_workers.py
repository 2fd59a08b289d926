"""Eight brokers on one store, of which some always end and are soon back: as the workers of a host do."""

from __future__ import annotations

import pytest

from forebay.sim.simulation import Story, simulate


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_breaks_among_eight_workers(seed: int) -> None:
    ending = simulate(Story(seed=seed, steps=6, plot="workers"))
    assert ending.breach is None
    assert ending.counts.acknowledged > 0
    assert sum(ending.faults.values()) >= 6
