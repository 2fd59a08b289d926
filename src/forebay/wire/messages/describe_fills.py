"""DescribeFills: how far a broker has filled partitions of a materialized view, and why not further.

For the leaders of its partitions; not of Kafka.
"""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int16, int32, int64, string


class DescribeFillsRequest(Request, api_key=ApiKey.DESCRIBE_FILLS, flexible=0):
    topic: str = string()


class FilledPartition(Struct):
    partition_index: int = int32()
    position: int = int64()
    """Where it goes on in the source."""
    reason: str = string()
    """Why it is not filled now, in a word; empty if it is."""
    problem: str = string()
    """The same for people, with what to do."""


class DescribeFillsResponse(Response, api_key=ApiKey.DESCRIBE_FILLS, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    partitions: list[FilledPartition] = array(FilledPartition)
    """Those that the broker leads."""
