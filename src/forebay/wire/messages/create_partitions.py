"""CreatePartitions: change the number of partitions of topics."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import (
    OWN_TAGS_FROM,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")
    drop_after_ms: int = int64("2+", default=-1, tag=OWN_TAGS_FROM)
    """Forebay's, for a smaller count: when closed partitions are removed with messages; -1: when empty."""
    allow_key_moves: bool = boolean("2+", tag=OWN_TAGS_FROM + 1)
    """Forebay's, for a smaller count: it need not divide the old one."""


class CreatePartitionsRequest(Request, api_key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Response, api_key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
