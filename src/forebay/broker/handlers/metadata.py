"""Metadata: brokers and partitions, at the address the client came by; topics are created on request."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.access import ON_CLUSTER, ON_TOPIC, operations
from forebay.core.image import NO_LEADER, PartitionState, TopicImage
from forebay.core.topics import INTERNAL_TOPICS
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


def handle(
    broker: Broker, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    if _wants_all(context, request):
        allowed = _allowed(request)
        topics = [_topic(broker, topic, allowed) for topic in broker.image.topics.values()]
        return _response(broker, context, request, topics)
    missing = _missing(broker, request)
    if missing and request.allow_auto_topic_creation and broker.config.topics.auto_create:
        return _create_then_describe(broker, context, request, missing)
    return _response(broker, context, request, _described(broker, request, {}))


def _wants_all(context: RequestContext, request: MetadataRequest) -> bool:
    # Version 0 could not say null; there, an empty list means every topic.
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _missing(broker: Broker, request: MetadataRequest) -> list[str]:
    known = broker.image.topics
    return [topic.name for topic in request.topics or () if topic.name and topic.name not in known]


async def _create_then_describe(
    broker: Broker, context: RequestContext, request: MetadataRequest, missing: list[str]
) -> MetadataResponse:
    errors: dict[str, ErrorCode] = {}
    for name in dict.fromkeys(missing):
        try:
            await broker.create_topic_on_request(name)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                errors[name] = error.code
    return _response(broker, context, request, _described(broker, request, errors))


def _described(
    broker: Broker, request: MetadataRequest, errors: dict[str, ErrorCode]
) -> list[MetadataResponseTopic]:
    allowed = _allowed(request)
    return [_wanted_topic(broker, topic, errors, allowed) for topic in request.topics or ()]


def _allowed(request: MetadataRequest) -> int:
    """What a client that asks for it may do with a topic."""
    return operations(ON_TOPIC, asked=request.include_topic_authorized_operations)


def _wanted_topic(
    broker: Broker, wanted: MetadataRequestTopic, errors: dict[str, ErrorCode], allowed: int
) -> MetadataResponseTopic:
    if wanted.name is None:
        by_id = broker.image.topic_by_id(wanted.topic_id)
        if by_id is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id
            )
        return _topic(broker, by_id, allowed)
    by_name = broker.image.topics.get(wanted.name)
    if by_name is None:
        code = errors.get(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return MetadataResponseTopic(error_code=code, name=wanted.name, topic_id=ZERO_UUID)
    return _topic(broker, by_name, allowed)


def _topic(broker: Broker, topic: TopicImage, allowed: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, partition) for partition in topic.partitions],
        topic_authorized_operations=allowed,
    )


def _partition(broker: Broker, state: PartitionState) -> MetadataResponsePartition:
    alive = broker.image.brokers
    led = state.leader != NO_LEADER
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=state.index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[replica for replica in state.replicas if replica not in alive],
    )


def _response(
    broker: Broker, context: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in broker.addresses_for(context.connection)
        ],
        cluster_id=broker.image.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
        cluster_authorized_operations=operations(
            ON_CLUSTER, asked=request.include_cluster_authorized_operations
        ),
    )


ENDPOINT = Endpoint(3, 0, 13, handle)
