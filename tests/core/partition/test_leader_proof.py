"""Whether a broker led when it refused a batch: what the fetches of its followers prove."""

from __future__ import annotations

from forebay.core.cluster.partition_state import PartitionState
from forebay.core.partition.leadership import FetchMark, LeaderProof, Leadership

A, B = object(), object()
"""Connections."""


def leadership(isr: tuple[int, ...]) -> Leadership:
    state = PartitionState(index=0, leader=1, leader_epoch=4, isr=isr, replicas=(1, 2, 3))
    return Leadership(me=1, state=state, end_offset=10, now_ms=1)


def test_who_is_in_sync_or_joins_may_have_been_elected() -> None:
    assert leadership((1,)).electable == frozenset()
    leader = leadership((1, 2))
    assert leader.electable == {2}
    leader.joining = (3,)
    assert leader.electable == {2, 3}


def test_without_others_nothing_has_to_be_shown() -> None:
    assert LeaderProof([]).is_complete


def test_a_fetch_that_may_have_been_on_its_way_proves_nothing() -> None:
    proof = LeaderProof([2])
    assert proof.fetched(2, FetchMark(A, 7))
    assert not proof.is_complete
    assert not proof.fetched(2, FetchMark(A, 8))
    assert proof.is_complete


def test_a_fetch_that_is_looked_at_twice_is_one() -> None:
    proof = LeaderProof([2])
    for _ in range(3):
        assert proof.fetched(2, FetchMark(A, 7))
    assert not proof.is_complete


def test_fetches_of_two_connections_may_both_have_been_on_their_way() -> None:
    proof = LeaderProof([2])
    assert proof.fetched(2, FetchMark(A, 7))
    assert proof.fetched(2, FetchMark(B, 1))
    assert not proof.is_complete
    assert not proof.fetched(2, FetchMark(B, 2))
    assert proof.is_complete


def test_every_one_of_them_has_to_follow() -> None:
    proof = LeaderProof([2, 3])
    for number in range(4):
        proof.fetched(2, FetchMark(A, number))
    assert not proof.is_complete
    assert not proof.fetched(2, FetchMark(A, 9)), "it has shown enough"
    assert not proof.fetched(4, FetchMark(B, 1)), "it could not have been elected"
    proof.fetched(3, FetchMark(B, 1))
    proof.fetched(3, FetchMark(B, 2))
    assert proof.is_complete


def test_who_left_the_in_sync_set_was_not_elected() -> None:
    proof = LeaderProof([2, 3])
    proof.fetched(2, FetchMark(A, 1))
    proof.keep({2})
    assert not proof.is_complete
    proof.fetched(2, FetchMark(A, 2))
    assert proof.is_complete
