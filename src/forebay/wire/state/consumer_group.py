"""The records of a KIP-848 group in __consumer_offsets: a kind of key for each part that changes separately.

The parts are the group's epoch, each member with its subscription, its target assignment, and its current
assignment. The version of a key says which kind it is.
"""

from __future__ import annotations

from forebay.wire.fields import (
    Message,
    Struct,
    array,
    binary,
    int8,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupMetadataKey(Message, versions=(3, 3)):
    group_id: str = string()


class ConsumerGroupMetadataValue(Message, versions=(0, 0), flexible=0):
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupMemberMetadataKey(Message, versions=(5, 5)):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = binary()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Message, versions=(0, 0), flexible=0):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable="0+", default=None, tag=0
    )
    principal: str = string(default="", tag=1000)
    """Forebay's: far above Kafka's own tags, whose readers skip it."""


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions=(6, 6)):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions=(0, 0), flexible=0):
    assignment_epoch: int = int32()


class ConsumerGroupTargetAssignmentMemberKey(Message, versions=(7, 7)):
    group_id: str = string()
    member_id: str = string()


class ConsumerGroupTargetAssignmentMemberValue(Message, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions=(8, 8)):
    group_id: str = string()
    member_id: str = string()


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions=(0, 0), flexible=0):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)
