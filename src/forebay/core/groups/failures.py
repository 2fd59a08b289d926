"""Answers each request about groups with one error, in the form that its version has for errors.

For errors that need no group: the coordinator is loading or is elsewhere, the group id is invalid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.core.groups.classic.requests import leaving, left
from forebay.core.groups.offset_fetch import NO_OFFSET, as_groups, as_response
from forebay.core.step import RequestInfo
from forebay.errors import ErrorCode
from forebay.wire.fields import Request, Response
from forebay.wire.messages import (
    api,
    consumer_group_describe,
    delete_groups,
    describe_groups,
    describe_share_group_offsets,
    offset_commit,
    offset_fetch,
    share_group_describe,
    txn_offset_commit,
)
from forebay.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from forebay.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_GROUP_ERROR_FROM = 2
"""The first version of OffsetFetch that has an error for the whole group."""


def failure(request: Request, info: RequestInfo, code: ErrorCode) -> Response:
    return _FAILURES.get(type(request), _plain)(request, info, code)


def _plain(request: Request, _: RequestInfo, code: ErrorCode) -> Response:
    """The error response of most requests: one error for all."""
    response: Any = api(request.API_KEY).response
    failed: Response = response(error_code=code)
    return failed


def _join(request: JoinGroupRequest, _: RequestInfo, code: ErrorCode) -> Response:
    return JoinGroupResponse(error_code=code, member_id=request.member_id)


def _heartbeat(_request: HeartbeatRequest, _: RequestInfo, code: ErrorCode) -> Response:
    # A member of a group that is still being loaded from the log is trusted for the moment.
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


def _offset_commit(request: offset_commit.OffsetCommitRequest, _: RequestInfo, code: ErrorCode) -> Response:
    topics = [
        offset_commit.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                offset_commit.OffsetCommitResponsePartition(
                    partition_index=each.partition_index, error_code=code
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return offset_commit.OffsetCommitResponse(topics=topics)


def _txn_offset_commit(
    request: txn_offset_commit.TxnOffsetCommitRequest, _: RequestInfo, code: ErrorCode
) -> Response:
    topics = [
        txn_offset_commit.TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                txn_offset_commit.TxnOffsetCommitResponsePartition(
                    partition_index=each.partition_index, error_code=code
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return txn_offset_commit.TxnOffsetCommitResponse(topics=topics)


def _offset_fetch(
    request: offset_fetch.OffsetFetchRequest, info: RequestInfo, code: ErrorCode
) -> offset_fetch.OffsetFetchResponse:
    per_partition = info.api_version < _GROUP_ERROR_FROM
    groups = [
        offset_fetch.OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=_failed_topics(group.topics or [], code) if per_partition else [],
            error_code=code,
        )
        for group in as_groups(request, info)
    ]
    return as_response(groups, info)


def _failed_topics(
    topics: list[offset_fetch.OffsetFetchRequestTopics], code: ErrorCode
) -> list[offset_fetch.OffsetFetchResponseTopics]:
    return [
        offset_fetch.OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                offset_fetch.OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def _describe(request: describe_groups.DescribeGroupsRequest, _: RequestInfo, code: ErrorCode) -> Response:
    groups = [describe_groups.DescribedGroup(group_id=each, error_code=code) for each in request.groups]
    return describe_groups.DescribeGroupsResponse(groups=groups)


def _delete(request: delete_groups.DeleteGroupsRequest, _: RequestInfo, code: ErrorCode) -> Response:
    results = [
        delete_groups.DeletableGroupResult(group_id=each, error_code=code) for each in request.groups_names
    ]
    return delete_groups.DeleteGroupsResponse(results=results)


def _consumer_describe(
    request: consumer_group_describe.ConsumerGroupDescribeRequest, _: RequestInfo, code: ErrorCode
) -> Response:
    groups = [
        consumer_group_describe.DescribedGroup(group_id=each, error_code=code) for each in request.group_ids
    ]
    return consumer_group_describe.ConsumerGroupDescribeResponse(groups=groups)


def _share_describe(
    request: share_group_describe.ShareGroupDescribeRequest, _: RequestInfo, code: ErrorCode
) -> Response:
    groups = [
        share_group_describe.DescribedGroup(group_id=each, error_code=code) for each in request.group_ids
    ]
    return share_group_describe.ShareGroupDescribeResponse(groups=groups)


def _share_offsets(
    request: describe_share_group_offsets.DescribeShareGroupOffsetsRequest, _: RequestInfo, code: ErrorCode
) -> Response:
    groups = [
        describe_share_group_offsets.DescribeShareGroupOffsetsResponseGroup(
            group_id=each.group_id, error_code=code
        )
        for each in request.groups
    ]
    return describe_share_group_offsets.DescribeShareGroupOffsetsResponse(groups=groups)


_FAILURES: dict[type[Request], Callable[[Any, RequestInfo, ErrorCode], Response]] = {
    JoinGroupRequest: _join,
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave,
    offset_commit.OffsetCommitRequest: _offset_commit,
    txn_offset_commit.TxnOffsetCommitRequest: _txn_offset_commit,
    offset_fetch.OffsetFetchRequest: _offset_fetch,
    describe_groups.DescribeGroupsRequest: _describe,
    delete_groups.DeleteGroupsRequest: _delete,
    consumer_group_describe.ConsumerGroupDescribeRequest: _consumer_describe,
    share_group_describe.ShareGroupDescribeRequest: _share_describe,
    describe_share_group_offsets.DescribeShareGroupOffsetsRequest: _share_offsets,
}
