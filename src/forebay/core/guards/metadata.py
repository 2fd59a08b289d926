"""Guards for clients' views of topics: Metadata, DescribeTopicPartitions, DescribeCluster.

A client cannot tell if a topic that it may not describe exists.
"""

from __future__ import annotations

from typing import Any

from forebay.core.acls.bindings import Operation
from forebay.core.guards.guard import TOPIC, Access, Narrowed, Refused, Verdict, changed, split
from forebay.core.views.catalog import readable_topics
from forebay.errors import ErrorCode
from forebay.wire.messages import describe_cluster as cluster_wire
from forebay.wire.messages import describe_topic_partitions as partitions_wire
from forebay.wire.messages import metadata as wire

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NULL_NAMES_FROM = 12
_NO_TOPIC = wire.MetadataRequestTopic(name="")
"""None has an empty name."""


def metadata(access: Access, version: int, request: wire.MetadataRequest) -> Verdict:
    topics = request.topics
    if topics is None or (version == 0 and not topics):
        if not access.may_describe_some(TOPIC):
            request = changed(request, topics=[], allow_auto_topic_creation=False)
            if version == 0:  # an empty list means all topics there
                request = changed(request, topics=[_NO_TOPIC])
            return Narrowed(
                request, lambda response: _seen(access, request, changed(response, topics=[]), [])
            )
        return Narrowed(request, lambda response: _seen(access, request, response, []))
    left, unseen = split(topics, lambda topic: access.refuses_topic(Operation.DESCRIBE, topic))
    left, unmade = split(left, lambda topic: _refuses_creation(access, request, topic))
    if not (unseen or unmade or _asks_for_operations(request)):
        return None
    answers = [_denied(topic, version) for topic in (*unseen, *unmade)]
    # In version 0 an empty list means all topics.
    asked = left or ([_NO_TOPIC] if version == 0 else [])

    def complete(response: wire.MetadataResponse) -> wire.MetadataResponse:
        if not left:
            response = changed(response, topics=[])
        return _seen(access, request, response, answers)

    return Narrowed(changed(request, topics=asked), complete)


def _refuses_creation(access: Access, request: wire.MetadataRequest, topic: Any) -> bool:
    """True if this request would create a topic, and may not."""
    if not (access.creates_topics and request.allow_auto_topic_creation and topic.name):
        return False
    if wire.is_by_id(topic):
        return False
    return access.refuses_creation(topic.name)


def _asks_for_operations(request: wire.MetadataRequest) -> bool:
    return request.include_topic_authorized_operations or request.include_cluster_authorized_operations


def _seen(
    access: Access,
    request: wire.MetadataRequest,
    response: wire.MetadataResponse,
    answers: list[wire.MetadataResponseTopic],
) -> wire.MetadataResponse:
    """The response without topics that the client may not see, and with the operations that it may do."""
    # A topic may have got its name between the guard and the handler, so named topics are checked again.
    topics = [
        topic
        for topic in response.topics
        if topic.name is None or access.may(Operation.DESCRIBE, TOPIC, topic.name)
    ]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None and not topic.error_code:
                topic.topic_authorized_operations = access.operations(TOPIC, topic.name)
    whole = changed(response, topics=topics + answers)
    if request.include_cluster_authorized_operations:
        whole.cluster_authorized_operations = access.cluster_operations()
    return whole


def _denied(topic: wire.MetadataRequestTopic, version: int) -> wire.MetadataResponseTopic:
    """If asked by id, the name is not revealed."""
    hidden = None if version >= _NULL_NAMES_FROM else ""
    return wire.MetadataResponseTopic(
        error_code=_DENIED, name=hidden if wire.is_by_id(topic) else topic.name, topic_id=topic.topic_id
    )


def describe_topic_partitions(
    access: Access, _version: int, request: partitions_wire.DescribeTopicPartitionsRequest
) -> Verdict:
    names = [topic.name for topic in request.topics]
    every, left, refused = list[str](), list[str](), list[str]()
    if names:
        left, refused = split(names, lambda name: access.refuses(Operation.DESCRIBE, TOPIC, name))
    elif access.may_describe_some(TOPIC):  # all existing topics
        every = sorted(topic.name for topic in readable_topics(access.image))
        left = [name for name in every if access.may(Operation.DESCRIBE, TOPIC, name)]
    # Denied ones come with the first page.
    answers = [] if request.cursor is not None else [_not_described(name) for name in refused]
    if not left:
        return Refused(partitions_wire.DescribeTopicPartitionsResponse(topics=answers))

    def complete(response: Any) -> Any:
        for topic in response.topics:
            if topic.name is not None and not topic.error_code:
                topic.topic_authorized_operations = access.operations(TOPIC, topic.name)
        return changed(response, topics=[*response.topics, *answers])

    if names or len(left) < len(every):
        request = changed(request, topics=[partitions_wire.TopicRequest(name=name) for name in left])
    return Narrowed(request, complete)


def _not_described(name: str) -> partitions_wire.DescribeTopicPartitionsResponseTopic:
    return partitions_wire.DescribeTopicPartitionsResponseTopic(error_code=_DENIED, name=name)


def describe_cluster(access: Access, _version: int, request: cluster_wire.DescribeClusterRequest) -> Verdict:
    """Everybody may see the brokers. Allowed operations need Describe on the cluster."""
    if not request.include_cluster_authorized_operations:
        return None

    def complete(response: Any) -> Any:
        return changed(response, cluster_authorized_operations=access.cluster_operations())

    return Narrowed(request, complete)
