"""WriteTxnMarkers: a transaction coordinator tells the partitions' leaders how transactions ended."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import (
    OWN_TAGS_FROM,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
)

UNKNOWN_REVISION = -1


class WritableTxnMarkerTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class WritableTxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+")


class WriteTxnMarkersRequest(Request, api_key=ApiKey.WRITE_TXN_MARKERS, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)
    revision: int = int64(default=UNKNOWN_REVISION, tag=OWN_TAGS_FROM)
    """Forebay's: the revision of the metadata in which the coordinator has found the partitions."""


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Response, api_key=ApiKey.WRITE_TXN_MARKERS, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
