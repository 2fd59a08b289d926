"""DescribeDisk: a broker's disk, and its record of the store. For each broker; Forebay's own."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, boolean, int16, int32, int64, string


class DescribeDiskRequest(Request, api_key=ApiKey.DESCRIBE_DISK, flexible=0):
    pass


class DiskPartition(Struct):
    topic: str = string()
    partition: int = int32()
    leader_epoch: int = int32()
    """As the store has it."""
    last_epoch: int = int32()
    """The leader epoch of the last batch in the log; -1 if there is none."""
    end_offset: int = int64()
    high_watermark: int = int64()


class WaitingPartition(Struct):
    topic: str = string()
    partition: int = int32()
    awaited: list[int] = array(int32)
    """The brokers whose report is needed before a leader can be elected."""


class DescribeDiskResponse(Response, api_key=ApiKey.DESCRIBE_DISK, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    node_id: int = int32()
    store_behind: bool = boolean()
    """The store was found to know less than this disk, and not everything has been settled since."""
    restore: int = int32()
    """The number of known restores of the store."""
    store_revision: int = int64()
    store_index: int = int64()
    remembered_revision: int = int64()
    remembered_index: int = int64()
    producer_ids_next: int = int64()
    """The first producer id that the store has not allocated."""
    producer_ids_end: int = int64()
    """Above every producer id in the logs of this broker."""
    partitions: list[DiskPartition] = array(DiskPartition)
    waiting: list[WaitingPartition] = array(WaitingPartition)
    strays: list[str] = array(string)
    """Directories of logs that no partition uses."""
