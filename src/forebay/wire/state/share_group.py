"""The records of a share group in __consumer_offsets: a kind of key for each part that changes separately.

The parts are the members with their subscriptions, the epoch of the group, each member's target and current
assignment, and the partitions for which share coordinators hold state. The version of a key says which kind
it is.
"""

from __future__ import annotations

from forebay.wire.fields import Message, Struct, array, int8, int32, int64, string, uuid


class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ShareGroupMemberMetadataKey(Message, versions=(10, 10)):
    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Message, versions=(0, 0), flexible=0):
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataKey(Message, versions=(11, 11)):
    group_id: str = string()


class ShareGroupMetadataValue(Message, versions=(0, 0), flexible=0):
    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Message, versions=(12, 12)):
    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Message, versions=(0, 0), flexible=0):
    assignment_epoch: int = int32()
    assignment_timestamp_ms: int = int64(tag=0)


class ShareGroupTargetAssignmentMemberKey(Message, versions=(13, 13)):
    group_id: str = string()
    member_id: str = string()


class ShareGroupTargetAssignmentMemberValue(Message, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupCurrentMemberAssignmentKey(Message, versions=(14, 14)):
    group_id: str = string()
    member_id: str = string()


class ShareGroupCurrentMemberAssignmentValue(Message, versions=(0, 0), flexible=0):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupStatePartitionMetadataKey(Message, versions=(15, 15)):
    group_id: str = string()


class TopicPartitionsInfo(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class TopicInfo(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(Message, versions=(0, 0), flexible=0):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)


class ShareGroupEpochFloorKey(Message, versions=(16_384, 16_384)):
    """Not Kafka's: one record for all share groups of a partition."""


class ShareGroupEpochFloorValue(Message, versions=(0, 0), flexible=0):
    epoch: int = int32()
    """The highest epoch of a deleted group. A new one begins above it."""
