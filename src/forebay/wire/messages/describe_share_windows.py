"""DescribeShareWindows: a broker's delivery state of partitions that it leads. Not in Kafka."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int8, int32, int64, string


class DescribeShareWindowsRequest(
    Request, api_key=ApiKey.DESCRIBE_SHARE_WINDOWS, versions=(0, 1), flexible=0
):
    group_id: str = string()


class ShareHolder(Struct):
    member_id: str = string()
    records: int = int32()
    oldest_lock_ms: int = int64()
    """How long it has held its oldest record."""


class ShareSpan(Struct):
    """Neighbouring records with the same state, count and holder."""

    first_offset: int = int64()
    last_offset: int = int64()
    state: int = int8()
    """As it is persisted: 0 available, 1 acquired, 3 on its way to the dead-letter topic."""
    deliveries: int = int32()
    member_id: str = string()
    """The holder while it is acquired; empty otherwise."""
    left_ms: int = int64(default=-1)
    """Until the lock ends, or until the backoff of a released record does; -1 without either."""


class ShareWindow(Struct):
    topic_name: str = string()
    partition_index: int = int32()
    start_offset: int = int64()
    end_offset: int = int64()
    """The last offset of the window; one less than the start when it is empty."""
    window_max: int = int32()
    available: int = int32()
    waiting: int = int32()
    """Released, and to be delivered after their backoff."""
    acquired: int = int32()
    dead_letters: int = int32()
    """Records that wait for the dead letter topic."""
    dead_letter_problem: str = string()
    """The obstacle that they wait for; empty while they are on their way."""
    finished: int = int32()
    holders: list[ShareHolder] = array(ShareHolder)
    spans: list[ShareSpan] = array(ShareSpan, "1+")
    """The unfinished records that were delivered at least once, from the first on; at most a few hundred."""


class DescribeShareWindowsResponse(
    Response, api_key=ApiKey.DESCRIBE_SHARE_WINDOWS, versions=(0, 1), flexible=0
):
    windows: list[ShareWindow] = array(ShareWindow)
    """The windows of the partitions that members have fetched from recently."""
