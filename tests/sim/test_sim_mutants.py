"""The simulator is itself tested: it has to catch the mistakes in `support.faults` within a few stories.

Each mistake is put into stories of a plot that puts the rule to the test which it breaks: the first of each
plot in `make test`, all of them in `make chaos`, which puts some into ordinary stories, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from forebay.sim.simulation import Story, simulate
from support.import_path import import_path
from support.mutants import put_in
from support.mutants.brokers import Mutant
from support.mutants.caught import BEGIN_WITH, CAUGHT_BY_TESTS, CAUGHT_IN_ORDINARY_STORIES, MUTANTS

TESTS = Path(__file__).parents[1]

_STORIES_MAX = 12
"""Of a plot. Most catch the mistake; with one that seldom does, the test is still quick."""
_ORDINARY_STORIES_MAX = 60


@cache
def problem_without_mistakes(story: Story) -> str | None:
    return simulate(story).breach


def story_that_catches(mutant: Mutant, stories: Iterable[Story]) -> Story | None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        return next((story for story in stories if simulate(story).breach is not None), None)


def check(mutant: Mutant, stories: Iterable[Story]) -> None:
    story = story_that_catches(mutant, stories)
    assert story is not None, f"{mutant.__name__} was not caught"
    assert problem_without_mistakes(story) is None, "the story fails without the mistake too"


FIRST_OF_PLOT = {plot: mutant for mutant, plot in reversed(MUTANTS.items())}


@pytest.mark.timeout(600)
@pytest.mark.spread
@pytest.mark.parametrize(
    ("plot", "mutant"), FIRST_OF_PLOT.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_a_mistake_is_caught(mutant: Mutant, plot: str) -> None:
    check_stories_of(plot, mutant)


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutant", "plot"),
    [(mutant, plot) for mutant, plot in MUTANTS.items() if mutant is not FIRST_OF_PLOT[plot]],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_another_mistake_is_caught(mutant: Mutant, plot: str) -> None:
    check_stories_of(plot, mutant)


def check_stories_of(plot: str, mutant: Mutant) -> None:
    first = BEGIN_WITH.get(mutant, 1)
    others = (seed for seed in range(1, 1 + _STORIES_MAX) if seed != first)
    check(mutant, (Story(seed=seed, plot=plot) for seed in (first, *others)))


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutant", "first"), CAUGHT_IN_ORDINARY_STORIES.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_a_mistake_is_caught_in_an_ordinary_story(mutant: Mutant, first: int) -> None:
    check(mutant, (Story(seed=seed) for seed in range(first, first + _ORDINARY_STORIES_MAX)))


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutant", "test"), CAUGHT_BY_TESTS.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_a_rare_mistake_is_caught_by_its_test(mutant: Mutant, test: str) -> None:
    def outcome(*plugin: str) -> int:
        command = [sys.executable, "-m", "pytest", "-q", "-x", *plugin, str(TESTS / test)]
        environment = {**os.environ, "PYTHONPATH": import_path(), put_in.VARIABLE: mutant.__name__}
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode

    assert outcome() == pytest.ExitCode.OK
    assert outcome("-p", put_in.__name__) == pytest.ExitCode.TESTS_FAILED
