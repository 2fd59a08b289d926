"""Elections on request: who leads then, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import BrokerPut, PartitionPut, TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.requested_elections import elect
from forebay.errors import ErrorCode, KafkaError
from support.machines.partition_states import TOPIC_ID, partition


def image_of(state: PartitionState, alive: Iterable[int]) -> ClusterImage:
    record = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=(state.replicas,))
    registered = [BrokerPut(registration=BrokerRegistration(id=n, host="h", port=9)) for n in alive]
    image = ClusterImage(cluster_id="c").apply([*registered, TopicPut(record=record)])
    return image.apply([PartitionPut(topic_id=TOPIC_ID, state=state)])


WHOLE = partition(1, (1, 2, 3))


@pytest.mark.parametrize(
    ("state", "unclean", "alive", "expected"),
    [
        (partition(2, (1, 2)), False, (1, 2), (1, 6, (1, 2))),
        (partition(NO_LEADER, (3,)), True, (1, 2), (1, 6, (1,))),
        (partition(NO_LEADER, ()), True, (2,), (2, 6, (2,))),
        # Where a clean one is possible, an unclean one takes it.
        (partition(1, (1, 3)), True, (2, 3), (3, 6, (3,))),
    ],
)
def test_elections(
    state: PartitionState, unclean: bool, alive: tuple[int, ...], expected: tuple[int, int, tuple[int, ...]]
) -> None:
    (change,) = elect(image_of(state, alive), "t", 0, unclean=unclean)
    assert (change.state.leader, change.state.leader_epoch, change.state.isr) == expected


@pytest.mark.parametrize(
    ("state", "unclean", "alive", "code"),
    [
        (WHOLE, False, (1, 2), ErrorCode.ELECTION_NOT_NEEDED),
        (WHOLE, True, (1, 2), ErrorCode.ELECTION_NOT_NEEDED),
        (partition(2, (2,)), False, (1, 2), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (partition(2, (1, 2)), False, (2,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (partition(NO_LEADER, (1,)), True, (4, 5), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_elections_that_are_refused(
    state: PartitionState, unclean: bool, alive: tuple[int, ...], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as caught:
        elect(image_of(state, alive), "t", 0, unclean=unclean)
    assert caught.value.code == code


@pytest.mark.parametrize(("topic", "index"), [("u", 0), ("t", 1), ("t", -1)])
def test_what_is_not_there_is_not_elected(topic: str, index: int) -> None:
    with pytest.raises(KafkaError) as caught:
        elect(image_of(WHOLE, alive=(1, 2, 3)), topic, index)
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
