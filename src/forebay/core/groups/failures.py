"""Each request about groups answered with one error, in the shape that its version has for errors.

For what is wrong before a group is looked at: the coordinator is loading or is elsewhere, the group id is
not one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.core.groups.classic.requests import leaving, left
from forebay.core.groups.offset_fetch import NO_OFFSET, as_groups, as_response
from forebay.core.step import RequestInfo
from forebay.errors import ErrorCode
from forebay.wire.fields import Request, Response
from forebay.wire.messages import consumer_group_describe, describe_groups, share_group_describe
from forebay.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from forebay.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from forebay.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from forebay.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from forebay.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from forebay.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from forebay.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from forebay.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from forebay.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from forebay.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from forebay.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from forebay.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from forebay.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from forebay.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_GROUP_ERROR_FROM = 2
"""The first version of OffsetFetch that has an error for the whole group."""


def failure(request: Request, info: RequestInfo, code: ErrorCode) -> Response:
    return _FAILURES[type(request)](request, info, code)


def _join(request: JoinGroupRequest, _: RequestInfo, code: ErrorCode) -> Response:
    return JoinGroupResponse(error_code=code, member_id=request.member_id)


def _heartbeat(_request: HeartbeatRequest, _: RequestInfo, code: ErrorCode) -> Response:
    # A member of a group that is still being read from the log is believed for the moment.
    is_loading = code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)


def _leave(request: LeaveGroupRequest, info: RequestInfo, code: ErrorCode) -> Response:
    if code != ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=code)
    results = [
        MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
        )
        for identity in leaving(request, info)
    ]
    return left(results, info)


def _offset_commit(request: OffsetCommitRequest, _: RequestInfo, code: ErrorCode) -> Response:
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)


def _txn_offset_commit(request: TxnOffsetCommitRequest, _: RequestInfo, code: ErrorCode) -> Response:
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return TxnOffsetCommitResponse(topics=topics)


def _offset_fetch(request: OffsetFetchRequest, info: RequestInfo, code: ErrorCode) -> OffsetFetchResponse:
    per_partition = info.api_version < _GROUP_ERROR_FROM
    groups = [
        OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=_failed_topics(group.topics or [], code) if per_partition else [],
            error_code=code,
        )
        for group in as_groups(request, info)
    ]
    return as_response(groups, info)


def _failed_topics(
    topics: list[OffsetFetchRequestTopics], code: ErrorCode
) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def _describe(request: DescribeGroupsRequest, _: RequestInfo, code: ErrorCode) -> Response:
    groups = [describe_groups.DescribedGroup(group_id=each, error_code=code) for each in request.groups]
    return DescribeGroupsResponse(groups=groups)


def _delete(request: DeleteGroupsRequest, _: RequestInfo, code: ErrorCode) -> Response:
    results = [DeletableGroupResult(group_id=each, error_code=code) for each in request.groups_names]
    return DeleteGroupsResponse(results=results)


def _consumer_describe(request: ConsumerGroupDescribeRequest, _: RequestInfo, code: ErrorCode) -> Response:
    groups = [
        consumer_group_describe.DescribedGroup(group_id=each, error_code=code) for each in request.group_ids
    ]
    return ConsumerGroupDescribeResponse(groups=groups)


def _share_describe(request: ShareGroupDescribeRequest, _: RequestInfo, code: ErrorCode) -> Response:
    groups = [
        share_group_describe.DescribedGroup(group_id=each, error_code=code) for each in request.group_ids
    ]
    return ShareGroupDescribeResponse(groups=groups)


def _share_offsets(request: DescribeShareGroupOffsetsRequest, _: RequestInfo, code: ErrorCode) -> Response:
    groups = [
        DescribeShareGroupOffsetsResponseGroup(group_id=each.group_id, error_code=code)
        for each in request.groups
    ]
    return DescribeShareGroupOffsetsResponse(groups=groups)


_FAILURES: dict[type[Request], Callable[[Any, RequestInfo, ErrorCode], Response]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: lambda _request, _info, code: SyncGroupResponse(error_code=code),
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave,
    OffsetCommitRequest: _offset_commit,
    TxnOffsetCommitRequest: _txn_offset_commit,
    OffsetFetchRequest: _offset_fetch,
    OffsetDeleteRequest: lambda _request, _info, code: OffsetDeleteResponse(error_code=code),
    DescribeGroupsRequest: _describe,
    ListGroupsRequest: lambda _request, _info, code: ListGroupsResponse(error_code=code),
    DeleteGroupsRequest: _delete,
    ConsumerGroupHeartbeatRequest: lambda _request, _info, code: ConsumerGroupHeartbeatResponse(
        error_code=code
    ),
    ConsumerGroupDescribeRequest: _consumer_describe,
    ShareGroupHeartbeatRequest: lambda _request, _info, code: ShareGroupHeartbeatResponse(error_code=code),
    ShareGroupDescribeRequest: _share_describe,
    DescribeShareGroupOffsetsRequest: _share_offsets,
    AlterShareGroupOffsetsRequest: lambda _request, _info, code: AlterShareGroupOffsetsResponse(
        error_code=code
    ),
    DeleteShareGroupOffsetsRequest: lambda _request, _info, code: DeleteShareGroupOffsetsResponse(
        error_code=code
    ),
}
