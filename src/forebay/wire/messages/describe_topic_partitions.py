"""DescribeTopicPartitions: partitions of topics, page by page."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import (
    OWN_TAGS_FROM,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class TopicRequest(Struct):
    name: str = string()


class Cursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(
    Request, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible=0
):
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
    offline_replicas: list[int] = array(int32)
    folded_into: int = int32(default=-1, tag=OWN_TAGS_FROM)
    """Forebay's: the partition that takes the messages for this one, if it is closed."""


class GonePartition(Struct):
    partition_index: int = int32()
    end_offset: int = int64()
    """Its end offset: a consumer at that offset has read all of it."""


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-2147483648)
    closed_ms: int = int64(default=-1, tag=OWN_TAGS_FROM)
    """Forebay's: when partitions were folded."""
    drop_ms: int = int64(default=-1, tag=OWN_TAGS_FROM + 1)
    """Forebay's: when they are removed with their messages; -1: when they are empty."""
    gone: list[GonePartition] = array(GonePartition, tag=OWN_TAGS_FROM + 2)
    """Forebay's: folded partitions that were removed."""
    copies_from: int = int32(default=-1, tag=OWN_TAGS_FROM + 3)
    """Forebay's: if folded partitions are copied before they are closed: the first of them,"""
    copies_next: int = int32(default=-1, tag=OWN_TAGS_FROM + 4)
    """the one that is being copied, or their end if all are copied,"""
    copies_end: int = int32(default=-1, tag=OWN_TAGS_FROM + 5)
    """and their end."""
    gathering: list[int] = array(int32, tag=OWN_TAGS_FROM + 6)
    """Forebay's: closed partitions that take messages again once they have the sequence numbers."""
    draining: list[int] = array(int32, tag=OWN_TAGS_FROM + 7)
    """Forebay's: partitions that took messages for those, and may have open transactions with them."""


class DescribeTopicPartitionsResponse(
    Response, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible=0
):
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)
