"""Topics that are named by an id which nobody has here are not passed on to handlers that may look later.

A client may have heard of a new topic from another broker. If its request were passed on, the handler could
find the topic when this broker has heard of it, too, and nobody would have asked whether the client may.
"""

from __future__ import annotations

from typing import Any

import pytest

from forebay.core.acls.authorizer import Authorizer
from forebay.core.acls.bindings import AclBinding, Operation, PatternType, Permission, ResourceType
from forebay.core.acls.text import acl_id
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.guards.guard import Access, Narrowed, Refused
from forebay.core.guards.table import RULES
from forebay.errors import ErrorCode
from forebay.wire.messages import delete_topics as deleting
from forebay.wire.messages import offset_commit as committing
from forebay.wire.messages import offset_fetch as fetching
from forebay.wire.messages import produce as producing

OWN, OWN_ID, NEW_ID = "own", b"o" * 16, b"n" * 16
IMAGE = ClusterImage(cluster_id="c").apply(
    [TopicPut(record=TopicRecord(name=OWN, topic_id=OWN_ID, assignment=((1,),)))]
)


def access() -> Access:
    """Of a client that may do everything with its own topic and group."""
    acls = [
        AclBinding(kind, PatternType.LITERAL, OWN, "User:ada", "*", Operation.ALL, Permission.ALLOW)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    authorizer = Authorizer()
    authorizer.replace({acl_id(acl): acl for acl in acls})
    return Access(authorizer, "User:ada", "::1", IMAGE)


def produce(*ids: bytes) -> tuple[int, int, Any]:
    data = [producing.PartitionProduceData(index=3, records=None)]
    topics = [producing.TopicProduceData(topic_id=each, partition_data=data) for each in ids]
    return 0, 13, producing.ProduceRequest(acks=-1, timeout_ms=1, topic_data=topics)


def delete(*ids: bytes) -> tuple[int, int, Any]:
    topics = [deleting.DeleteTopicState(name=None, topic_id=each) for each in ids]
    return 20, 6, deleting.DeleteTopicsRequest(topics=topics)


def commit(*ids: bytes) -> tuple[int, int, Any]:
    partitions = [committing.OffsetCommitRequestPartition(partition_index=3, committed_offset=1)]
    topics = [committing.OffsetCommitRequestTopic(topic_id=each, partitions=partitions) for each in ids]
    return 8, 10, committing.OffsetCommitRequest(group_id=OWN, topics=topics)


def fetch_offsets(*ids: bytes) -> tuple[int, int, Any]:
    topics = [fetching.OffsetFetchRequestTopics(topic_id=each, partition_indexes=[3]) for each in ids]
    return (
        9,
        10,
        fetching.OffsetFetchRequest(groups=[fetching.OffsetFetchRequestGroup(group_id=OWN, topics=topics)]),
    )


REQUESTS = [produce, delete, commit, fetch_offsets]


def topics_of(request: Any) -> list[bytes]:
    if isinstance(request, fetching.OffsetFetchRequest):
        request = request.groups[0]
    return [topic.topic_id for topic in getattr(request, "topic_data", None) or request.topics]


@pytest.mark.parametrize("make", REQUESTS)
def test_what_is_known_is_passed_on(make: Any) -> None:
    key, version, request = make(OWN_ID)
    assert RULES[key].guard(access(), version, request) is None


@pytest.mark.parametrize("make", REQUESTS)
def test_what_is_not_known_is_not_passed_on(make: Any) -> None:
    key, version, request = make(OWN_ID, NEW_ID)
    verdict = RULES[key].guard(access(), version, request)
    assert isinstance(verdict, Narrowed)
    assert topics_of(verdict.request) == [OWN_ID]


@pytest.mark.parametrize("make", [produce, delete, commit])
def test_it_is_answered_that_there_is_no_such_topic(make: Any) -> None:
    key, version, request = make(NEW_ID)
    asked = access()
    verdict = RULES[key].guard(asked, version, request)
    assert isinstance(verdict, Refused)
    (topic,) = getattr(verdict.response, "topics", None) or verdict.response.responses
    parts = getattr(topic, "partition_responses", None) or getattr(topic, "partitions", None) or [topic]
    assert (topic.topic_id, parts[0].error_code) == (NEW_ID, ErrorCode.UNKNOWN_TOPIC_ID)
    assert not asked.refused, "it is no refusal of access"


def test_so_are_offsets() -> None:
    key, version, request = fetch_offsets(NEW_ID)
    verdict = RULES[key].guard(access(), version, request)
    assert isinstance(verdict, Narrowed)
    group = fetching.OffsetFetchResponseGroup(group_id=OWN, topics=[])
    whole = verdict.complete(fetching.OffsetFetchResponse(groups=[group]))
    (topic,) = whole.groups[0].topics
    assert (topic.topic_id, topic.partitions[0].error_code) == (NEW_ID, ErrorCode.UNKNOWN_TOPIC_ID)
