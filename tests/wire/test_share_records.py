"""The records of share groups are Kafka's, byte for byte; written out by hand from its definitions."""

from __future__ import annotations

import pytest

from forebay.wire.fields import Message
from forebay.wire.state.share_group import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartitions,
    TopicPartitionsInfo,
)
from forebay.wire.state.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from forebay.wire.state.versioned import pack, unpack

TOPIC = bytes(range(16))
TWO_PARTITIONS = TopicPartitions(topic_id=TOPIC, partitions=[1, 2])
TWO_PARTITIONS_BYTES = b"\x02" + TOPIC + b"\x03\0\0\0\x01\0\0\0\x02" + b"\0"
BATCH = StateBatch(first_offset=8, last_offset=9, delivery_state=2, delivery_count=3)
BATCH_BYTES = b"\x02" + b"\0\0\0\0\0\0\0\x08" + b"\0\0\0\0\0\0\0\x09" + b"\x02" + b"\0\x03" + b"\0"

GROUP_RECORDS: list[tuple[Message, int, bytes]] = [
    (ShareGroupMemberMetadataKey(group_id="g", member_id="m"), 10, b"\0\x0a\0\x01g\0\x01m"),
    (
        ShareGroupMemberMetadataValue(
            rack_id=None, client_id="c", client_host="/h", subscribed_topic_names=["t"]
        ),
        0,
        b"\0\0" + b"\0" + b"\x02c" + b"\x03/h" + b"\x02\x02t" + b"\0",
    ),
    (
        ShareGroupMemberMetadataValue(rack_id="r", client_id="c", client_host="/h"),
        0,
        b"\0\0\x02r\x02c\x03/h\x01\0",
    ),
    (ShareGroupMetadataKey(group_id="g"), 11, b"\0\x0b\0\x01g"),
    (
        ShareGroupMetadataValue(epoch=7, metadata_hash=1),
        0,
        b"\0\0\0\0\0\x07\0\0\0\0\0\0\0\x01\0",
    ),
    (ShareGroupTargetAssignmentMetadataKey(group_id="g"), 12, b"\0\x0c\0\x01g"),
    (ShareGroupTargetAssignmentMetadataValue(assignment_epoch=7), 0, b"\0\0\0\0\0\x07\0"),
    (
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=7, assignment_timestamp_ms=5),
        0,
        b"\0\0\0\0\0\x07\x01\0\x08\0\0\0\0\0\0\0\x05",
    ),
    (ShareGroupTargetAssignmentMemberKey(group_id="g", member_id="m"), 13, b"\0\x0d\0\x01g\0\x01m"),
    (
        ShareGroupTargetAssignmentMemberValue(topic_partitions=[TWO_PARTITIONS]),
        0,
        b"\0\0" + TWO_PARTITIONS_BYTES + b"\0",
    ),
    (ShareGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), 14, b"\0\x0e\0\x01g\0\x01m"),
    (
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=4, previous_member_epoch=3, state=1, assigned_partitions=[TWO_PARTITIONS]
        ),
        0,
        b"\0\0\0\0\0\x04\0\0\0\x03\x01" + TWO_PARTITIONS_BYTES + b"\0",
    ),
    (ShareGroupStatePartitionMetadataKey(group_id="g"), 15, b"\0\x0f\0\x01g"),
    (
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=[TopicPartitionsInfo(topic_id=TOPIC, topic_name="t", partitions=[1])],
            initialized_topics=[TopicPartitionsInfo(topic_id=TOPIC, topic_name="t", partitions=[0])],
            deleting_topics=[TopicInfo(topic_id=TOPIC, topic_name="d")],
        ),
        0,
        b"\0\0"
        + (b"\x02" + TOPIC + b"\x02t" + b"\x02\0\0\0\x01" + b"\0")
        + (b"\x02" + TOPIC + b"\x02t" + b"\x02\0\0\0\0" + b"\0")
        + (b"\x02" + TOPIC + b"\x02d" + b"\0")
        + b"\0",
    ),
]

STATE_RECORDS: list[tuple[Message, int, bytes]] = [
    (
        ShareSnapshotKey(group_id="g", topic_id=TOPIC, partition=5),
        0,
        b"\0\0\0\x01g" + TOPIC + b"\0\0\0\x05",
    ),
    (
        ShareSnapshotValue(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=4,
            create_timestamp_ms=5,
            write_timestamp_ms=6,
            state_batches=[BATCH],
        ),
        0,
        b"\0\0"
        + (b"\0\0\0\x01" + b"\0\0\0\x02" + b"\0\0\0\x03" + b"\0\0\0\0\0\0\0\x04")
        + (b"\0\0\0\0\0\0\0\x05" + b"\0\0\0\0\0\0\0\x06")
        + BATCH_BYTES
        + b"\0",
    ),
    (
        ShareSnapshotValue(start_offset=-1, delivery_complete_count=7),
        0,
        b"\0\0" + bytes(12) + b"\xff" * 8 + bytes(16) + b"\x01" + b"\x01\0\x04\0\0\0\x07",
    ),
    (
        ShareUpdateKey(group_id="g", topic_id=TOPIC, partition=5),
        1,
        b"\0\x01\0\x01g" + TOPIC + b"\0\0\0\x05",
    ),
    (
        ShareUpdateValue(
            snapshot_epoch=1,
            leader_epoch=3,
            start_offset=-1,
            delivery_complete_count=7,
            state_batches=[BATCH],
        ),
        0,
        b"\0\0\0\0\0\x01\0\0\0\x03" + b"\xff" * 8 + BATCH_BYTES + b"\x01\0\x04\0\0\0\x07",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "data"), GROUP_RECORDS + STATE_RECORDS, ids=lambda each: type(each).__name__
)
def test_records_are_as_kafka_writes_them(message: Message, version: int, data: bytes) -> None:
    assert pack(message, version) == data
    assert unpack(type(message), data) == message
