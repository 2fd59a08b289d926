"""Moves on request: how each begins, what replaces or cancels it, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations, product

import pytest

from forebay.config import ControllerConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import BrokerPut, PartitionPut, TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.controller import plan
from forebay.core.cluster.replicas.isr_changes import needed
from forebay.core.cluster.replicas.reassignment import reassign
from forebay.errors import ErrorCode, KafkaError

TOPIC_ID = b"0123456789abcdef"
CONFIG = ControllerConfig()


def image_of(state: PartitionState, alive: Iterable[int] = (1, 2, 3, 4, 5)) -> ClusterImage:
    record = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=(state.replicas,))
    registered = [BrokerPut(registration=BrokerRegistration(id=n, host="h", port=9)) for n in alive]
    image = ClusterImage(cluster_id="c").apply([*registered, TopicPut(record=record)])
    return image.apply([PartitionPut(topic_id=TOPIC_ID, state=state)])


def partition(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionState:
    return PartitionState(index=0, leader=leader, leader_epoch=5, isr=isr, replicas=replicas)


def moved(
    state: PartitionState, target: tuple[int, ...] | None, alive: Iterable[int] = (1, 2, 3, 4, 5)
) -> PartitionState:
    (change,) = reassign(image_of(state, alive), "t", 0, target)
    assert change.topic_id == TOPIC_ID
    return change.state


WHOLE = partition(1, (1, 2, 3))


def test_a_move_adds_first_and_removes_last() -> None:
    going = moved(WHOLE, (4, 2))
    assert going == replace(WHOLE, replicas=(4, 2, 1, 3), adding=(4,), removing=(1, 3))
    copied = replace(going, isr=(1, 2, 3, 4))
    (end,) = plan(image_of(copied), CONFIG)
    assert end.state == replace(partition(4, (2, 4), (4, 2)), leader_epoch=6)


def test_a_move_to_fewer_of_the_same_ends_at_once() -> None:
    assert moved(WHOLE, (2, 1)) == replace(partition(1, (1, 2), (2, 1)), leader_epoch=6)
    assert moved(WHOLE, (3, 2)) == replace(partition(3, (2, 3), (3, 2)), leader_epoch=6)


def test_another_order_moves_nothing() -> None:
    assert moved(WHOLE, (3, 1, 2)) == partition(1, (1, 2, 3), (3, 1, 2))


def test_a_partition_that_is_there_already_stays() -> None:
    assert reassign(image_of(WHOLE), "t", 0, (1, 2, 3)) == []


def test_a_new_target_replaces_the_move_under_way() -> None:
    going = replace(moved(WHOLE, (4, 2)), isr=(1, 2, 3, 4))
    again = moved(going, (5, 3))
    assert again == replace(WHOLE, replicas=(5, 3, 2, 1), adding=(5,), removing=(2, 1), leader_epoch=6)


def test_the_first_replicas_as_a_new_target_end_the_move() -> None:
    assert moved(moved(WHOLE, (4, 2)), (1, 2, 3)) == replace(WHOLE, leader_epoch=6)


def test_a_cancelled_move_leaves_the_replicas_of_before() -> None:
    back = moved(replace(moved(WHOLE, (4, 2)), isr=(1, 2, 3, 4)), None)
    assert set(back.replicas) == set(back.isr) == {1, 2, 3}
    assert (back.adding, back.removing, back.leader, back.leader_epoch) == ((), (), 1, 6)


def test_a_leader_that_came_with_a_cancelled_move_is_followed_by_another() -> None:
    going = replace(moved(WHOLE, (4, 5)), isr=(2, 3, 4), leader=4)
    back = moved(going, None)
    assert (back.leader, back.leader_epoch, back.isr) == (2, 6, (2, 3))


@pytest.mark.parametrize("target", [None, (1, 2, 3), (1, 2, 5), (5,)])
def test_what_a_move_added_stays_while_too_few_others_have_what_is_committed(
    target: tuple[int, ...] | None,
) -> None:
    going = replace(moved(WHOLE, (4, 5)), isr=(2, 4), leader=2)
    with pytest.raises(KafkaError, match=r"only \[2\] are in sync, and min.insync.replicas asks for 2"):
        reassign(image_of(going), "t", 0, target)
    assert moved(replace(going, isr=(2, 3, 4)), target).isr == (2, 3)
    # Where one is enough, one may be left.
    (change,) = reassign(image_of(going), "t", 0, target, min_insync_replicas=1)
    assert change.state.isr == (2,)


STATES = [
    replace(partition(leader, isr, replicas), adding=adding, removing=removing, eligible=eligible)
    for adding in ((), (4,), (4, 5))
    for removing in ((), (3,), (2, 3))
    for replicas in ((1, 2, 3, *adding),)
    for size in range(1, len(replicas) + 1)
    for isr in combinations(replicas, size)
    for leader in (isr[0], NO_LEADER)
    for eligible in ((), tuple(node for node in replicas if node not in isr))
]


@pytest.mark.parametrize("minimum", [-1, 1, 2, 3])
def test_no_request_leaves_what_is_committed_on_too_few_replicas(minimum: int) -> None:
    targets = [None, *(each for size in (1, 2, 3) for each in combinations((1, 2, 3, 4, 5), size))]
    outcomes: Counter[bool] = Counter()
    for image, target in product([image_of(state) for state in STATES], targets):
        before = image.topics["t"].partitions[0]
        try:
            changes = reassign(image, "t", 0, target, min_insync_replicas=minimum)
        except KafkaError:
            outcomes[False] += 1
            continue
        for change in changes:
            after = change.state
            had, have = {*before.isr, *before.eligible}, {*after.isr, *after.eligible}
            assert have <= had
            assert len(have) >= min(needed(after, minimum), len(had)), (before, target)
            outcomes[True] += 1
    assert min(outcomes.values()) > 500


def test_a_move_waits_for_members_that_are_away() -> None:
    away = partition(NO_LEADER, (1,), (1, 2))
    going = moved(away, (2, 3), alive=(2, 3))
    assert (going.leader, going.isr, going.leader_epoch) == (NO_LEADER, (1,), 5)
    assert going.removing == (1,)


@pytest.mark.parametrize(
    ("state", "target", "code"),
    [
        (WHOLE, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (WHOLE, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (WHOLE, (4, 4), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (WHOLE, (4, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (WHOLE, (-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        # Everything is on the replica that would be dropped.
        (
            replace(partition(4, (4,), (4, 1)), adding=(4,), removing=(1,)),
            None,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (partition(NO_LEADER, ()), (4,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_moves_that_are_refused(
    state: PartitionState, target: tuple[int, ...] | None, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as caught:
        reassign(image_of(state), "t", 0, target)
    assert caught.value.code == code


def test_a_replica_on_a_broker_that_is_away_may_stay_but_not_come() -> None:
    assert moved(partition(1, (1,)), (1, 3), alive=(1, 2)).target == (1, 3)
    with pytest.raises(KafkaError, match="no live broker 4"):
        reassign(image_of(WHOLE, alive=(1, 2, 3)), "t", 0, (1, 4))


def test_the_number_of_replicas_changes_only_where_that_is_allowed() -> None:
    with pytest.raises(KafkaError) as caught:
        reassign(image_of(WHOLE), "t", 0, (1, 2), allow_replication_factor_change=False)
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(image_of(WHOLE), "t", 0, (1, 2, 4), allow_replication_factor_change=False)
    # What counts is where the partition was going.
    assert reassign(image_of(moved(WHOLE, (4, 2))), "t", 0, (4, 1), allow_replication_factor_change=False)


@pytest.mark.parametrize(("topic", "index"), [("u", 0), ("t", 1), ("t", -1)])
def test_what_is_not_there_is_not_moved(topic: str, index: int) -> None:
    with pytest.raises(KafkaError) as caught:
        reassign(image_of(WHOLE), topic, index, (1,))
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
