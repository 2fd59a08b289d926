"""Rebalancing moves little and ends even; draining leaves nothing behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import BrokerDeleted, BrokerPut, PartitionPut, TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.placement import Assignment, place
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.balancing import Move, drain, rebalance
from forebay.errors import ErrorCode, KafkaError


def cluster(racks: Sequence[str | None]) -> ClusterImage:
    brokers = [BrokerRegistration(id=n, host="h", port=9, rack=rack) for n, rack in enumerate(racks, 1)]
    return ClusterImage(cluster_id="c").apply([BrokerPut(registration=broker) for broker in brokers])


def with_topic(image: ClusterImage, name: str, assignment: Assignment) -> ClusterImage:
    record = TopicRecord(name=name, topic_id=name.encode().ljust(16), assignment=assignment)
    return image.apply([TopicPut(record=record)])


def moved(image: ClusterImage, moves: Sequence[Move]) -> ClusterImage:
    """The image once all moves have ended."""
    return image.apply(
        PartitionPut(
            topic_id=image.topics[move.topic].topic_id,
            state=replace(
                image.topics[move.topic].partitions[move.partition],
                replicas=move.replicas,
                isr=move.replicas,
                leader=move.replicas[0],
            ),
        )
        for move in moves
    )


def replica_counts(image: ClusterImage, topic: str | None = None) -> Counter[int]:
    topics = image.topics.values() if topic is None else [image.topics[topic]]
    return Counter(r for t in topics for state in t.partitions for r in state.replicas)


def spread(image: ClusterImage, counts: Counter[int]) -> int:
    held = [counts[broker] for broker in image.brokers]
    return max(held) - min(held)


def copies(image: ClusterImage, moves: Sequence[Move]) -> int:
    return sum(
        len(set(move.replicas) - set(image.topics[move.topic].partitions[move.partition].replicas))
        for move in moves
    )


@st.composite
def placed_clusters(
    draw: st.DrawFn, racks: Sequence[str] = (), topics_max: int = 4, same_factor: bool = False
) -> ClusterImage:
    """Topics that were placed while some of the brokers were not there yet."""
    size = draw(st.integers(2, 7))
    full = cluster([draw(st.sampled_from(racks)) if racks else None for _ in range(size)])
    present = draw(st.integers(1, size))
    image = full.apply([BrokerDeleted(id=number) for number in range(present + 1, size + 1)])
    factor = draw(st.integers(1, present))
    for number, partitions in enumerate(draw(st.lists(st.integers(1, 12), max_size=topics_max))):
        factor = factor if same_factor else draw(st.integers(1, present))
        image = with_topic(
            image, f"t{number}", place(image, partitions=partitions, replication_factor=factor)
        )
    return image.apply([BrokerPut(registration=broker) for broker in full.brokers.values()])


@given(placed_clusters())
def test_rebalancing_evens_out_every_topic_and_the_whole(image: ClusterImage) -> None:
    after = moved(image, rebalance(image))
    assert spread(after, replica_counts(after)) <= 1
    for topic in after.topics:
        assert spread(after, replica_counts(after, topic)) <= 1


@given(placed_clusters(same_factor=True))
def test_rebalancing_evens_out_leaders(image: ClusterImage) -> None:
    after = moved(image, rebalance(image))
    leaders = Counter(state.replicas[0] for t in after.topics.values() for state in t.partitions)
    assert spread(after, leaders) <= 1


@given(placed_clusters(topics_max=1))
def test_rebalancing_copies_only_to_brokers_that_have_too_little(image: ClusterImage) -> None:
    moves = rebalance(image)
    gained = replica_counts(moved(image, moves)) - replica_counts(image)
    assert copies(image, moves) == gained.total()


@given(placed_clusters())
def test_rebalancing_twice_is_rebalancing_once(image: ClusterImage) -> None:
    assert rebalance(moved(image, rebalance(image))) == []


@given(placed_clusters(racks=["a", "b", "c"]))
def test_rebalancing_uses_as_many_racks_as_there_are(image: ClusterImage) -> None:
    after = moved(image, rebalance(image))
    racks = {broker.id: broker.rack for broker in image.brokers.values()}
    for topic in after.topics.values():
        for state in topic.partitions:
            assert len(set(state.replicas)) == len(state.replicas) == topic.replication_factor
            used = {racks[replica] for replica in state.replicas}
            assert len(used) == min(len(state.replicas), len(set(racks.values())))


def test_a_broker_that_joined_gets_its_share_of_every_topic() -> None:
    image = cluster([None, None])
    for name, partitions in (("a", 30), ("b", 3)):
        image = with_topic(image, name, place(image, partitions=partitions, replication_factor=1))
    image = image.apply([BrokerPut(registration=BrokerRegistration(id=3, host="h", port=9))])
    moves = rebalance(image)
    assert copies(image, moves) == len(moves) == 11
    assert replica_counts(moved(image, moves), "a")[3] == 10
    assert replica_counts(moved(image, moves), "b")[3] == 1


def test_what_moves_already_and_what_is_away_stays() -> None:
    image = with_topic(cluster([None] * 3), "t", ((1, 2), (1, 2), (1, 2), (1, 9), (1, 9)))
    going = replace(image.topics["t"].partitions[0], replicas=(1, 2, 3), adding=(3,))
    image = image.apply([PartitionPut(topic_id=image.topics["t"].topic_id, state=going)])
    moves = {move.partition: move.replicas for move in rebalance(image)}
    assert 0 not in moves
    assert all(9 in moves.get(partition, (9,)) for partition in (3, 4))


# -- draining ---------------------------------------------------------------------------------------------


@given(placed_clusters(racks=["a", "b"]), st.data())
def test_a_drained_broker_holds_nothing(image: ClusterImage, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(sorted(image.brokers)))
    needed = max((topic.replication_factor for topic in image.topics.values()), default=0)
    if needed > len(image.brokers) - 1 and any(
        node in state.replicas and len(state.replicas) == needed
        for topic in image.topics.values()
        for state in topic.partitions
    ):
        with pytest.raises(KafkaError, match="start another broker") as caught:
            drain(image, node)
        assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
        return
    moves = drain(image, node)
    after = moved(image, moves)
    assert replica_counts(after)[node] == 0
    assert replica_counts(after).total() == replica_counts(image).total()
    assert copies(image, moves) == replica_counts(image)[node]


def test_what_is_drained_goes_to_a_rack_of_its_own_first() -> None:
    image = with_topic(cluster(["a", "b", "b", "c"]), "t", ((1, 2),))
    assert drain(image, 1) == [Move(topic="t", partition=0, replicas=(4, 2))]


def test_a_broker_that_is_gone_for_good_can_be_drained() -> None:
    image = with_topic(cluster([None] * 3), "t", ((9, 1),))
    (move,) = drain(image, 9)
    assert move.replicas in ((2, 1), (3, 1))


def test_there_is_no_such_broker() -> None:
    with pytest.raises(KafkaError) as caught:
        drain(cluster([None]), 7)
    assert caught.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_draining_replaces_a_move_to_the_broker() -> None:
    image = with_topic(cluster([None] * 4), "t", ((1, 2),))
    going = replace(image.topics["t"].partitions[0], replicas=(1, 3, 2), adding=(3,), removing=(2,))
    image = image.apply([PartitionPut(topic_id=image.topics["t"].topic_id, state=going)])
    (move,) = drain(image, 3)
    assert set(move.replicas) in ({1, 2}, {1, 4})


def test_a_replica_that_nobody_can_take_is_given_up_only_on_request() -> None:
    image = with_topic(cluster([None] * 3), "t", ((1, 2, 3),))
    with pytest.raises(KafkaError, match="no other live broker"):
        drain(image, 1)
    assert drain(image, 1, fewer_replicas=True) == [Move(topic="t", partition=0, replicas=(2, 3))]
    # The last one is never given up.
    alone = with_topic(cluster([None]), "t", ((1,),))
    with pytest.raises(KafkaError, match="no other live broker"):
        drain(alone, 1, fewer_replicas=True)
