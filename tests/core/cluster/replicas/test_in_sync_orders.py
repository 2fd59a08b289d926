"""Who leads after brokers stopped, died and lost power in any order.

The search has three replicas, min.insync.replicas=2 and one message. A broker can be killed, which takes
nothing, stop, lose its power, which takes what it had not synced, and come back; its lease outlives it for
as long as the search likes; the controller and the leader act at any moment or not at all. Whoever leads
after the message was committed must have it. The search has to find the way in which the rule without
eligible replicas loses the message, and so with other mistakes; with the rule as it is, none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.replicas import controller, isr_changes
from forebay.core.cluster.replicas.controller import desired_state
from forebay.core.cluster.replicas.isr_changes import commits, with_heir, with_isr
from support.machines.partition_states import NODES, depart, partition

THIS = sys.modules[__name__]
LACKS, WRITTEN, SYNCED = range(3)
UP, DOWN, DARK = range(3)


@dataclass(frozen=True, slots=True)
class World:
    state: PartitionState
    seen: PartitionState | None
    """The state as the leader of the present epoch knows it; None before it has heard of it."""
    registered: frozenset[int]
    brokers: tuple[int, int, int]
    held: tuple[int, int, int]
    committed: bool = False
    faults: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    minimum: int
    """What decides about eligible replicas. 1 is the rule without them."""
    faults_max: int
    losses_max: int = 1


def changed(world: World, state: PartitionState) -> World:
    """The store takes the state. Of epochs only this matters: what a leader knows ends with its term."""
    seen = world.seen if state.leader_epoch == world.state.leader_epoch else None
    isr, eligible = tuple(sorted(state.isr)), tuple(sorted(state.eligible))
    return replace(world, state=replace(state, leader_epoch=0, isr=isr, eligible=eligible), seen=seen)


def at(values: tuple[int, int, int], node: int, value: int) -> tuple[int, int, int]:
    one, two, three = (value if number == node else old for number, old in zip(NODES, values, strict=True))
    return one, two, three


@cache
def settled(state: PartitionState, alive: frozenset[int], minimum: int) -> PartitionState:
    return desired_state(state, alive, minimum=minimum)


@cache
def departed(
    state: PartitionState, node: int, alive: frozenset[int], minimum: int, unsynced: bool
) -> PartitionState:
    return depart(state, node, tuple(alive), minimum=minimum, unsynced=unsynced)


def next_worlds(world: World, rule: Rule) -> Iterator[World]:
    """Everything that can happen next."""
    state = world.state
    after = settled(state, world.registered, rule.minimum)
    if after is not state:
        yield changed(world, after)
    for node in NODES:
        yield from of_broker(world, node, rule)
    leader = state.leader
    if leader != NO_LEADER and world.brokers[leader - 1] == UP:
        yield from of_leader(world, leader, rule)


def of_broker(world: World, node: int, rule: Rule) -> Iterator[World]:
    state, status, held = world.state, world.brokers[node - 1], world.held[node - 1]
    if status == UP and world.faults < rule.faults_max:
        down = replace(world, brokers=at(world.brokers, node, DOWN), faults=world.faults + 1)
        yield down  # killed: what it has written stays
        stopped = changed(down, departed(state, node, world.registered, rule.minimum, False))
        yield replace(
            stopped,
            registered=world.registered - {node},
            held=at(world.held, node, SYNCED if held else LACKS),
        )
    if status != DARK and world.losses < rule.losses_max and held != SYNCED:
        yield replace(
            world,
            brokers=at(world.brokers, node, DARK),
            held=at(world.held, node, LACKS),
            losses=world.losses + 1,
        )
    if status != UP and node in world.registered:
        yield replace(world, registered=world.registered - {node})
    if status != UP and node not in world.registered:
        back = replace(world, brokers=at(world.brokers, node, UP), registered=world.registered | {node})
        if status == DARK:
            back = changed(back, departed(state, node, world.registered, rule.minimum, True))
        yield back


def of_leader(world: World, leader: int, rule: Rule) -> Iterator[World]:
    state, seen, held = world.state, world.seen, world.held[leader - 1]
    if seen is None or seen != state:
        yield replace(world, seen=state)
    if seen is None:
        return
    together = all(world.brokers[member - 1] == UP for member in seen.isr)
    if not world.committed and together and len(seen.isr) >= 2 and commits(seen, rule.minimum):
        holders = world.held
        for member in seen.isr:
            holders = at(holders, member, max(world.held[member - 1], WRITTEN))
        yield replace(world, held=holders, committed=True)
    if seen != state:
        return  # the store refuses what is decided on an old state
    for node in NODES:
        if node in state.isr and node != leader:
            isr = tuple(member for member in state.isr if member != node)
            after = on_disk(world, leader) if isr == (leader,) else world
            yield written(after, with_isr(state, isr, rule.minimum))
        if node not in state.isr and world.brokers[node - 1] == UP and node in world.registered:
            copied = replace(world, held=at(world.held, node, min(held, WRITTEN)))
            yield copied
            yield written(copied, with_isr(state, (*state.isr, node), rule.minimum))
    if state.isr == (leader,) and state.eligible and not state.synced:
        yield written(on_disk(world, leader), replace(state, synced=True))


def on_disk(world: World, node: int) -> World:
    return replace(world, held=at(world.held, node, SYNCED if world.held[node - 1] else LACKS))


def written(world: World, state: PartitionState) -> World:
    """The leader knows what it has written itself."""
    after = changed(world, state)
    return replace(after, seen=after.state)


def lost(world: World) -> bool:
    leader = world.state.leader
    leads = leader != NO_LEADER and world.brokers[leader - 1] == UP
    return world.committed and leads and world.seen is not None and world.held[leader - 1] == LACKS


def search(rule: Rule) -> tuple[World | None, int]:
    """The first world in which the message is lost, if there is one; and how many were looked at."""
    state = partition(1, NODES, epoch=0)
    first = World(state, state, frozenset(NODES), (UP, UP, UP), (LACKS, LACKS, LACKS))
    known, front = {first}, [first]
    while front:
        world = front.pop()
        for after in next_worlds(world, rule):
            if after not in known:
                if lost(after):
                    return after, len(known)
                known.add(after)
                front.append(after)
    return None, len(known)


def test_without_eligible_replicas_one_loss_of_power_can_lose_a_message() -> None:
    found, _ = search(Rule(minimum=1, faults_max=2))
    assert found is not None


def test_with_eligible_replicas_one_loss_of_power_loses_nothing() -> None:
    found, looked_at = search(Rule(minimum=2, faults_max=2))
    assert found is None
    assert looked_at > 10_000


# -- the search would notice ------------------------------------------------------------------------------


def who_left_is_eligible_for_ever(patch: pytest.MonkeyPatch) -> None:
    right = with_isr

    def kept(state: PartitionState, isr: tuple[int, ...], minimum: int) -> PartitionState:
        eligible = tuple(node for node in {*state.eligible, *state.isr} if node not in isr)
        return replace(right(state, isr, minimum), eligible=eligible)

    for module in (isr_changes, controller, THIS):
        patch.setattr(module, "with_isr", kept)
    patch.setattr(THIS, "commits", lambda state, _: len(state.isr) >= 2)


def nobody_owns_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller, "without", lambda state, _: state)


def a_leader_says_that_it_has_synced_before_it_has(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(THIS, "on_disk", lambda world, _: world)


def whoever_is_alive_is_an_heir(patch: pytest.MonkeyPatch) -> None:
    def with_any(state: PartitionState, alive: Container[int], minimum: int) -> PartitionState:
        return with_heir(replace(state, eligible=state.replicas), alive, minimum)

    patch.setattr(controller, "with_heir", with_any)


@pytest.mark.parametrize(
    "mistake",
    [
        who_left_is_eligible_for_ever,
        nobody_owns_up,
        a_leader_says_that_it_has_synced_before_it_has,
        whoever_is_alive_is_an_heir,
    ],
    ids=lambda mistake: mistake.__name__,
)
def test_the_search_finds_what_a_mistake_loses(mistake: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        forget_decisions()
        mistake(patch)
        found, _ = search(Rule(minimum=2, faults_max=2))
    forget_decisions()
    assert found is not None


def forget_decisions() -> None:
    settled.cache_clear()
    departed.cache_clear()
