"""DescribePositions: where partitions begin and end, and how old the messages are at some positions in them.

Coordinators and commands ask the leaders of partitions, to tell how far groups are behind. Not in Kafka.
"""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int16, int32, int64, string


class PositionsPartition(Struct):
    partition_index: int = int32()
    positions: list[int] = array(int64)
    """The offsets whose messages are looked at."""


class PositionsTopic(Struct):
    name: str = string()
    partitions: list[PositionsPartition] = array(PositionsPartition)


class DescribePositionsRequest(Request, api_key=ApiKey.DESCRIBE_POSITIONS, flexible=0):
    topics: list[PositionsTopic] = array(PositionsTopic)


class DescribedPartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    start_offset: int = int64()
    end_offset: int = int64()
    """Where what consumers may read ends."""
    timestamps: list[int] = array(int64)
    """For each position that was asked for, the timestamp of the first message from there on; -1 if there is
    none, or it was not found in time."""


class DescribedTopic(Struct):
    name: str = string()
    partitions: list[DescribedPartition] = array(DescribedPartition)


class DescribePositionsResponse(Response, api_key=ApiKey.DESCRIBE_POSITIONS, flexible=0):
    error_code: int = int16()
    topics: list[DescribedTopic] = array(DescribedTopic)
