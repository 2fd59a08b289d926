"""How the in-sync set changes, who is eligible to lead besides its members, and who leaves when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.replicas.controller import desired_state, hand_over
from forebay.core.cluster.replicas.isr_changes import MAJORITY, commits, needed, with_isr, without
from forebay.core.cluster.stored.image_text import decode_partition, encode_partition
from support.machines.partition_states import NODES, depart, partition


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
    assert desired_state(before, alive) == after
    assert desired_state(after, alive) is after


def test_an_unclean_election_prefers_an_eligible_replica_and_ends_the_eligibility_of_others() -> None:
    before = partition(NO_LEADER, (1,), (3,))
    assert desired_state(before, (2, 3), unclean=True) == partition(3, (3,), (1,), epoch=6)
    assert desired_state(before, (2,), unclean=True) == partition(2, (2,), epoch=6)


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
