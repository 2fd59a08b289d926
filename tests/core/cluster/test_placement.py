"""Placement: racks apart as far as there are racks, topics spread evenly, ties to who has least to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import BrokerPut, TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.placement import Assignment, level_leaders, place
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.balancing import drain_all, rebalance


def cluster(racks: Sequence[str | None], *, first: int = 1) -> ClusterImage:
    brokers = [
        BrokerRegistration(id=number, host="h", port=9, rack=rack) for number, rack in enumerate(racks, first)
    ]
    return ClusterImage(cluster_id="c").apply([BrokerPut(registration=broker) for broker in brokers])


def hosts(*workers: int, rack: str | None = None) -> ClusterImage:
    """Hosts with this many workers each, all in one rack."""
    names = [f"h{host}" for host, count in enumerate(workers) for _ in range(count)]
    brokers = [
        BrokerRegistration(id=each, host=host, port=9, rack=rack) for each, host in enumerate(names, 1)
    ]
    return ClusterImage(cluster_id="c").apply([BrokerPut(registration=broker) for broker in brokers])


def with_topic(image: ClusterImage, name: str, assignment: Assignment) -> ClusterImage:
    record = TopicRecord(name=name, topic_id=name.encode().ljust(16), assignment=assignment)
    return image.apply([TopicPut(record=record)])


def spread(image: ClusterImage, counts: Counter[int]) -> int:
    held = [counts[broker] for broker in image.brokers]
    return max(held) - min(held)


def replicas_of(assignment: Assignment) -> Counter[int]:
    return Counter(replica for replicas in assignment for replica in replicas)


def leaders_of(assignment: Assignment) -> Counter[int]:
    return Counter(replicas[0] for replicas in assignment)


equal_racks = st.builds(
    lambda racks, size, order: order.sample([f"r{n % racks}" for n in range(racks * size)], racks * size),
    st.integers(1, 5),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
no_racks = st.integers(1, 9).map(lambda count: [None] * count)
any_racks = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8)


@given(no_racks, st.integers(1, 40), st.data())
def test_replicas_and_leaders_are_even_within_one(
    racks: list[None], partitions: int, data: st.DataObject
) -> None:
    image = cluster(racks)
    factor = data.draw(st.integers(1, len(racks)))
    assignment = place(image, partitions=partitions, replication_factor=factor)
    assert len(assignment) == partitions
    assert all(len(set(replicas)) == len(replicas) == factor for replicas in assignment)
    assert set(replicas_of(assignment)) <= set(image.brokers)
    assert spread(image, replicas_of(assignment)) <= 1
    assert spread(image, leaders_of(assignment)) <= 1


@given(equal_racks, st.integers(1, 30), st.data())
def test_racks_of_one_size_cost_no_balance(racks: list[str], partitions: int, data: st.DataObject) -> None:
    image = cluster(racks)
    factor = data.draw(st.integers(1, len(set(racks))))
    assignment = place(image, partitions=partitions, replication_factor=factor)
    assert spread(image, replicas_of(assignment)) <= 1
    assert spread(image, leaders_of(assignment)) <= 1


@given(any_racks, st.integers(1, 20), st.data())
def test_replicas_stand_in_as_many_racks_as_there_are(
    racks: list[str | None], partitions: int, data: st.DataObject
) -> None:
    image = cluster(racks)
    factor = data.draw(st.integers(1, len(racks)))
    domains = {number: rack or str(number) for number, rack in enumerate(racks, 1)}
    possible = min(factor, len(set(domains.values())))
    for replicas in place(image, partitions=partitions, replication_factor=factor):
        assert len({domains[replica] for replica in replicas}) == possible


@given(no_racks, st.integers(1, 12), st.integers(1, 12), st.data())
def test_a_topic_that_grows_stays_even(
    racks: list[None], before: int, more: int, data: st.DataObject
) -> None:
    image = cluster(racks)
    factor = data.draw(st.integers(1, len(racks)))
    old = place(image, partitions=before, replication_factor=factor)
    new = place(with_topic(image, "t", old), partitions=more, replication_factor=factor, beside=old)
    assert spread(image, replicas_of(old + new)) <= 1


def test_small_topics_go_to_the_broker_with_the_least_load() -> None:
    image = with_topic(cluster([None] * 3), "big", ((1, 2), (1, 2), (2, 1)))
    assert place(image, partitions=1, replication_factor=1) == ((3,),)


def test_a_topic_is_spread_even_where_one_broker_is_empty() -> None:
    image = with_topic(cluster([None] * 3), "big", ((1, 2),) * 9)
    assert leaders_of(place(image, partitions=3, replication_factor=1)) == {1: 1, 2: 1, 3: 1}


def test_the_load_of_a_lost_leader_spreads() -> None:
    assignment = place(cluster([None] * 4), partitions=12, replication_factor=2)
    assert Counter(replicas[1] for replicas in assignment if replicas[0] == 1) == {2: 1, 3: 1, 4: 1}


def test_replicas_on_brokers_that_are_away_are_no_obstacle() -> None:
    image = with_topic(cluster([None] * 2, first=2), "t", ((1, 2),))
    added = place(image, partitions=1, replication_factor=2, beside=[(1, 2)])
    assert set(added[0]) == {2, 3}


def test_leaders_are_levelled_along_a_chain() -> None:
    # 1 shares no partition with 3: it can only give to 2, which gives on.
    assignments = [[1, 2], [1, 2], [1, 2], [2, 3], [2, 3]]
    level_leaders(assignments, {2: 0})
    assert sorted(Counter(replicas[0] for replicas in assignments).values()) == [1, 2, 2]
    assert [sorted(replicas) for replicas in assignments] == [[1, 2], [1, 2], [1, 2], [2, 3], [2, 3]]


def test_leaders_elsewhere_count() -> None:
    assignments = [[1, 2], [1, 2]]
    level_leaders(assignments, {1: 5})
    assert assignments == [[2, 1], [2, 1]]


def test_the_partitions_of_a_dead_leader_go_to_all_others() -> None:
    placed = place(cluster([None] * 3), partitions=12, replication_factor=3)
    for dead in (1, 2, 3):
        heirs = Counter(replicas[1] for replicas in placed if replicas[0] == dead)
        assert sorted(heirs.values()) == [2, 2], heirs


def test_replicas_are_on_different_hosts_where_there_are_enough() -> None:
    for image in (hosts(4, 4, 4), hosts(4, 4, 4, rack="zone")):
        assignment = place(image, partitions=24, replication_factor=3)
        for replicas in assignment:
            assert len({image.brokers[replica].host for replica in replicas}) == 3
        assert spread(image, replicas_of(assignment)) == 0
    crowded = hosts(2, 2, rack="zone")
    for replicas in place(crowded, partitions=8, replication_factor=3):
        assert len({crowded.brokers[replica].host for replica in replicas}) == 2


def test_balancing_puts_no_two_replicas_onto_one_host() -> None:
    image = hosts(2, 2, rack="zone")
    image = with_topic(image, "t", ((1, 3), (1, 3), (1, 3), (1, 3)))
    for move in rebalance(image):
        assert len({image.brokers[replica].host for replica in move.replicas}) == 2
    image = with_topic(hosts(2, 2), "t", ((1, 3), (2, 4), (1, 4), (2, 3)))
    for move in drain_all(image, {2, 4}):
        assert sorted(move.replicas) == [1, 3]
