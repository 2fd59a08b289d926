"""DescribeRemoteLogs: where the messages of tiered partitions lie, and how far copying is. Forebay's own."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, boolean, int16, int32, int64, string


class DescribeRemoteLogsRequest(Request, api_key=ApiKey.DESCRIBE_REMOTE_LOGS, flexible=0):
    topics: list[str] | None = array(string, nullable="0+", default=None)
    """None for all topics."""


class DescribedRemoteLog(Struct):
    topic: str = string()
    partition_index: int = int32()
    is_known: bool = boolean()
    """False until the leader has read the manifest: the offsets and bytes in the store are not known then."""
    local_start_offset: int = int64()
    remote_start_offset: int = int64()
    """The first offset in the object store; -1 if nothing is there."""
    remote_end_offset: int = int64()
    """The one after the last in the object store; -1 if nothing is there."""
    remote_bytes: int = int64()
    remote_segments: int = int32()
    waiting_segments: int = int32()
    """Closed local segments that are not in the object store."""
    waiting_bytes: int = int64()
    copies: bool = boolean()
    """False if the topic has remote.log.copy.disable."""
    problem: str = string()
    """Why the last work on the object store failed; empty if it did not."""


class DescribeRemoteLogsResponse(Response, api_key=ApiKey.DESCRIBE_REMOTE_LOGS, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    partitions: list[DescribedRemoteLog] = array(DescribedRemoteLog)
    """The tiered partitions that the broker leads."""
