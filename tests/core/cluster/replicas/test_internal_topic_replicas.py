"""Internal topics get the replicas that a grown cluster can give them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from forebay.config import ControllerConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import BrokerPut, PartitionPut, TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.controller import plan
from forebay.core.cluster.replicas.internal_topics import Widening, widen
from forebay.core.cluster.replicas.reassignment import reassign


def cluster(brokers: int, *topics: str) -> ClusterImage:
    image = ClusterImage(cluster_id="c")
    image = image.apply(put for number in range(1, brokers + 1) for put in joining(number))
    return image.apply(
        TopicPut(record=TopicRecord(name=name, topic_id=name.encode()[:16].ljust(16), assignment=((1,),) * 4))
        for name in topics
    )


def finished(image: ClusterImage) -> ClusterImage:
    """After all new replicas have caught up."""
    joined = [
        PartitionPut(topic_id=topic.topic_id, state=_in_sync(state))
        for topic in image.topics.values()
        for state in topic.partitions
    ]
    image = image.apply(joined)
    return image.apply(plan(image, ControllerConfig()))


def _in_sync(state: PartitionState) -> PartitionState:
    return replace(state, isr=state.replicas)


def test_a_lone_broker_has_nobody_to_give_replicas_to() -> None:
    assert widen(cluster(1, "__consumer_offsets")) == []


def test_internal_topics_grow_with_the_cluster_and_others_do_not() -> None:
    image = cluster(4, "__consumer_offsets", "orders")
    image = finished(image.apply(widen(image)))
    states = image.topics["__consumer_offsets"].partitions
    assert all(len(state.replicas) == 3 and not state.adding for state in states)
    spread = Counter(broker for state in states for broker in state.replicas if broker != 1)
    assert max(spread.values()) - min(spread.values()) <= 1
    assert all(state.replicas == (1,) for state in image.topics["orders"].partitions)
    assert widen(image) == []


def test_what_is_being_moved_is_left_alone() -> None:
    image = cluster(3, "__transaction_state")
    image = image.apply(widen(image))
    assert widen(image) == []


def test_the_setting_for_new_topics_counts() -> None:
    image = cluster(4, "__consumer_offsets")
    image = finished(image.apply(widen(image, 2)))
    assert {len(state.replicas) for state in image.topics["__consumer_offsets"].partitions} == {2}


def test_a_partition_is_widened_once_for_a_broker_that_joined() -> None:
    image = cluster(1, "__consumer_offsets")
    widening = Widening()
    assert widening.plan(image, -1) == []
    image = image.apply(joining(2))
    first = widening.plan(image, -1)
    assert {change.state.target for change in first} == {(1, 2)}
    # Nothing was committed, so it is still to be done.
    assert widening.plan(image, -1) == first
    widening.begun(first)
    image = finished(image.apply(first))
    assert widening.plan(image, -1) == []


def test_a_new_controller_finds_what_was_made_while_there_was_none() -> None:
    image = cluster(1, "__consumer_offsets").apply(joining(2))
    assert {change.state.target for change in Widening().plan(image, -1)} == {(1, 2)}


def test_a_topic_that_was_made_after_the_brokers_had_joined_is_looked_at_too() -> None:
    image = cluster(1, "__consumer_offsets").apply(joining(2))
    empty = replace(image, topics={})
    widening = Widening()
    assert widening.plan(empty, -1) == []
    assert {change.state.target for change in widening.plan(image, -1)} == {(1, 2)}


def test_one_that_joins_during_a_move_is_given_its_share_afterwards() -> None:
    image = cluster(1, "__consumer_offsets")
    widening = Widening()
    image = image.apply(joining(2))
    first = widening.plan(image, -1)
    widening.begun(first)
    image = image.apply([*first, *joining(3)])
    assert widening.plan(image, -1) == []
    assert {change.state.target for change in widening.plan(finished(image), -1)} == {(1, 2, 3)}


def test_a_replica_that_is_taken_away_at_once_is_not_given_back() -> None:
    image = cluster(1, "__consumer_offsets")
    widening = Widening()
    image = image.apply(joining(2))
    wider = widening.plan(image, -1)
    widening.begun(wider)
    image = finished(image.apply(wider))
    # The next look comes when the broker is being drained already, and one more when it has been.
    drained = [move for state in range(4) for move in reassign(image, "__consumer_offsets", state, [1])]
    image = image.apply(drained)
    assert widening.plan(image, -1) == []
    assert widening.plan(finished(image), -1) == []


def joining(node_id: int) -> list[BrokerPut]:
    return [BrokerPut(registration=BrokerRegistration(id=node_id, host="h", port=1))]
