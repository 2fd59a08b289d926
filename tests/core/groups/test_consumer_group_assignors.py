"""The assignors: each partition goes to one subscriber, evenly, and `uniform` moves no more than it must."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.groups.assigned_partitions import Partitions
from forebay.core.groups.consumer.assignors import ASSIGNORS, Subscriber, range_assignor, uniform_assignor

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
TOPICS = [A, B, C]


def subscribers(
    topics: dict[str, set[bytes]], before: dict[str, Partitions] | None = None
) -> dict[str, Subscriber]:
    return {
        name: Subscriber(topics=frozenset(wanted), assigned=(before or {}).get(name, frozenset()))
        for name, wanted in topics.items()
    }


def indexes(share: Partitions, topic: bytes = A) -> list[int]:
    return sorted(index for name, index in share if name == topic)


names = st.sampled_from([f"m{n}" for n in range(8)])
subscriptions = st.dictionaries(names, st.sets(st.sampled_from(TOPICS)), max_size=8)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12))
owned = st.dictionaries(
    names, st.frozensets(st.tuples(st.sampled_from([*TOPICS, b"gone" * 4]), st.integers(0, 14)), max_size=10)
)


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(wanted=subscriptions, topics=counts, before=owned)
def test_every_partition_goes_to_one_subscriber(assignor, wanted, topics, before) -> None:  # type: ignore[no-untyped-def]
    shares = assignor(subscribers(wanted, before), topics)
    assert set(shares) == set(wanted)
    given_out = Counter(partition for share in shares.values() for partition in share)
    expected = {
        (topic, index)
        for topic, count in topics.items()
        if any(topic in mine for mine in wanted.values())
        for index in range(count)
    }
    assert set(given_out) == expected
    assert all(times == 1 for times in given_out.values())
    assert all(topic in wanted[name] for name, share in shares.items() for topic, _ in share)


@given(members=st.integers(1, 9), topics=counts.filter(bool), before=owned)
def test_uniform_is_even_among_equals(members: int, topics: dict[bytes, int], before) -> None:  # type: ignore[no-untyped-def]
    wanted = {f"m{n}": set(topics) for n in range(members)}
    loads = [len(share) for share in uniform_assignor(subscribers(wanted, before), topics).values()]
    assert max(loads) - min(loads) <= 1


@given(wanted=subscriptions, topics=counts, before=owned)
def test_uniform_is_as_even_as_subscriptions_allow(wanted, topics, before) -> None:  # type: ignore[no-untyped-def]
    """No partition could go, by way of others, from one who has more to one who has two less."""
    shares = uniform_assignor(subscribers(wanted, before), topics)
    reach = {
        name: {other for topic, _ in share for other in wanted if topic in wanted[other]}
        for name, share in shares.items()
    }
    for start in shares:
        seen, waiting = {start}, [start]
        while waiting:
            found = reach[waiting.pop()] - seen
            seen |= found
            waiting += found
        assert all(len(shares[other]) >= len(shares[start]) - 1 for other in seen)


@given(wanted=subscriptions, topics=counts, before=owned)
def test_uniform_leaves_alone_what_is_even(wanted, topics, before) -> None:  # type: ignore[no-untyped-def]
    first = uniform_assignor(subscribers(wanted, before), topics)
    assert uniform_assignor(subscribers(wanted, first), topics) == first


@given(members=st.integers(1, 8), count=st.integers(0, 60), leaver=st.integers(0, 7))
def test_uniform_moves_no_more_than_it_must(members: int, count: int, leaver: int) -> None:
    wanted = {f"m{n}": {A} for n in range(members)}
    before = uniform_assignor(subscribers(wanted), {A: count})
    joined = {**wanted, "new": {A}}
    after = uniform_assignor(subscribers(joined, before), {A: count})
    assert all(after[name] <= before[name] for name in wanted), "only the new one is given anything"

    remaining = {name: mine for name, mine in wanted.items() if name != f"m{leaver}"}
    after = uniform_assignor(subscribers(remaining, before), {A: count})
    assert all(after[name] >= before[name] for name in remaining), "nobody who stays loses anything"


def test_uniform_moves_along_a_chain() -> None:
    """x has too much but shares no topic with z; y takes from the one and gives to the other."""
    wanted = {"x": {A}, "y": {A, B}, "z": {B}}
    before = {
        "x": frozenset((A, n) for n in range(3)),
        "y": frozenset((B, n) for n in range(2)),
        "z": frozenset({(B, 2)}),
    }
    shares = uniform_assignor(subscribers(wanted, before), {A: 3, B: 3})
    assert [len(shares[name]) for name in "xyz"] == [2, 2, 2]


def test_uniform_shares_out_many_partitions_quickly() -> None:
    wanted = {f"m{n:04}": {A, B} if n % 2 else {A, C} for n in range(400)}
    topics = {A: 4000, B: 3000, C: 1000}
    before = uniform_assignor(subscribers(wanted), topics)
    del wanted["m0001"]
    after = uniform_assignor(subscribers(wanted, before), topics)
    loads = [len(share) for share in after.values()]
    assert (sum(loads), max(loads) - min(loads)) == (8000, 1)


def test_range_gives_runs() -> None:
    shares = range_assignor(subscribers({"x": {A}, "y": {A}, "z": {A}}), {A: 8})
    assert [indexes(shares[name]) for name in "xyz"] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_range_gives_the_same_run_of_each_topic() -> None:
    shares = range_assignor(subscribers({"x": {A, B}, "y": {A, B}}), {A: 5, B: 5})
    assert all(indexes(share, A) == indexes(share, B) for share in shares.values())


def test_range_gives_nothing_to_those_too_many() -> None:
    shares = range_assignor(subscribers({"x": {A}, "y": {A}, "z": {B}}), {A: 1, B: 1})
    assert [len(shares[name]) for name in "xyz"] == [1, 0, 1]


def test_range_keeps_the_place_of_a_static_member() -> None:
    topics = frozenset({A})
    for name in ("a-new-id", "z-new-id"):
        members = {
            name: Subscriber(topics=topics, instance_id="one"),
            "m": Subscriber(topics=topics, instance_id="two"),
        }
        assert indexes(range_assignor(members, {A: 4})[name]) == [0, 1]
