"""What the members of a classic group of consumers tell each other, and the broker only carries along.

The broker looks inside for one thing: the topics of a subscription. A version newer than those
known here is read as the newest of them, because new fields only ever come at the end.
"""

from __future__ import annotations

from forebay.errors import ProtocolError
from forebay.wire.codec import decoder
from forebay.wire.fields import Message, Struct, array, binary, int32, string
from forebay.wire.state.versioned import version_of

PROTOCOL_TYPE = "consumer"


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = binary(nullable="0+", default=None)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    version = version_of(data)
    if version < 0:
        raise ProtocolError(f"a subscription of version {version}")
    known = min(version, ConsumerProtocolSubscription.MAX_VERSION)
    value: ConsumerProtocolSubscription
    value, _ = decoder(ConsumerProtocolSubscription, known)(memoryview(data), 2)
    return value
