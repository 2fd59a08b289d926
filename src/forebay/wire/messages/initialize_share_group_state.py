"""InitializeShareGroupState: reset the state of share partitions, with a given start offset."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()
    """-1 leaves it to the leader of the partition, which finds it at the first fetch."""


class InitializeStateData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class InitializeShareGroupStateRequest(Request, api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, flexible=0):
    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class InitializeShareGroupStateResponse(Response, api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, flexible=0):
    results: list[InitializeStateResult] = array(InitializeStateResult)
