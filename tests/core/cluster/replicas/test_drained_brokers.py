"""A broker that was drained is given nothing, by nobody, until it is taken back."""

from __future__ import annotations

import pytest

from forebay.config import DRAINED, broker_config
from forebay.core.cluster.config_changes import Alteration, AlterOp, Resource, alter_configs, taken_back
from forebay.core.cluster.image import ALL_BROKERS, ClusterImage
from forebay.core.cluster.image_changes import BrokerPut, ConfigOwner, ConfigPut, TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.placement import place, staying
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.balancing import rebalance
from forebay.core.cluster.replicas.internal_topics import widen
from forebay.core.cluster.resources import ResourceType
from forebay.core.cluster.topics.topic_requests import default_replicas
from forebay.errors import KafkaError

EVERY_BROKER = Resource(type=ResourceType.BROKER, name="")


def cluster(brokers: int, *drained: int, topic: str = "t") -> ClusterImage:
    record = TopicRecord(name=topic, topic_id=b"t" * 16, assignment=((1,),) * 6)
    registrations = (BrokerRegistration(id=number, host="h", port=9) for number in range(1, brokers + 1))
    image = ClusterImage(cluster_id="c").apply(
        [*(BrokerPut(registration=each) for each in registrations), TopicPut(record=record)]
    )
    overrides = {DRAINED: ",".join(map(str, drained))}
    return (
        image.apply([ConfigPut(owner=ConfigOwner.BROKER, name=ALL_BROKERS, overrides=overrides)])
        if drained
        else image
    )


def altered(image: ClusterImage, op: AlterOp, value: str) -> ClusterImage:
    alteration = Alteration(name=DRAINED, op=op, value=value)
    return image.apply(alter_configs(image, broker_config(), EVERY_BROKER, [alteration]))


def test_new_partitions_go_to_the_others() -> None:
    image = cluster(4, 2, 4)
    placed = place(image, partitions=10, replication_factor=2)
    assert {replica for replicas in placed for replica in replicas} == {1, 3}
    assert default_replicas(image) == 2


def test_who_asks_for_more_replicas_than_stay_gets_them() -> None:
    (replicas,) = place(cluster(3, 3), partitions=1, replication_factor=3)
    assert set(replicas) == {1, 2, 3}
    assert default_replicas(cluster(1, 1)) == 1


def test_balancing_and_widening_pass_it_over() -> None:
    assert {replica for move in rebalance(cluster(3, 3)) for replica in move.replicas} == {2}
    wider = widen(cluster(3, 3, topic="__consumer_offsets"))
    assert {change.state.target for change in wider} == {(1, 2)}


def test_it_is_listed_by_administrators_and_takes_itself_off() -> None:
    image = altered(altered(cluster(3), AlterOp.APPEND, "2"), AlterOp.APPEND, "3")
    assert staying(image).keys() == {1}
    image = image.apply(taken_back(image, broker_config(), 2))
    assert staying(image).keys() == {1, 2}
    assert taken_back(image, broker_config(), 2) == []
    assert staying(altered(image, AlterOp.SUBTRACT, "3")).keys() == {1, 2, 3}


def test_only_brokers_are_listed() -> None:
    with pytest.raises(KafkaError, match="'x' is no broker"):
        altered(cluster(1), AlterOp.APPEND, "x")
