"""ListPartitionReassignments: the moves of partitions that are under way."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.image import TopicImage
from forebay.core.reassignment import reassigning
from forebay.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


def handle(
    broker: Broker, _context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    topics = broker.image.topics
    if request.topics is None:
        found = [_moves(topic, None) for topic in topics.values()]
    else:
        wanted = {topic.name: set(topic.partition_indexes) for topic in request.topics}
        found = [_moves(topics[name], indexes) for name, indexes in wanted.items() if name in topics]
    return ListPartitionReassignmentsResponse(topics=[topic for topic in found if topic.partitions])


def _moves(topic: TopicImage, indexes: Collection[int] | None) -> OngoingTopicReassignment:
    return OngoingTopicReassignment(
        name=topic.name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=state.index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )
            for state in topic.partitions
            if reassigning(state) and (indexes is None or state.index in indexes)
        ],
    )


ENDPOINT = Endpoint(46, 0, 0, handle)
