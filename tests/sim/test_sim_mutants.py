"""The simulator is itself tested: it has to catch every mistake in `mutants.py` within a few stories.

`make test` puts in those that show at once, `make chaos` all of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from forebay.sim.simulation import Story, simulate
from support.faults.mutants import CAUGHT_AT_ONCE, MUTANTS, Mutant

_SEEDS_MAX = 60
"""How many stories are told at most, from the one on that a mistake names."""


@cache
def problem_without_mistakes(story: Story) -> str | None:
    return simulate(story).breach


def story_that_catches(mutant: Mutant, first: Story) -> Story | None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        for seed in range(first.seed, first.seed + _SEEDS_MAX):
            story = replace(first, seed=seed)
            if simulate(story).breach is not None:
                return story
    return None


@pytest.mark.timeout(600)
@pytest.mark.spread
@pytest.mark.parametrize(
    ("mutant", "first"),
    [
        pytest.param(*item, marks=[] if item[0] in CAUGHT_AT_ONCE else [pytest.mark.chaos])
        for item in MUTANTS.items()
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mistake_is_caught(mutant: Mutant, first: Story) -> None:
    story = story_that_catches(mutant, first)
    assert story is not None, f"{mutant.__name__} was not caught from {first} on"
    assert problem_without_mistakes(story) is None, f"{story} fails without the mistake too"
