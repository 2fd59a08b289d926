"""DescribeQuorum: the state of a KRaft quorum."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int16, int32, int64, string, uint16, uuid


class PartitionQuery(Struct):
    partition_index: int = int32()


class TopicQuery(Struct):
    topic_name: str = string()
    partitions: list[PartitionQuery] = array(PartitionQuery)


class DescribeQuorumRequest(Request, api_key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0):
    topics: list[TopicQuery] = array(TopicQuery)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(Struct):
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


class DescribeQuorumResponse(Response, api_key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0):
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")
