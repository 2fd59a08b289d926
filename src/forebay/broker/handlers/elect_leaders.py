"""ElectLeaders: leadership to first replicas, or, where data may be lost over it, to any that is left."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from forebay.broker.cluster.partition_changes import carry_out_each
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut
from forebay.core.cluster.replicas.requested_elections import LastClaimBook, elect
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import elect_leaders as wire

_PREFERRED = 0
_UNCLEAN = 1


async def handle(
    metadata: Metadata, settings: LiveConfig, _context: RequestContext, request: wire.ElectLeadersRequest
) -> wire.ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return wire.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    unclean = request.election_type == _UNCLEAN
    places = _places(metadata.image, request)
    minimum = settings.current.controller.min_insync_replicas
    decide = partial(elect, unclean=unclean, min_insync_replicas=minimum, claims_in=LastClaimBook())
    errors = await carry_out_each(metadata, {place: partial(_elect, decide, place) for place in places})
    if request.topic_partitions is None:
        # Of a request for all partitions, the response lists those where there was something to do.
        errors = {place: error for place, error in errors.items() if not _not_needed(error)}
    return wire.ElectLeadersResponse(replica_election_results=_results(errors))


def _places(image: ClusterImage, request: wire.ElectLeadersRequest) -> list[TopicPartition]:
    if request.topic_partitions is not None:
        return [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    return [(topic.name, state.index) for topic in image.topics.values() for state in topic.partitions]


def _elect(
    decide: Callable[[ClusterImage, str, int], list[PartitionPut]], place: TopicPartition, image: ClusterImage
) -> list[PartitionPut]:
    return decide(image, *place)


def _not_needed(error: KafkaError | None) -> bool:
    return error is not None and error.code == ErrorCode.ELECTION_NOT_NEEDED


def _results(errors: dict[TopicPartition, KafkaError | None]) -> list[wire.ReplicaElectionResult]:
    topics: dict[str, list[wire.PartitionResult]] = {}
    for (name, index), error in errors.items():
        code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
        result = wire.PartitionResult(partition_id=index, error_code=code, error_message=message)
        topics.setdefault(name, []).append(result)
    return [
        wire.ReplicaElectionResult(topic=name, partition_result=results) for name, results in topics.items()
    ]
