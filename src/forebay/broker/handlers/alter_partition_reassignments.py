"""AlterPartitionReassignments: begin moves of partitions, or cancel those under way."""

from __future__ import annotations

from functools import partial
from typing import Any

from forebay.broker.cluster.partition_changes import Decide, carry_out_each
from forebay.broker.cluster.topic_changes import named_twice
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut
from forebay.core.cluster.replicas.reassignment import reassign
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import alter_partition_reassignments as wire


async def handle(
    metadata: Metadata,
    settings: LiveConfig,
    _context: RequestContext,
    request: wire.AlterPartitionReassignmentsRequest,
) -> wire.AlterPartitionReassignmentsResponse:
    minimum = settings.current.controller.min_insync_replicas
    errors = await carry_out_each(metadata, _decisions(request, minimum))
    topics: dict[str, list[wire.ReassignablePartitionResponse]] = {topic.name: [] for topic in request.topics}
    for (name, index), error in errors.items():
        topics[name].append(_result(index, error))
    return wire.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            wire.ReassignableTopicResponse(name=name, partitions=results) for name, results in topics.items()
        ],
    )


def _decisions(
    request: wire.AlterPartitionReassignmentsRequest, minimum: int
) -> dict[TopicPartition, Decide]:
    """`minimum`: how many replicas must be in sync unless the topic says otherwise."""
    wanted = [
        ((topic.name, partition.partition_index), partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    twice = named_twice(place for place, _ in wanted)
    return {
        place: partial(_refuse, place)
        if place in twice
        else partial(
            _reassign,
            place,
            replicas,
            allow_replication_factor_change=request.allow_replication_factor_change,
            min_insync_replicas=minimum,
        )
        for place, replicas in wanted
    }


def _reassign(
    place: TopicPartition, replicas: list[int] | None, image: ClusterImage, **options: Any
) -> list[PartitionPut]:
    return reassign(image, *place, replicas, **options)


def _refuse(place: TopicPartition, _image: ClusterImage) -> list[PartitionPut]:
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{place[0]}-{place[1]} is in the request more than once")


def _result(index: int, error: KafkaError | None) -> wire.ReassignablePartitionResponse:
    if error is None:
        return wire.ReassignablePartitionResponse(partition_index=index)
    return wire.ReassignablePartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message
    )
