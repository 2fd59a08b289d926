"""DescribeFills: the progress of a broker in filling partitions of a materialized view, and obstacles.

For the leaders of its partitions; not in Kafka.
"""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int16, int32, int64, string


class DescribeFillsRequest(Request, api_key=ApiKey.DESCRIBE_FILLS, flexible=0):
    topic: str = string()


class FilledPartition(Struct):
    partition_index: int = int32()
    position: int = int64()
    """The next position in the source."""
    reason: str = string()
    """Why it is not being filled now, in a word; empty if it is."""
    problem: str = string()
    """The same for people, with what to do."""


class DescribeFillsResponse(Response, api_key=ApiKey.DESCRIBE_FILLS, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    partitions: list[FilledPartition] = array(FilledPartition)
    """The partitions that the broker leads."""
