"""The records of KIP-848 groups are Kafka's, byte for byte; written out by hand from its definitions."""

from __future__ import annotations

import pytest

from forebay.wire.fields import Message
from forebay.wire.state.consumer_group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)
from forebay.wire.state.versioned import pack, unpack

TOPIC = bytes(range(16))
TWO_PARTITIONS = TopicPartitions(topic_id=TOPIC, partitions=[1, 2])
TWO_PARTITIONS_BYTES = b"\x02" + TOPIC + b"\x03\0\0\0\x01\0\0\0\x02" + b"\0"

RECORDS: list[tuple[Message, int, bytes]] = [
    (ConsumerGroupMetadataKey(group_id="g"), 3, b"\0\x03\0\x01g"),
    (ConsumerGroupMetadataValue(epoch=7), 0, b"\0\0\0\0\0\x07\0"),
    (
        ConsumerGroupMetadataValue(epoch=7, metadata_hash=1),
        0,
        b"\0\0\0\0\0\x07\x01\0\x08\0\0\0\0\0\0\0\x01",
    ),
    (ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), 5, b"\0\x05\0\x01g\0\x01m"),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            rebalance_timeout_ms=5,
            server_assignor="uniform",
        ),
        0,
        b"\0\0"
        + b"\0\0"
        + b"\x02c"
        + b"\x03/h"
        + b"\x02\x02t"
        + b"\0"
        + b"\0\0\0\x05"
        + b"\x08uniform"
        + b"\0",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id="i",
            rack_id="r",
            client_id="c",
            client_host="/h",
            subscribed_topic_regex="t.*",
            server_assignor=None,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=6, supported_protocols=[ClassicProtocol(name="range", metadata=b"x")]
            ),
        ),
        0,
        b"\0\0\x02i\x02r\x02c\x03/h\x01\x04t.*\xff\xff\xff\xff\0"
        # One tagged field of 16 bytes: there, a timeout, one protocol with name and metadata.
        b"\x01\0\x10\x01\0\0\0\x06\x02\x06range\x02x\0\0",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="/h",
            subscribed_topic_regex="t.*",
            server_assignor=None,
            principal="User:a",
        ),
        0,
        # Our own tagged field, number 1000, behind Kafka's.
        b"\0\0\0\0\x02c\x03/h\x01\x04t.*\xff\xff\xff\xff\0" + b"\x01\xe8\x07\x07\x07User:a",
    ),
    (ConsumerGroupTargetAssignmentMetadataKey(group_id="g"), 6, b"\0\x06\0\x01g"),
    (ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=7), 0, b"\0\0\0\0\0\x07\0"),
    (ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"), 7, b"\0\x07\0\x01g\0\x01m"),
    (
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=[TWO_PARTITIONS]),
        0,
        b"\0\0" + TWO_PARTITIONS_BYTES + b"\0",
    ),
    (ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), 8, b"\0\x08\0\x01g\0\x01m"),
    (
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=4, previous_member_epoch=3, state=1, partitions_pending_revocation=[TWO_PARTITIONS]
        ),
        0,
        b"\0\0\0\0\0\x04\0\0\0\x03\x01\x01" + TWO_PARTITIONS_BYTES + b"\0",
    ),
]


@pytest.mark.parametrize(("message", "version", "data"), RECORDS, ids=lambda each: type(each).__name__)
def test_records_are_as_kafka_writes_them(message: Message, version: int, data: bytes) -> None:
    assert pack(message, version) == data
    assert unpack(type(message), data) == message
