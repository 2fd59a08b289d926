"""Many stories, and those that once went wrong. SIM_SEEDS sets how many, SIM_FIRST_SEED where to begin.

`make test` tells a few, and those that went wrong last; `make chaos` tells more, from another seed on, and
all that ever went wrong: a change of the simulator makes other stories of their seeds.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from forebay.sim.simulation import Ending, Story, simulate
from support.brokers.loop_guard import loops_guarded

_SEEDS = int(os.environ.get("SIM_SEEDS", "6"))
_FIRST = int(os.environ.get("SIM_FIRST_SEED", "1000"))
_PER_TEST = 40
_CHAOS_SEEDS = int(os.environ.get("CHAOS_SEEDS", "240"))
_CHAOS_FIRST = 100_000
_BROKERS = {1: 1, 5: 5}
"""In `make chaos`, of stories whose seed ends in this digit."""
_ONCE_FAILED_LAST = 4
"""How many of the stories that once went wrong `make test` tells."""
_LINES_SHOWN = 40


Tell = Callable[[Iterable[Story]], list[Ending]]


@pytest.fixture(scope="module")
def tell() -> Iterator[Tell]:
    """The endings of stories that are told side by side, one process per core, and each story once."""
    # Forking would copy whatever threads the tests before this one have left running.
    context = multiprocessing.get_context("spawn")
    told: dict[Story, Ending] = {}
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=context) as pool:

        def endings(stories: Iterable[Story]) -> list[Ending]:
            wanted = list(stories)
            new = [story for story in wanted if story not in told]
            told.update(zip(new, pool.map(simulate_guarded, new), strict=True))
            return [told[story] for story in wanted]

        yield endings


def simulate_guarded(story: Story) -> Ending:
    with loops_guarded():
        return simulate(story)


def check(endings: Iterable[Ending]) -> None:
    broken = [ending for ending in endings if ending.breach is not None]
    for ending in broken:
        story = ending.story
        plot = "" if story.plot is None else f" --plot {story.plot}"
        told = f"--seed {story.seed} --steps {story.steps} --brokers {story.brokers}{plot}"
        print(f"forebay simulate {told}")  # noqa: T201
        print("\n".join(ending.recent[-_LINES_SHOWN:]))  # noqa: T201
    assert not [(ending.story, ending.breach) for ending in broken]


def once_failed() -> list[Story]:
    """One story per line: seed, steps, brokers and perhaps a plot, and what had gone wrong."""
    lines = (Path(__file__).parent / "failed_seeds.txt").read_text().splitlines()
    return [_story_of(line) for line in lines if line and not line.startswith("#")]


def _story_of(line: str) -> Story:
    seed, steps, cast, *_ = line.split(maxsplit=3)
    brokers, _, plot = cast.partition("/")
    return Story(seed=int(seed), steps=int(steps), brokers=int(brokers), plot=plot or None)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(_FIRST, _FIRST + _SEEDS, _PER_TEST))
def test_every_promise_is_kept(tell: Tell, first: int) -> None:
    last = min(first + _PER_TEST, _FIRST + _SEEDS)
    check(tell(Story(seed=seed) for seed in range(first, last)))


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("first", range(_CHAOS_FIRST, _CHAOS_FIRST + _CHAOS_SEEDS, _PER_TEST))
def test_every_promise_is_kept_in_many_stories(tell: Tell, first: int) -> None:
    last = min(first + _PER_TEST, _CHAOS_FIRST + _CHAOS_SEEDS)
    check(tell(Story(seed=seed, brokers=_BROKERS.get(seed % 10, 3)) for seed in range(first, last)))


@pytest.mark.timeout(600)
def test_a_single_broker_keeps_its_promises(tell: Tell) -> None:
    check(tell(Story(seed=seed, brokers=1) for seed in range(_FIRST, _FIRST + 4)))


@pytest.mark.timeout(600)
def test_five_brokers_keep_their_promises(tell: Tell) -> None:
    check(tell(Story(seed=seed, brokers=5) for seed in range(_FIRST, _FIRST + 2)))


@pytest.mark.timeout(600)
def test_what_failed_last_does_not_fail_again(tell: Tell) -> None:
    check(tell(once_failed()[-_ONCE_FAILED_LAST:]))


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_what_once_failed_does_not_fail_again(tell: Tell) -> None:
    check(tell(once_failed()))
