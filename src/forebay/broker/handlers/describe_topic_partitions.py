"""DescribeTopicPartitions: topics in the order of their names, a bounded number of partitions per page.

The cursor of a response names the first partition that did not fit; a client sends it back to go on.
"""

from __future__ import annotations

from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.acls.operations import ON_TOPIC
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_folds import Gone
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.core.cluster.topics.more_partitions import growth_of
from forebay.core.cluster.topics.topic_requests import unknown_topic_code
from forebay.core.views.catalog import readable_topic, readable_topics
from forebay.errors import ErrorCode
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages import describe_topic_partitions as wire

PAGE_PARTITIONS_MAX = 500
"""A few milliseconds of work. Kafka has 2,000; clients ask for the next page."""


def handle(
    metadata: Metadata, _context: RequestContext, request: wire.DescribeTopicPartitionsRequest
) -> wire.DescribeTopicPartitionsResponse:
    image, cursor = metadata.image, request.cursor
    if cursor is not None and cursor.partition_index < 0:
        return wire.DescribeTopicPartitionsResponse(
            topics=[_failed(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics]
        )
    asked = request.topics or readable_topics(image)  # by none, all are meant
    names = sorted({topic.name for topic in asked})
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(request.response_partition_limit, PAGE_PARTITIONS_MAX))
    return _page(image, names, cursor, left)


def _page(
    image: ClusterImage, names: list[str], cursor: wire.Cursor | None, left: int
) -> wire.DescribeTopicPartitionsResponse:
    topics: list[wire.DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        topic = readable_topic(image, name)
        if topic is None:
            topics.append(_failed(name, unknown_topic_code(name)))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if not left:
            return _response(topics, wire.Cursor(topic_name=name, partition_index=first))
        states = topic.partitions[first : first + left]
        left -= len(states)
        topics.append(_topic(image, topic, states))
        if first + len(states) < len(topic.partitions):
            return _response(topics, wire.Cursor(topic_name=name, partition_index=first + len(states)))
    return _response(topics, None)


def _response(
    topics: list[wire.DescribeTopicPartitionsResponseTopic], next_cursor: wire.Cursor | None
) -> wire.DescribeTopicPartitionsResponse:
    return wire.DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


def _failed(name: str, code: ErrorCode) -> wire.DescribeTopicPartitionsResponseTopic:
    return wire.DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID)


def _topic(
    image: ClusterImage, topic: TopicImage, states: tuple[PartitionState, ...]
) -> wire.DescribeTopicPartitionsResponseTopic:
    folding, growth = topic.record.folding, growth_of(topic)
    copies_from, copies_next, copies_end = _copies(topic)
    return wire.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(image, topic, state) for state in states],
        topic_authorized_operations=ON_TOPIC,
        closed_ms=-1 if folding is None else folding.closed_ms,
        drop_ms=-1 if folding is None or folding.drop_ms is None else folding.drop_ms,
        gone=[] if folding is None else [_gone(each) for each in folding.gone],
        copies_from=copies_from,
        copies_next=copies_next,
        copies_end=copies_end,
        gathering=[] if growth is None else list(growth.gathering),
        draining=[] if growth is None else list(growth.draining),
    )


def _gone(gone: Gone) -> wire.GonePartition:
    return wire.GonePartition(partition_index=gone.partition, end_offset=gone.end_offset)


def _copies(topic: TopicImage) -> tuple[int, int, int]:
    """Which partitions are copied, and which of them is next; the end if all are."""
    folding = topic.record.folding
    if folding is None or folding.copied is None:
        return -1, -1, -1
    end = min(folding.folds[0].end, len(topic.partitions))  # the last ones may be gone already
    return folding.folds[0].first, min(folding.copied, end), end


def _partition(
    image: ClusterImage, topic: TopicImage, state: PartitionState
) -> wire.DescribeTopicPartitionsResponsePartition:
    led, target = state.leader != NO_LEADER, topic.folded_into(state.index)
    return wire.DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=state.index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        # Java's AdminClient fails on null here.
        eligible_leader_replicas=list(state.eligible),
        last_known_elr=[],
        offline_replicas=[replica for replica in state.replicas if replica not in image.brokers],
        folded_into=-1 if target is None else target.partition,
    )
