"""Guards of share groups: their offsets, and the state that brokers keep for them."""

from __future__ import annotations

from typing import Any

from forebay.core.acls.bindings import Operation
from forebay.core.guards.guard import (
    GROUP,
    TOPIC,
    Access,
    Guard,
    Narrowed,
    Refused,
    Verdict,
    changed,
    each,
    explanation,
    on_cluster,
    split,
)
from forebay.errors import ErrorCode
from forebay.wire.messages import alter_share_group_offsets as altering
from forebay.wire.messages import delete_share_group_offsets as deleting
from forebay.wire.messages import delete_share_group_state as state_deletion
from forebay.wire.messages import describe_share_group_offsets as describing
from forebay.wire.messages import initialize_share_group_state as initialization
from forebay.wire.messages import read_share_group_state as reading
from forebay.wire.messages import read_share_group_state_summary as summary
from forebay.wire.messages import write_share_group_state as writing

_NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED


# -- offsets ---------------------------------------------------------------------------------------------


def describe_share_group_offsets(
    access: Access, _version: int, request: describing.DescribeShareGroupOffsetsRequest
) -> Verdict:
    left: list[Any] = []
    denied: list[Any] = []
    added: dict[str, list[Any]] = {}
    for group in request.groups:
        if access.refuses(Operation.DESCRIBE, GROUP, group.group_id):
            denied.append(_group_not_described(group.group_id))
            continue
        topics, refused = split(
            group.topics or (), lambda topic: access.refuses(Operation.DESCRIBE, TOPIC, topic.topic_name)
        )
        added[group.group_id] = [_topic_not_described(topic) for topic in refused]
        left.append(changed(group, topics=topics) if refused else group)
    if not left:
        return Refused(describing.DescribeShareGroupOffsetsResponse(groups=denied))

    def complete(response: Any) -> Any:
        for group in response.groups:  # topics may be hidden if a whole group was asked for
            shown = [
                topic for topic in group.topics if access.may(Operation.DESCRIBE, TOPIC, topic.topic_name)
            ]
            group.topics = shown + ([] if group.error_code else added.get(group.group_id, []))
        return changed(response, groups=[*response.groups, *denied])

    return Narrowed(changed(request, groups=left), complete)


def _group_not_described(group_id: str) -> describing.DescribeShareGroupOffsetsResponseGroup:
    return describing.DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, error_code=_NO_GROUP, error_message=explanation(_NO_GROUP)
    )


def _topic_not_described(topic: Any) -> describing.DescribeShareGroupOffsetsResponseTopic:
    return describing.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            describing.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=-1,
                error_code=_NO_TOPIC,
                error_message=explanation(_NO_TOPIC),
            )
            for index in topic.partitions
        ],
    )


def _of_group(operation: Operation, response: Any, topics: Guard) -> Guard:
    """A guard that checks the group first, then each topic, which has to be readable."""

    def guard(access: Access, version: int, request: Any) -> Verdict:
        if access.refuses(operation, GROUP, request.group_id):
            return Refused(response(error_code=_NO_GROUP, error_message=explanation(_NO_GROUP)))
        return topics(access, version, request)

    return guard


def _refuses_reading(access: Access, topic: Any) -> bool:
    return access.refuses(Operation.READ, TOPIC, topic.topic_name)


alter_share_group_offsets: Guard = _of_group(
    Operation.READ,
    altering.AlterShareGroupOffsetsResponse,
    each(
        items="topics",
        results="responses",
        response=altering.AlterShareGroupOffsetsResponse,
        is_refused=_refuses_reading,
        denied=lambda topic: altering.AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            partitions=[
                altering.AlterShareGroupOffsetsResponsePartition(
                    partition_index=at.partition_index,
                    error_code=_NO_TOPIC,
                    error_message=explanation(_NO_TOPIC),
                )
                for at in topic.partitions
            ],
        ),
    ),
)

delete_share_group_offsets: Guard = _of_group(
    Operation.DELETE,
    deleting.DeleteShareGroupOffsetsResponse,
    each(
        items="topics",
        results="responses",
        response=deleting.DeleteShareGroupOffsetsResponse,
        is_refused=_refuses_reading,
        denied=lambda topic: deleting.DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, error_code=_NO_TOPIC, error_message=explanation(_NO_TOPIC)
        ),
    ),
)


def describe_share_windows(access: Access, _version: int, request: Any) -> Verdict:
    """Never an error: a client sees the windows that it may describe."""

    def complete(response: Any) -> Any:
        may_see = access.may(Operation.DESCRIBE, GROUP, request.group_id)
        shown = [
            window
            for window in response.windows
            if may_see and access.may(Operation.DESCRIBE, TOPIC, window.topic_name)
        ]
        return changed(response, windows=shown)

    return Narrowed(request, complete)


# -- state, between brokers ------------------------------------------------------------------------------


def _state(wire: Any, response: Any, result: Any) -> Guard:
    def refuse(request: Any, code: ErrorCode) -> Any:
        return response(
            results=[
                result(
                    topic_id=topic.topic_id,
                    partitions=[
                        wire.PartitionResult(
                            partition=at.partition, error_code=code, error_message=explanation(code)
                        )
                        for at in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return on_cluster(Operation.CLUSTER_ACTION, refuse)


initialize_share_group_state: Guard = _state(
    initialization, initialization.InitializeShareGroupStateResponse, initialization.InitializeStateResult
)
read_share_group_state: Guard = _state(reading, reading.ReadShareGroupStateResponse, reading.ReadStateResult)
write_share_group_state: Guard = _state(
    writing, writing.WriteShareGroupStateResponse, writing.WriteStateResult
)
delete_share_group_state: Guard = _state(
    state_deletion, state_deletion.DeleteShareGroupStateResponse, state_deletion.DeleteStateResult
)
read_share_group_state_summary: Guard = _state(
    summary, summary.ReadShareGroupStateSummaryResponse, summary.ReadStateSummaryResult
)
