"""The text by which clients and brokers look for the share coordinator of a share partition."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.errors import ErrorCode, KafkaError

_ID_LENGTH = 22
"""A topic id of 16 bytes in base64 without padding."""


def coordinator_key(key: ShareKey) -> str:
    """Kafka's form: `group:topic id in base64:partition`. It hashes to a partition of the topic."""
    topic_id = urlsafe_b64encode(key.topic_id).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


def parse_coordinator_key(text: str) -> ShareKey:
    """The share partition that a key names; KafkaError INVALID_REQUEST if it names none.

    It is read from the right, because the id of a group may have colons.
    """
    group_id, _, rest = text.rpartition(":")
    group_id, _, topic_id = group_id.rpartition(":")
    try:
        if not group_id or len(topic_id) != _ID_LENGTH or not (rest.isascii() and rest.isdigit()):
            raise ValueError
        key = ShareKey(group_id, urlsafe_b64decode(f"{topic_id}=="), int(rest))
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{text!r} is not a group, a topic id and a partition, with colons"
        ) from None
    if coordinator_key(key) != text:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text!r} is not written as a share partition's key is")
    return key
