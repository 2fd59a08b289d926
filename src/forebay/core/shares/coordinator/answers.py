"""The requests to a share coordinator are alike: share partitions by topic, and a result for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.step import RequestInfo
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Request, Response, Struct
from forebay.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

Decide = Callable[[ShareKey, Any], Mapping[str, Any]]
"""Does what is asked for one share partition. It returns fields of the result, or raises KafkaError."""


class _Shape(NamedTuple):
    """The classes that an answer is made of."""

    response: Callable[..., Response]
    topic: Callable[..., Struct]
    partition: Callable[..., Struct]


_SHAPES: dict[type[Request], _Shape] = {
    initialize_share_group_state.InitializeShareGroupStateRequest: _Shape(
        initialize_share_group_state.InitializeShareGroupStateResponse,
        initialize_share_group_state.InitializeStateResult,
        initialize_share_group_state.PartitionResult,
    ),
    read_share_group_state.ReadShareGroupStateRequest: _Shape(
        read_share_group_state.ReadShareGroupStateResponse,
        read_share_group_state.ReadStateResult,
        read_share_group_state.PartitionResult,
    ),
    write_share_group_state.WriteShareGroupStateRequest: _Shape(
        write_share_group_state.WriteShareGroupStateResponse,
        write_share_group_state.WriteStateResult,
        write_share_group_state.PartitionResult,
    ),
    delete_share_group_state.DeleteShareGroupStateRequest: _Shape(
        delete_share_group_state.DeleteShareGroupStateResponse,
        delete_share_group_state.DeleteStateResult,
        delete_share_group_state.PartitionResult,
    ),
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest: _Shape(
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        read_share_group_state_summary.ReadStateSummaryResult,
        read_share_group_state_summary.PartitionResult,
    ),
}


def answer(request: Any, decide: Decide) -> Response:
    """The response to any of the requests, with the share partitions decided in the order of the request."""
    shape = _SHAPES[type(request)]

    def result(topic_id: bytes, asked: Any) -> Struct:
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a share group has a name")
            fields = decide(ShareKey(request.group_id, topic_id, asked.partition), asked)
        except KafkaError as error:
            fields = {"error_code": error.code, "error_message": error.message or None}
        return shape.partition(partition=asked.partition, **fields)

    return shape.response(
        results=[
            shape.topic(
                topic_id=topic.topic_id,
                partitions=[result(topic.topic_id, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def failure(request: Request, _info: RequestInfo, code: ErrorCode) -> Response:
    """Answer all share partitions with one error: the coordinator is loading, or on another broker."""
    return answer(request, lambda _key, _asked: {"error_code": code})
