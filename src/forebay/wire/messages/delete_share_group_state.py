"""DeleteShareGroupState: forget the state of share partitions."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import OWN_TAGS_FROM, Request, Response, Struct, array, int16, int32, string, uuid

ANY_EPOCH = -1


class PartitionData(Struct):
    partition: int = int32()
    state_epoch: int = int32(default=ANY_EPOCH, tag=OWN_TAGS_FROM)
    """State with a higher epoch is left alone: it was created after the deletion was decided."""


class DeleteStateData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DeleteShareGroupStateRequest(Request, api_key=ApiKey.DELETE_SHARE_GROUP_STATE, flexible=0):
    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DeleteShareGroupStateResponse(Response, api_key=ApiKey.DELETE_SHARE_GROUP_STATE, flexible=0):
    results: list[DeleteStateResult] = array(DeleteStateResult)
