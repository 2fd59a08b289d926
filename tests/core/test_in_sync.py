"""Who may lead after brokers stopped, died and lost power in any order: case by case, then all orders.

The search has three replicas, min.insync.replicas=2 and one message. A broker can be killed, which takes
nothing, stop, lose its power, which takes what it had not synced, and come back; its lease outlives it for
as long as the search likes; the controller and the leader act at any moment or not at all. Whoever leads
after the message was committed must have it. It has to find the way in which the rule without eligible
replicas loses the message, and none with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from forebay.core.controller import departure, hand_over, settle
from forebay.core.image import (
    NO_LEADER,
    BrokerPut,
    BrokerRegistration,
    ClusterImage,
    PartitionPut,
    PartitionState,
    TopicConfigPut,
    TopicPut,
    TopicRecord,
)
from forebay.core.in_sync import MAJORITY, commits, needed, with_isr, without
from forebay.core.stored import decode_partition, encode_partition

TOPIC_ID = b"0123456789abcdef"
NODES = (1, 2, 3)


def partition(
    leader: int,
    isr: tuple[int, ...],
    eligible: tuple[int, ...] = (),
    *,
    epoch: int = 5,
    synced: bool = False,
    replicas: tuple[int, ...] = NODES,
) -> PartitionState:
    return PartitionState(
        index=0,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        replicas=replicas,
        eligible=eligible,
        synced=synced,
    )


def depart(
    state: PartitionState,
    node: int,
    alive: tuple[int, ...],
    *,
    minimum: int = MAJORITY,
    unsynced: bool = False,
    damaged: bool = False,
    lost: bool = False,
) -> PartitionState:
    record = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=(state.replicas,))
    brokers = [BrokerPut(registration=BrokerRegistration(id=number, host="h", port=9)) for number in alive]
    settings = (
        [] if minimum < 0 else [TopicConfigPut(name="t", overrides={"min.insync.replicas": str(minimum)})]
    )
    image = ClusterImage(cluster_id="c").apply([*brokers, TopicPut(record=record), *settings])
    image = image.apply([PartitionPut(topic_id=TOPIC_ID, state=state)])
    changes = departure(image, node, unsynced=unsynced, damaged=damaged, lost=lost)
    return changes[0].state if changes else state


# -- case by case -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("minimum", "replicas", "expected"),
    [(MAJORITY, NODES, 2), (MAJORITY, (1, 2), 2), (MAJORITY, (1,), 1), (1, NODES, 1), (5, NODES, 3)],
)
def test_never_more_replicas_are_needed_than_there_are(
    minimum: int, replicas: tuple[int, ...], expected: int
) -> None:
    assert needed(partition(1, (1,), replicas=replicas), minimum) == expected


def test_replicas_that_a_move_brings_are_not_needed_before_it_ends() -> None:
    moving = replace(partition(1, (1,), replicas=(4, 5, 1)), adding=(4, 5))
    assert needed(moving, MAJORITY) == 1


@pytest.mark.parametrize(
    ("before", "isr", "minimum", "eligible"),
    [
        (partition(1, (1, 2, 3)), (1, 2), 2, ()),
        (partition(1, (1, 2, 3)), (1,), 2, (2, 3)),
        (partition(1, (1, 2)), (1,), 2, (2,)),
        (partition(1, (1, 2)), (1,), 1, ()),
        (partition(1, (1, 2), (3,)), (1,), 3, (3, 2)),
        (partition(1, (1,), (2,)), (1, 3), 2, ()),
        (partition(1, (1,), (2, 3)), (1, 3), 3, (2,)),
    ],
)
def test_who_leaves_is_eligible_while_too_few_are_in_sync(
    before: PartitionState, isr: tuple[int, ...], minimum: int, eligible: tuple[int, ...]
) -> None:
    after = with_isr(before, isr, minimum)
    assert (after.isr, after.eligible) == (isr, eligible)
    assert commits(after, minimum) == (len(isr) >= minimum)


def test_nothing_is_committed_while_others_are_eligible_even_if_the_minimum_was_lowered() -> None:
    assert not commits(partition(1, (1,), (2,)), 1)
    assert commits(with_isr(partition(1, (1,), (2,)), (1,), 1), 1)


def test_being_synced_ends_with_any_other_in_sync_set() -> None:
    alone = partition(1, (1,), (2,), synced=True)
    assert with_isr(alone, (1,), 2).synced
    assert not with_isr(alone, (2,), 2).synced
    assert not with_isr(alone, (1, 2), 2).synced
    assert not without(alone, 1).synced
    assert without(alone, 2).synced


@pytest.mark.parametrize(
    ("before", "alive", "after"),
    [
        # Dead in-sync members make room for a live eligible one, and are eligible themselves.
        (partition(1, (1,), (2,)), (2, 3), partition(2, (2,), (1,), epoch=6)),
        (partition(NO_LEADER, (), (2, 3)), (3,), partition(3, (3,), (2,), epoch=6)),
        # A live in-sync member is not replaced.
        (partition(1, (1,), (2,)), (1, 2, 3), partition(1, (1,), (2,))),
        # Nobody who can be trusted is there: they are waited for.
        (partition(1, (1,), (2,)), (3,), partition(NO_LEADER, (1,), (2,), epoch=6)),
        (partition(1, (1, 2)), (1, 3), partition(1, (1,), (2,))),
    ],
)
def test_the_controller_elects_an_eligible_replica(
    before: PartitionState, alive: tuple[int, ...], after: PartitionState
) -> None:
    assert settle(before, alive) == after
    assert settle(after, alive) is after


def test_an_unclean_election_prefers_an_eligible_replica_and_ends_the_eligibility_of_others() -> None:
    before = partition(NO_LEADER, (1,), (3,))
    assert settle(before, (2, 3), unclean=True) == partition(3, (3,), (1,), epoch=6)
    assert settle(before, (2,), unclean=True) == partition(2, (2,), epoch=6)


@pytest.mark.parametrize(
    ("before", "alive", "how", "after"),
    [
        # Who stops with everything may come back as a leader.
        (partition(2, (1, 2)), (1, 2), {}, partition(2, (2,), (1,))),
        (partition(1, (1,), (2,)), (1, 2), {}, partition(2, (2,), (1,), epoch=6)),
        (partition(1, (1,), (2,)), (1,), {}, partition(1, (1,), (2,))),
        # Who lost its power gives way to any who did not, unless it has synced everything.
        (partition(1, (1,), (2,)), (), {"unsynced": True}, partition(NO_LEADER, (), (2,), epoch=6)),
        (partition(1, (1,), (2,)), (2,), {"unsynced": True}, partition(2, (2,), epoch=6)),
        (partition(2, (2,), (1, 3)), (2,), {"unsynced": True}, partition(2, (2,), (3,))),
        (
            partition(1, (1,), (2,), synced=True),
            (),
            {"unsynced": True},
            partition(NO_LEADER, (1,), (2,), epoch=6, synced=True),
        ),
        (
            partition(1, (1,), (2,), synced=True),
            (),
            {"damaged": True},
            partition(NO_LEADER, (), (2,), epoch=6),
        ),
        (partition(NO_LEADER, (), (1,)), (), {"unsynced": True}, partition(NO_LEADER, (), (1,))),
        (partition(NO_LEADER, (), (1,)), (), {"lost": True}, partition(NO_LEADER, ())),
    ],
)
def test_a_broker_leaves(
    before: PartitionState, alive: tuple[int, ...], how: dict[str, bool], after: PartitionState
) -> None:
    assert depart(before, 1, alive, **how) == after
    assert depart(after, 1, alive, **how) == after


def test_a_broken_log_is_handed_over_to_whoever_has_everything() -> None:
    assert hand_over(partition(1, (1, 2, 3)), 1, NODES) == partition(2, (2, 3), epoch=6)
    assert hand_over(partition(1, (1,), (3,)), 1, NODES) == partition(3, (3,), epoch=6)
    assert hand_over(partition(1, (1,), (3,)), 1, (1, 2)) is None
    assert hand_over(partition(1, (1,)), 1, NODES) is None


def test_the_store_keeps_who_is_eligible_and_reads_what_was_written_before() -> None:
    state = partition(1, (1,), (2, 3), synced=True)
    assert decode_partition(0, encode_partition(state), 0) == state
    old = b'{"leader":1,"leader_epoch":5,"isr":[1],"replicas":[1,2,3]}'
    assert decode_partition(0, old, 0) == partition(1, (1,))
    assert encode_partition(partition(1, (1,))) == old


# -- all orders -------------------------------------------------------------------------------------------

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
    return settle(state, alive, minimum=minimum)


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
            alone = replace(world, held=at(world.held, leader, SYNCED if held else LACKS))
            yield written(alone if isr == (leader,) else world, with_isr(state, isr, rule.minimum))
        if node not in state.isr and world.brokers[node - 1] == UP and node in world.registered:
            copied = replace(world, held=at(world.held, node, min(held, WRITTEN)))
            yield copied
            yield written(copied, with_isr(state, (*state.isr, node), rule.minimum))
    if state.isr == (leader,) and state.eligible and not state.synced:
        durable = replace(world, held=at(world.held, leader, SYNCED if held else LACKS))
        yield written(durable, replace(state, synced=True))


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
