"""Programs on forebay.client in which every call may raise and every wait may be cancelled.

In memory each call and each wait fails once in every way, and the broker rebalances and loses messages. The
rules are those of the chaos tests, and those of the delivery mode at every commit. With the real client on a
real broker it happens at random. `make chaos` tells more stories, for CHAOS_SECONDS; CHAOS_SEED repeats them.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import pytest

from forebay.client import Delivery
from forebay.testing import Broker
from support.client_model.faults import (
    ABORTABLE,
    FAULTS,
    IN_TRANSACTIONS,
    CtrlC,
    at_random,
    numbers_at_random,
)
from support.client_model.mutants import MUTANTS, Mutant
from support.client_model.real_stories import Copying
from support.client_model.stories import DELIVERIES, PROGRAMS, Story, Told, tell

CHAOS_SECONDS = float(os.environ.get("CHAOS_SECONDS", "120"))
CHAOS_SEED = os.environ.get("CHAOS_SEED") or f"{random.SystemRandom().randrange(2**32)}"

CASES: list[tuple[str, Delivery]] = [
    (program, delivery) for program in PROGRAMS for delivery in DELIVERIES[program.partition(" ")[0]]
]
INTERRUPTED = [(program, delivery) for program, delivery in CASES if program in ("copy", "pump")]
"""Those that undo a batch by themselves. Who polls may be interrupted when a message is on its way to it."""
SEVERAL = 15
"""Stories with several faults that `make test` tells of each program."""
GAP_MAX = 8


def calm(program: str, delivery: Delivery) -> Told:
    """Nothing happens: how many calls and waits there are to fail."""
    told = tell(Story(program=program, delivery=delivery))
    assert not told.breaches
    return told


def one_fault_each(program: str, delivery: Delivery) -> Iterator[Story]:
    told = calm(program, delivery)
    for number, name in enumerate(told.calls):
        in_transaction = delivery == "exactly-once" and name in IN_TRANSACTIONS
        for fault in [*FAULTS, ABORTABLE] if in_transaction else FAULTS:
            yield Story(program=program, delivery=delivery, faults={number: fault})
    for number in range(told.waits):
        yield Story(program=program, delivery=delivery, cancels=[number])
        yield Story(program=program, delivery=delivery, cancels=[number, number + 1, number + 2])
    for number in range(told.fetches):
        yield Story(program=program, delivery=delivery, rebalances=[number])
    for number in range(told.deliveries):
        yield Story(program=program, delivery=delivery, losses=[number])


def two_in_a_row(program: str, delivery: Delivery) -> Iterator[Story]:
    struck = FAULTS[0]
    for number in range(len(calm(program, delivery).calls)):
        yield Story(program=program, delivery=delivery, faults={number: struck, number + 1: struck})


def several_faults(program: str, delivery: Delivery, chance: random.Random) -> Story:
    """Of all kinds, one soon after the other: errors while errors are dealt with."""
    is_async = program.endswith("async")
    return Story(
        program=program,
        delivery=delivery,
        faults=at_random(chance, chance.randint(0, 6), GAP_MAX),
        cancels=numbers_at_random(chance, chance.randint(0, 6) if is_async else 0, GAP_MAX),
        rebalances=numbers_at_random(chance, chance.randint(0, 2), GAP_MAX),
        losses=numbers_at_random(chance, chance.randint(0, 2), GAP_MAX),
    )


@pytest.mark.parametrize(("program", "delivery"), CASES)
def test_one_fault_anywhere_breaks_no_promise(program: str, delivery: Delivery) -> None:
    for story in one_fault_each(program, delivery):
        assert not tell(story).breaches, str(story)


@pytest.mark.parametrize(("program", "delivery"), CASES)
def test_several_faults_break_no_promise(program: str, delivery: Delivery) -> None:
    chance = random.Random(f"{program} {delivery}")
    for _ in range(SEVERAL):
        story = several_faults(program, delivery, chance)
        assert not tell(story).breaches, str(story)


@pytest.mark.parametrize(("program", "delivery"), INTERRUPTED)
def test_ctrl_c_before_any_line_breaks_no_promise(program: str, delivery: Delivery) -> None:
    story = Story(program=program, delivery=delivery)
    with CtrlC() as never:
        assert not tell(story).breaches
    for number in {line: number for number, line in enumerate(never.lines)}.values():
        assert not interrupted(story, number), f"{story}, {never.lines[number]}"


def interrupted(story: Story, number: int) -> list[str]:
    with CtrlC(number):
        return tell(story).breaches


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_client_with_a_mistake_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    case = MUTANTS[mutant]
    stories = [*one_fault_each(*case), *two_in_a_row(*case)]
    random.Random("any order").shuffle(stories)
    # A story with cancels waits for threads. What only they show is found in one of the first.
    stories.sort(key=lambda story: len(list(story.cancels)), reverse=True)
    mutant(monkeypatch)
    assert any(tell(story).breaches for story in stories)


@pytest.mark.parametrize(
    ("delivery", "is_async"),
    [("at-least-once", True), ("exactly-once", False), ("exactly-once", True)],
    ids=["at-least-once async", "exactly-once", "exactly-once async"],
)
def test_the_real_client_breaks_no_promise(
    forebay_broker: Broker, forebay_topic: str, delivery: Delivery, is_async: bool
) -> None:
    copying = Copying(forebay_broker.bootstrap_servers, forebay_topic, delivery)
    copying.feed(40)
    survived = copying.survive("a", 10, GAP_MAX, is_async=is_async)
    assert not survived.breaches
    assert len(survived.struck) >= 5, "too little happened to prove anything"


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("program", "delivery"), INTERRUPTED)
def test_ctrl_c_at_any_moment_breaks_no_promise(program: str, delivery: Delivery) -> None:
    story = Story(program=program, delivery=delivery)
    with CtrlC() as never:
        tell(story)
    for number, line in enumerate(never.lines):
        assert not interrupted(story, number), f"{story}, {line}"


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_no_story_breaks_a_promise() -> None:
    chance = random.Random(CHAOS_SEED)
    end = time.monotonic() + CHAOS_SECONDS
    while time.monotonic() < end:
        story = several_faults(*chance.choice(CASES), chance)
        assert not tell(story).breaches, f"seed {CHAOS_SEED}: {story}"


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_the_real_client_breaks_no_promise_for_long(forebay_broker: Broker, forebay_topic: str) -> None:
    chance = random.Random(CHAOS_SEED)
    end = time.monotonic() + CHAOS_SECONDS
    deliveries: list[Delivery] = ["at-most-once", "at-least-once", "exactly-once"]
    number = 0
    while time.monotonic() < end:
        seed, delivery, is_async = f"{CHAOS_SEED} {number}", chance.choice(deliveries), chance.random() < 0.5
        copying = Copying(forebay_broker.bootstrap_servers, f"{forebay_topic}-{number}", delivery)
        copying.feed(60)
        survived = copying.survive(seed, 20, 12, is_async=is_async)
        assert not survived.breaches, f"seed {seed}, {delivery}, async: {is_async}: {survived}"
        number += 1
