"""DescribeActivity: what one broker has served, how fast, and what has happened to it. Forebay's own."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, float64, int16, int32, int64, string


class DescribeActivityRequest(Request, api_key=ApiKey.DESCRIBE_ACTIVITY, flexible=0):
    events_after: int = int64()
    """Only events with a larger id are answered."""


class RequestTimesOf(Struct):
    name: str = string()
    """The API; Fetch as FetchConsumer and FetchFollower."""
    count: int = int64()
    counts: list[int] = array(int64)
    """Requests by how long they took: up to each of the bounds, and longer than the last."""
    sum_ms: float = float64()


class BrokerEvent(Struct):
    id: int = int64()
    """Larger than those of all events before, also those before a restart."""
    at_ms: int = int64()
    kind: str = string()
    """change, election, broker or controller."""
    principal: str = string()
    """Who made a change."""
    client: str = string()
    api: str = string()
    what: str = string()
    result: str = string()
    """NONE, or the names of error codes."""
    partitions: int = int32()
    """Of an election: their number."""


class DescribeActivityResponse(Response, api_key=ApiKey.DESCRIBE_ACTIVITY, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    messages_in: int = int64()
    bytes_in: int = int64()
    bytes_out: int = int64()
    connections: int = int32()
    bounds_ms: list[float] = array(float64)
    times: list[RequestTimesOf] = array(RequestTimesOf)
    events: list[BrokerEvent] = array(BrokerEvent)
    """The oldest first."""
