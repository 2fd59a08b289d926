"""The simulator is itself tested: it has to catch the mistakes in `mutants.py` within a few stories.

`make test` puts in those that show at once, `make chaos` all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from forebay.sim.simulation import Story, simulate
from support.faults import put_in
from support.faults.mutants import CAUGHT_AT_ONCE, CAUGHT_BY_TESTS, MUTANTS, Mutant

TESTS = Path(__file__).parents[1]

_SEEDS_MAX = 60
"""How many stories are told at most from the seed on that a mistake names."""


@cache
def problem_without_mistakes(seed: int) -> str | None:
    return simulate(Story(seed=seed)).breach


def seed_that_catches(mutant: Mutant, first: int) -> int | None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        for seed in range(first, first + _SEEDS_MAX):
            if simulate(Story(seed=seed)).breach is not None:
                return seed
    return None


def marks_of(mutant: Mutant, first: int) -> list[pytest.MarkDecorator]:
    """Those that begin with the same story are one lot: it is told without mistakes once for all of them."""
    lot = pytest.mark.xdist_group(f"mutants from story {first} on")
    return [lot] if mutant in CAUGHT_AT_ONCE else [lot, pytest.mark.chaos]


@pytest.mark.timeout(600)
@pytest.mark.spread
@pytest.mark.parametrize(
    ("mutant", "first"),
    [pytest.param(mutant, first, marks=marks_of(mutant, first)) for mutant, first in MUTANTS.items()],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mistake_is_caught(mutant: Mutant, first: int) -> None:
    seed = seed_that_catches(mutant, first)
    assert seed is not None, f"{mutant.__name__} was not caught from seed {first} on"
    assert problem_without_mistakes(seed) is None, "the story fails without the mistake too"


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutant", "test"), CAUGHT_BY_TESTS.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_a_rare_mistake_is_caught_by_its_test(mutant: Mutant, test: str) -> None:
    def outcome(*plugin: str) -> int:
        command = [sys.executable, "-m", "pytest", "-q", "-x", *plugin, str(TESTS / test)]
        environment = {**os.environ, "PYTHONPATH": str(TESTS), put_in.VARIABLE: mutant.__name__}
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode

    assert outcome() == pytest.ExitCode.OK
    assert outcome("-p", put_in.__name__) == pytest.ExitCode.TESTS_FAILED
