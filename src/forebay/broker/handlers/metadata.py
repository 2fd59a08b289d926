"""Metadata: brokers and partitions, at the address the client came by; topics are created on request."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeAlias

from forebay.broker.cluster.addresses import Addresses
from forebay.broker.cluster.failover.pending_failovers import PendingFailovers
from forebay.broker.cluster.topic_changes import TopicChanges
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.broker.quotas.client_quotas import ClientQuotas
from forebay.broker.quotas.mutation_quota import MutationQuota
from forebay.coordination.metadata import Metadata
from forebay.core.acls.operations import ON_CLUSTER, ON_TOPIC, operations
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.topics.topic_requests import unknown_topic_code
from forebay.core.large_requests.answer_parts import TopicsPart
from forebay.core.views.catalog import readable_topic, readable_topic_by_id, readable_topics
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages import metadata as wire
from forebay.wire.messages.metadata import is_by_id

_NEVER_FORGET = ("librdkafka", "confluent-kafka-")
"""The software names of clients on librdkafka."""
_KEEP_BATCHES = ("apache-kafka-java", "kafka-python")
"""The software names of clients that lower their count and keep batches. aiokafka does not give its name."""
_ASKS_AGAIN_S = 5.0
"""A producer that asks again so soon has messages for partitions that it was not shown."""
_LISTENER_NOT_FOUND_FROM = 6
_IDS_FROM = 12
"""Versions 10 and 11 have the field of the topic id already, but only name topics."""

_Answer: TypeAlias = wire.MetadataResponse | Coroutine[Any, Any, wire.MetadataResponse]


def handle(
    metadata: Metadata,
    settings: LiveConfig,
    topic_changes: TopicChanges,
    addresses: Addresses,
    failovers: PendingFailovers,
    quotas: ClientQuotas,
    context: RequestContext,
    request: wire.MetadataRequest,
) -> _Answer:
    def answer() -> _Answer:
        image = metadata.image
        if context.api_version < _IDS_FROM and any(map(_needs_ids, request.topics or ())):
            return _response(image, addresses, context, request, _without_ids(request))
        if _wants_all(context, request):
            allowed = _allowed(request)
            topics = [_topic(image, topic, allowed, _partitions(context)) for topic in _all(image, context)]
            return _response(image, addresses, context, request, topics)
        missing = _missing(image, request)
        if missing and request.allow_auto_topic_creation and settings.current.topics.auto_create:
            return _create_then_describe(
                metadata, topic_changes, addresses, quotas, context, request, missing
            )
        return _response(image, addresses, context, request, _described(image, context, request, {}))

    if failovers.concern(lambda: _leaders(metadata.image, context, request)):
        return _after(failovers, answer)
    return answer()


def _leaders(image: ClusterImage, context: RequestContext, request: wire.MetadataRequest) -> Iterator[int]:
    """Who leads what a client asks for."""
    everything = _wants_all(context, request)
    for topic in _all(image, context) if everything else _found(image, request):
        for state in topic.partitions[_partitions(context)]:
            yield state.leader


def _partitions(context: RequestContext) -> slice:
    """The partitions of each topic to answer now: a part, if the topic has many."""
    part: TopicsPart | None = context.part
    return slice(None) if part is None else part.partitions


def _all(image: ClusterImage, context: RequestContext) -> Iterable[TopicImage]:
    """Every topic; where there are many, those whose turn it is."""
    part: TopicsPart | None = context.part
    if part is None or part.names is None:
        return readable_topics(image)
    found = (readable_topic(image, name) for name in part.names)
    return (topic for topic in found if topic is not None)


def _found(image: ClusterImage, request: wire.MetadataRequest) -> Iterator[TopicImage]:
    for wanted in _distinct(request):
        found = _lookup(image, wanted)
        if found is not None:
            yield found


def _distinct(request: wire.MetadataRequest) -> Iterable[wire.MetadataRequestTopic]:
    """A topic that is named twice is answered once, as Kafka does: it may have thousands of partitions."""
    topics = request.topics or ()
    return topics if len(topics) < 2 else {(topic.name, topic.topic_id): topic for topic in topics}.values()


def _lookup(image: ClusterImage, wanted: wire.MetadataRequestTopic) -> TopicImage | None:
    if is_by_id(wanted):
        return readable_topic_by_id(image, wanted.topic_id)
    return readable_topic(image, wanted.name or "")


def _needs_ids(wanted: wire.MetadataRequestTopic) -> bool:
    return wanted.name is None or is_by_id(wanted)


def _without_ids(request: wire.MetadataRequest) -> list[wire.MetadataResponseTopic]:
    return [
        wire.MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
        )
        for topic in request.topics or ()
    ]


async def _after(failovers: PendingFailovers, answer: Callable[[], _Answer]) -> wire.MetadataResponse:
    await failovers.over()
    found = answer()
    return await found if isinstance(found, Coroutine) else found


def _wants_all(context: RequestContext, request: wire.MetadataRequest) -> bool:
    # Version 0 could not say null; there, an empty list means every topic.
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _missing(image: ClusterImage, request: wire.MetadataRequest) -> list[str]:
    topics, views = image.topics, image.views
    names = [topic.name for topic in request.topics or () if topic.name and not is_by_id(topic)]
    return [name for name in names if name not in topics and name not in views]


async def _create_then_describe(
    metadata: Metadata,
    topic_changes: TopicChanges,
    addresses: Addresses,
    quotas: ClientQuotas,
    context: RequestContext,
    request: wire.MetadataRequest,
    missing: list[str],
) -> wire.MetadataResponse:
    quota = MutationQuota(quotas, context, refuses_from=None)
    errors: dict[str, ErrorCode] = {}
    for name in dict.fromkeys(missing):
        try:
            await topic_changes.create(name, metered=quota.metered)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                errors[name] = error.code
    image = metadata.image
    topics = _described(image, context, request, errors)
    return quota.answered(_response(image, addresses, context, request, topics))


def _described(
    image: ClusterImage, context: RequestContext, request: wire.MetadataRequest, errors: dict[str, ErrorCode]
) -> list[wire.MetadataResponseTopic]:
    allowed = _allowed(request)
    partitions = _partitions(context)
    topics = [_wanted_topic(image, topic, errors, allowed, partitions) for topic in _distinct(request)]
    if partitions.stop is not None:
        return topics  # the last part has those that are gone
    gone = {topic.name: found for topic in topics if (found := _gone(image, topic))}
    if gone and _needs_gone(context, request):
        for topic in topics:
            topic.partitions += gone.get(topic.name, [])
    return topics


def _needs_gone(context: RequestContext, request: wire.MetadataRequest) -> bool:
    """True if a producer asks that may have messages for partitions which were folded and are gone.

    librdkafka never lowers the number of a topic's partitions. When it loses its broker it needs the metadata
    to go on. Only producers ask for topics to be created, unless a consumer's user wants it.

    The Java client, kafka-python and aiokafka lower the number, but a message that they have put into a batch
    stays there. When the metadata does not show the partition, the batch waits until it has expired. So a
    connection on which messages for folded partitions have come is shown them. A client that has lost its
    connection asks for metadata again and again while batches wait, as no producer does that is content.
    Their producers and consumers never share a connection: consumers are not shown them, and their groups go
    on without. A client without a name that also consumes on the connection may be another one.
    """
    connection = context.connection
    if request.allow_auto_topic_creation and connection.software.startswith(_NEVER_FORGET):
        return True
    if not connection.produces or connection.consumes:
        return False
    if connection.software and not connection.software.startswith(_KEEP_BATCHES):
        return False
    if connection.names_folded:
        return True
    if connection.last_active - connection.hid_partitions_s < _ASKS_AGAIN_S:
        return True
    connection.hid_partitions_s = connection.last_active
    return False


def _gone(image: ClusterImage, shown: wire.MetadataResponseTopic) -> list[wire.MetadataResponsePartition]:
    """Partitions of a topic that are gone, as if they were led where their messages go."""
    topic = None if shown.error_code or shown.name is None else image.topics.get(shown.name)
    folding = None if topic is None else topic.record.folding
    if topic is None or folding is None:
        return []
    gone = []
    for index in range(len(topic.partitions), folding.named_end):
        home = _partition(image, topic.partitions[topic.path(index)[-1]])
        home.partition_index, home.leader_epoch = index, folding.last_epoch + 1
        gone.append(home)
    return gone


def _allowed(request: wire.MetadataRequest) -> int:
    """The operations that a client may use on a topic, if it asks for them."""
    return operations(ON_TOPIC, asked=request.include_topic_authorized_operations)


def _wanted_topic(
    image: ClusterImage,
    wanted: wire.MetadataRequestTopic,
    errors: dict[str, ErrorCode],
    allowed: int,
    partitions: slice,
) -> wire.MetadataResponseTopic:
    found = _lookup(image, wanted)
    if found is not None:
        return _topic(image, found, allowed, partitions)
    if is_by_id(wanted):
        return wire.MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id
        )
    name = wanted.name or ""
    if name in image.unreadable.topics:
        code = ErrorCode.LEADER_NOT_AVAILABLE  # it exists, so clients are to wait for it
    else:
        code = errors[name] if name in errors else unknown_topic_code(name)
    return wire.MetadataResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID)


def _topic(
    image: ClusterImage, topic: TopicImage, allowed: int, partitions: slice
) -> wire.MetadataResponseTopic:
    return wire.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(image, partition) for partition in topic.partitions[partitions]],
        topic_authorized_operations=allowed,
    )


def _partition(image: ClusterImage, state: PartitionState) -> wire.MetadataResponsePartition:
    alive = image.brokers
    led = state.leader != NO_LEADER
    return wire.MetadataResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=state.index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[replica for replica in state.replicas if replica not in alive],
    )


def _response(
    image: ClusterImage,
    addresses: Addresses,
    context: RequestContext,
    request: wire.MetadataRequest,
    topics: list[wire.MetadataResponseTopic],
) -> wire.MetadataResponse:
    connection = context.connection
    hidden = addresses.hidden_from(connection)
    if hidden:
        _hide(hidden, context, topics)
    return wire.MetadataResponse(
        brokers=[
            wire.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in addresses.addresses_for(
                connection, with_gone=_looks_for_leaders(context, request)
            )
        ],
        cluster_id=image.cluster_id,
        controller_id=addresses.controller_id,
        topics=topics,
        cluster_authorized_operations=operations(
            ON_CLUSTER, asked=request.include_cluster_authorized_operations
        ),
    )


def _looks_for_leaders(context: RequestContext, request: wire.MetadataRequest) -> bool:
    """True if a client on librdkafka asks for topics that it uses. It must not be told that the broker which
    led them is gone, before it has moved away from it (`cluster/failover/`)."""
    return bool(request.topics) and context.connection.software.startswith(_NEVER_FORGET)


def _hide(hidden: set[int], context: RequestContext, topics: list[wire.MetadataResponseTopic]) -> None:
    """Brokers that lack the listener of a client are to it as if they were away."""
    known = context.api_version >= _LISTENER_NOT_FOUND_FROM
    code = ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
    for topic in topics:
        for partition in topic.partitions:
            away = [node for node in partition.replica_nodes if node in hidden]
            partition.offline_replicas = sorted({*partition.offline_replicas, *away})
            if partition.leader_id in hidden:
                partition.leader_id, partition.error_code = NO_LEADER, code
