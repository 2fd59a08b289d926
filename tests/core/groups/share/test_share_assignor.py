"""The assignor "simple": two members for each partition, then balance, then stickiness."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.groups.assigned_partitions import Partitions
from forebay.core.groups.consumer.assignors import Subscriber
from forebay.core.groups.share.assignor import Available, simple_assignor

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def assign(
    topics: Available, members: dict[str, set[bytes]], before: dict[str, Partitions] | None = None
) -> dict[str, Partitions]:
    subscribers = {
        name: Subscriber(topics=frozenset(wanted), assigned=(before or {}).get(name, frozenset()))
        for name, wanted in members.items()
    }
    return simple_assignor(subscribers, topics)


def alike(count: int, *topics: bytes) -> dict[str, set[bytes]]:
    return {f"m{index}": set(topics) for index in range(count)}


def sharers(shares: dict[str, Partitions]) -> Counter[tuple[bytes, int]]:
    return Counter(partition for share in shares.values() for partition in share)


def test_nobody_and_nothing() -> None:
    assert assign({A: frozenset([0])}, {}) == {}
    assert assign({}, alike(2, A)) == {"m0": frozenset(), "m1": frozenset()}


def test_only_the_given_partitions_are_assigned() -> None:
    shares = assign({A: frozenset([1, 4, 7])}, alike(4, A))
    assert sharers(shares) == Counter({(A, 1): 2, (A, 4): 2, (A, 7): 2})
    assert sorted(map(len, shares.values())) == [1, 1, 2, 2]


def test_a_single_member_has_everything() -> None:
    assert assign({A: frozenset(range(3))}, alike(1, A)) == {"m0": {(A, 0), (A, 1), (A, 2)}}


def test_as_many_members_as_partitions_have_two_each() -> None:
    shares = assign({A: frozenset(range(3))}, alike(3, A))
    assert {len(share) for share in shares.values()} == {2}
    assert set(sharers(shares).values()) == {2}


def test_a_topic_with_one_subscriber_has_one_member() -> None:
    shares = assign({A: frozenset([0]), B: frozenset([0])}, {"x": {A}, "y": {A, B}})
    assert shares == {"x": {(A, 0)}, "y": {(A, 0), (B, 0)}}


def test_few_partitions_move_when_a_member_joins() -> None:
    topics = {A: frozenset(range(12))}
    before = assign(topics, alike(3, A))
    after = assign(topics, alike(4, A), before)
    assert len(after["m3"]) == 6
    assert all(after[name] < before[name] for name in before)


def test_more_members_than_partitions_share_evenly() -> None:
    shares = assign({A: frozenset(range(3))}, alike(8, A))
    assert {len(share) for share in shares.values()} == {1}
    assert sorted(sharers(shares).values()) == [2, 3, 3]


def test_members_keep_what_they_have_when_others_come_and_go() -> None:
    topics = {A: frozenset(range(3))}
    before = assign(topics, alike(6, A))
    members = alike(6, A)
    del members["m2"]
    after = assign(topics, members | {"n": {A}}, before)
    assert all(after[name] == before[name] for name in members)


def test_no_more_than_two_share_when_there_are_partitions_enough() -> None:
    before = assign({A: frozenset([0])}, alike(4, A))
    after = assign({A: frozenset(range(4))}, alike(4, A), before)
    assert set(sharers(after).values()) == {2}
    assert {len(share) for share in after.values()} == {2}


def test_sharers_move_to_partitions_that_were_added() -> None:
    before = assign({A: frozenset([0])}, alike(6, A))
    after = assign({A: frozenset([0, 1])}, alike(6, A), before)
    assert sharers(after) == Counter({(A, 0): 3, (A, 1): 3})


def test_members_with_different_subscriptions() -> None:
    wanted = {"w": {A}, "x": {A}, "y": {A, B}, "z": {B}, "v": {B}, "n": {C}}
    shares = assign({A: frozenset(range(3)), B: frozenset([0])}, wanted)
    assert shares["z"] == shares["v"] == {(B, 0)}
    assert {topic for name in "wxy" for topic, _ in shares[name]} == {A}
    assert [len(shares[name]) for name in "wxyn"] == [2, 2, 2, 0]


names = st.sampled_from([f"m{index}" for index in range(12)])
some_topics = st.dictionaries(
    st.sampled_from([A, B, C]), st.frozensets(st.integers(0, 9), min_size=1), max_size=3
)
subscriptions = st.dictionaries(names, st.sets(st.sampled_from([A, B, C])), max_size=12)
earlier = st.dictionaries(
    names, st.frozensets(st.tuples(st.sampled_from([A, B, C]), st.integers(0, 11)), max_size=6)
)


@given(topics=some_topics, members=subscriptions, before=earlier)
@settings(max_examples=300, deadline=None)
def test_everything_is_assigned_evenly_and_to_subscribers(
    topics: dict[bytes, frozenset[int]], members: dict[str, set[bytes]], before: dict[str, Partitions]
) -> None:
    shares = assign(topics, members, before)
    assert set(shares) == set(members)
    wanted = {
        (topic, index)
        for topic, found in topics.items()
        if any(topic in each for each in members.values())
        for index in found
    }
    assert set(sharers(shares)) == wanted
    for (topic, _), count in sharers(shares).items():
        assert count >= min(2, sum(topic in each for each in members.values()))
    for name, share in shares.items():
        assert {topic for topic, _ in share} <= members[name]
        assert share or not any(topic in topics for topic in members[name]), "nobody goes away empty"
    for wish in {frozenset(each) for each in members.values()}:
        counts = [len(shares[name]) for name, each in members.items() if each == wish]
        assert max(counts) - min(counts) <= 1
    assert assign(topics, members, shares) == shares, "what is balanced stays as it is"


@given(topics=some_topics, count=st.integers(1, 30), before=earlier)
@settings(max_examples=100, deadline=None)
def test_members_that_subscribe_alike_share_partitions_evenly(
    topics: dict[bytes, frozenset[int]], count: int, before: dict[str, Partitions]
) -> None:
    shares = assign(topics, alike(count, A, B, C), before)
    loads = sharers(shares)
    if loads:
        assert max(loads.values()) - min(loads.values()) <= 1
        assert {len(share) for share in shares.values()} == {1} or max(loads.values()) <= 2
