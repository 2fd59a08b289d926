"""ReadShareGroupState: the delivery state that a new leader of a partition needs."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import (
    OWN_TAGS_FROM,
    Request,
    Response,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class PartitionData(Struct):
    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateRequest(Request, api_key=ApiKey.READ_SHARE_GROUP_STATE, flexible=0):
    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    """-1 while it has not been found yet."""
    state_batches: list[StateBatch] = array(StateBatch)
    snapshot_epoch: int = int32(default=-1, tag=OWN_TAGS_FROM)
    """The epoch of the state, to request that a part of it be forgotten (WriteShareGroupState)."""
    previous_leader_epoch: int = int32(default=-1, tag=OWN_TAGS_FROM + 1)
    """The epoch of the leader that read the state before; -1 if none did since it was initialized."""
    written_epoch: int = int32(default=-1, tag=OWN_TAGS_FROM + 2)
    """The epoch of the last leader that wrote any of it; -1 if none did, or if unknown."""


class ReadStateResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateResponse(Response, api_key=ApiKey.READ_SHARE_GROUP_STATE, flexible=0):
    results: list[ReadStateResult] = array(ReadStateResult)
