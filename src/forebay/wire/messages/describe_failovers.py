"""DescribeFailovers: brokers that were counted as dead, and how long it took. Forebay's own."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int16, int32, int64, string


class DescribeFailoversRequest(Request, api_key=ApiKey.DESCRIBE_FAILOVERS, flexible=0):
    pass


class DescribedFailover(Struct):
    broker: int = int32()
    by: int = int32()
    """The broker that declared it dead, and measured the times."""
    at_ms: int = int64()
    partitions: int = int32()
    """The number of partitions that it led."""
    detect_ms: int = int32()
    fence_ms: int = int32()
    elect_ms: int = int32()
    announce_ms: int = int32()


class DescribeFailoversResponse(Response, api_key=ApiKey.DESCRIBE_FAILOVERS, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    failovers: list[DescribedFailover] = array(DescribedFailover)
    """The last ones, the newest last."""
