"""DescribeDelays: the messages of a partition that wait for their time. To its leader; not of Kafka."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, binary, boolean, int16, int32, int64, string

FROM_THE_FIRST = -1


class DescribeDelaysRequest(Request, api_key=ApiKey.DESCRIBE_DELAYS, flexible=0):
    topic: str = string()
    partition: int = int32()
    ids: list[int] = array(int64)
    """Only these, those of them that wait; none named: all, in the order of (due_ms, id)."""
    after_due_ms: int = int64(default=FROM_THE_FIRST)
    after_id: int = int64(default=FROM_THE_FIRST)
    """With no ids: those behind this one in the order of (due_ms, id)."""
    limit: int = int32(default=100)
    values: bool = boolean()
    """Whether the values come with them."""


class DelayedHeader(Struct):
    key: str = string()
    value: bytes | None = binary(nullable="0+", default=None)


class DelayedMessage(Struct):
    id: int = int64()
    """The offset that its producer was given; with the partition before it, as in 3-1742, it is the schedule
    id."""
    due_ms: int = int64()
    scheduled_ms: int = int64()
    """When the broker took it."""
    schedule_key: bytes | None = binary(nullable="0+", default=None)
    key: bytes | None = binary(nullable="0+", default=None)
    value: bytes | None = binary(nullable="0+", default=None)
    """Null, too, if it was not asked for."""
    value_size: int = int32(default=-1)
    """-1 for a message without a value."""
    headers: list[DelayedHeader] = array(DelayedHeader)
    """Without those that say when it is due."""


class DescribeDelaysResponse(Response, api_key=ApiKey.DESCRIBE_DELAYS, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    pending: int = int64()
    """How many wait in this partition."""
    messages: list[DelayedMessage] = array(DelayedMessage)
    more: bool = boolean()
    """Whether others follow behind the last one."""
