"""DescribeDelays: the delayed messages of a partition. Sent to its leader; not in Kafka."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, binary, boolean, int16, int32, int64, string

FROM_THE_FIRST = -1


class DescribeDelaysRequest(Request, api_key=ApiKey.DESCRIBE_DELAYS, flexible=0):
    topic: str = string()
    partition: int = int32()
    ids: list[int] = array(int64)
    """Only the waiting messages among these; if empty: all, in the order of (due_ms, id)."""
    after_due_ms: int = int64(default=FROM_THE_FIRST)
    after_id: int = int64(default=FROM_THE_FIRST)
    """Without ids: those after this one in the order of (due_ms, id)."""
    limit: int = int32(default=100)
    values: bool = boolean()
    """True to include the values."""


class DelayedHeader(Struct):
    key: str = string()
    value: bytes | None = binary(nullable="0+", default=None)


class DelayedMessage(Struct):
    id: int = int64()
    """The offset that its producer was given; with the partition, as in 3-1742, it is the schedule id."""
    due_ms: int = int64()
    scheduled_ms: int = int64()
    """When the broker received it."""
    schedule_key: bytes | None = binary(nullable="0+", default=None)
    key: bytes | None = binary(nullable="0+", default=None)
    value: bytes | None = binary(nullable="0+", default=None)
    """Null also if it was not requested."""
    value_size: int = int32(default=-1)
    """-1 for a message without a value."""
    headers: list[DelayedHeader] = array(DelayedHeader)
    """Without the headers that say when it is due."""


class DescribeDelaysResponse(Response, api_key=ApiKey.DESCRIBE_DELAYS, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    pending: int = int64()
    """The number of waiting messages in this partition."""
    messages: list[DelayedMessage] = array(DelayedMessage)
    more: bool = boolean()
    """True if others follow after the last one."""
