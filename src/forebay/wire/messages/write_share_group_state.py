"""WriteShareGroupState: persist the delivery state of share partitions."""

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


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionData(Struct):
    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    """-1: it stays as it is."""
    delivery_complete_count: int = int32("1+", default=-1)
    """The number of offsets from the start offset on that need no delivery any more; -1 if unknown."""
    state_batches: list[StateBatch] = array(StateBatch)
    lost_from: int = int64(default=-1, tag=OWN_TAGS_FROM)
    """The log has lost the messages from this offset on: forget their state."""
    snapshot_epoch: int = int32(default=-1, tag=OWN_TAGS_FROM + 1)
    """With `lost_from`: the epoch of the state that was read."""


class WriteStateData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class WriteShareGroupStateRequest(
    Request, api_key=ApiKey.WRITE_SHARE_GROUP_STATE, versions=(0, 1), flexible=0
):
    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class WriteShareGroupStateResponse(
    Response, api_key=ApiKey.WRITE_SHARE_GROUP_STATE, versions=(0, 1), flexible=0
):
    results: list[WriteStateResult] = array(WriteStateResult)
