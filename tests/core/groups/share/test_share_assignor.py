"""The assignor "simple": balance first, then stickiness; every partition and every member is served."""

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
    shares = assign({A: frozenset([1, 4, 7])}, alike(2, A))
    assert sharers(shares) == Counter({(A, 1): 1, (A, 4): 1, (A, 7): 1})
    assert sorted(map(len, shares.values())) == [1, 2]


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


def test_sharing_ends_when_there_are_partitions_enough() -> None:
    before = assign({A: frozenset([0])}, alike(3, A))
    after = assign({A: frozenset(range(3))}, alike(3, A), before)
    assert set(sharers(after).values()) == {1}
    assert {len(share) for share in after.values()} == {1}


def test_sharers_move_to_partitions_that_were_added() -> None:
    before = assign({A: frozenset([0])}, alike(6, A))
    after = assign({A: frozenset([0, 1])}, alike(6, A), before)
    assert sharers(after) == Counter({(A, 0): 3, (A, 1): 3})


def test_members_with_different_subscriptions() -> None:
    shares = assign({A: frozenset(range(4)), B: frozenset([0])}, {"x": {A}, "y": {A, B}, "z": {B}, "n": {C}})
    assert shares["z"] == {(B, 0)}
    assert {topic for topic, _ in shares["x"] | shares["y"]} == {A}
    assert (len(shares["x"]), len(shares["y"]), shares["n"]) == (2, 2, frozenset())


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
        assert {len(share) for share in shares.values()} == {1} or max(loads.values()) == 1
