"""ListPartitionReassignments: the moves of partitions that are under way."""

from __future__ import annotations

from collections.abc import Collection

from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.replicas.reassignment import reassigning
from forebay.wire.messages import list_partition_reassignments as wire


def handle(
    metadata: Metadata, _context: RequestContext, request: wire.ListPartitionReassignmentsRequest
) -> wire.ListPartitionReassignmentsResponse:
    topics = metadata.image.topics
    if request.topics is None:
        found = [_moves(topic, None) for topic in topics.values()]
    else:
        wanted = {topic.name: set(topic.partition_indexes) for topic in request.topics}
        found = [_moves(topics[name], indexes) for name, indexes in wanted.items() if name in topics]
    return wire.ListPartitionReassignmentsResponse(topics=[topic for topic in found if topic.partitions])


def _moves(topic: TopicImage, indexes: Collection[int] | None) -> wire.OngoingTopicReassignment:
    return wire.OngoingTopicReassignment(
        name=topic.name,
        partitions=[
            wire.OngoingPartitionReassignment(
                partition_index=state.index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )
            for state in topic.partitions
            if reassigning(state) and (indexes is None or state.index in indexes)
        ],
    )
