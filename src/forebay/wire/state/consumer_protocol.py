"""The messages between members of a classic group of consumers, which are opaque to the broker.

Still, the broker reads the topics of a subscription, and in a group with members of both protocols it reads
and writes assignments too. A version newer than those known here is read as the newest of them, because new
fields only ever come at the end.
"""

from __future__ import annotations

from forebay.errors import ProtocolError
from forebay.wire.codec.compiled import decoder
from forebay.wire.fields import Message, Struct, array, binary, int32, string
from forebay.wire.state.versioned import M, pack, version_of

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
    return _read(ConsumerProtocolSubscription, data)


def read_topics(data: bytes) -> list[str]:
    """The topics of a subscription: by the fields of version 0, with which all versions begin.

    Some clients claim a later version and leave its fields out. Kafka's coordinator does not read them.
    """
    version_of(data)
    subscription: ConsumerProtocolSubscription
    subscription, _ = decoder(ConsumerProtocolSubscription, 0)(memoryview(data), 2)
    return subscription.topics


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode an assignment. A member that was not given anything yet has an empty one."""
    return _read(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def write_assignment(assignment: ConsumerProtocolAssignment, subscription: bytes) -> bytes:
    """Encode an assignment, in the version of the member's own subscription."""
    return pack(assignment, _known(ConsumerProtocolAssignment, subscription))


def _read(cls: type[M], data: bytes) -> M:
    value: M
    value, _ = decoder(cls, _known(cls, data))(memoryview(data), 2)
    return value


def _known(cls: type[Message], data: bytes) -> int:
    version = version_of(data)
    if version < 0:
        raise ProtocolError(f"a {cls.__name__} of version {version}")
    return min(version, cls.MAX_VERSION)
