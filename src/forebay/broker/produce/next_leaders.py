"""Where the leaders are of partitions that a Produce request found led elsewhere (KIP-951).

A client that gets them needs no metadata before it sends again.
"""

from __future__ import annotations

from forebay.broker.produce.produce_host import ProduceHost
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.registration import addresses_by
from forebay.errors import ErrorCode
from forebay.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    ProduceResponse,
    TopicProduceResponse,
)

_LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def with_next_leaders(service: ProduceHost, response: ProduceResponse, listener: str) -> ProduceResponse:
    """The response to a client that came by this listener, with all that this broker knows of other leaders.

    A partition that this broker leads, or believes to lead, is left out: its error has another reason.
    """
    image, leaders = service.metadata.image, set[int]()
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code in _LED_ELSEWHERE:
                state = _state(image, topic, answer.index)
                if state is not None and state.leader not in (NO_LEADER, service.node_id):
                    answer.current_leader = LeaderIdAndEpoch(
                        leader_id=state.leader, leader_epoch=state.leader_epoch
                    )
                    leaders.add(state.leader)
    response.node_endpoints = [
        NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in addresses_by(listener, image.brokers, leaders)
    ]
    return response


def _state(image: ClusterImage, topic: TopicProduceResponse, index: int) -> PartitionState | None:
    return image.partition(image.topic_names.get(topic.topic_id, topic.name), index)
