"""The records of share groups, in whatever order compaction leaves them; answers while one is loaded."""

from __future__ import annotations

import pytest

from forebay.core.groups.failures import failure
from forebay.core.groups.share.members import ShareMember
from forebay.core.groups.share.state import RECORDS, Draft, ShareState, TopicState
from forebay.core.step import RequestInfo, StateRecord
from forebay.errors import ErrorCode
from forebay.wire.fields import Request
from forebay.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from forebay.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from forebay.wire.messages.share_group_describe import ShareGroupDescribeRequest
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.machines.share_runtime import ORDERS, PAYMENTS, parts


def replayed(records: list[StateRecord]) -> ShareState:
    state = ShareState()
    for record in records:
        state.apply(*RECORDS.read(record))
    return state


def written() -> Draft:
    draft = Draft("g", ShareState())
    draft.set_epoch(3, 77)
    member = ShareMember(
        member_id="a", rack_id="r", client_id="c", client_host="/h", topic_names=frozenset(["orders"])
    )
    draft.set_member(member)
    draft.set_topics(
        {
            ORDERS: TopicState("orders", frozenset([2]), frozenset([0, 1])),
            PAYMENTS: TopicState("payments", initialized=frozenset([0]), deleting=True),
        }
    )
    draft.set_target("a", parts(ORDERS, 0, 1))
    draft.set_current(member.moved_to(3, parts(ORDERS, 0)))
    draft.set_assignment_epoch(3, 123_456)
    return draft


def test_records_tell_all_of_a_group() -> None:
    draft = written()
    state = replayed(draft.records)
    assert state == draft.state
    assert (state.epoch, state.metadata_hash) == (3, 77)
    assert (state.assignment_epoch, state.assigned_at_ms) == (3, 123_456)
    assert state.members["a"].assigned == parts(ORDERS, 0)
    assert state.topics[PAYMENTS].deleting


def test_the_order_that_compaction_leaves_does_not_matter() -> None:
    draft = written()
    assert replayed(draft.records[::-1]) == draft.state


def test_deleting_a_group_leaves_nothing() -> None:
    draft = written()
    draft.delete()
    assert replayed(draft.records) == ShareState()


def test_what_does_not_change_is_not_written() -> None:
    draft = written()
    count = len(draft.records)
    draft.set_topics(dict(draft.state.topics) | {b"x" * 16: TopicState("nothing")})
    assert len(draft.records) == count


@pytest.mark.parametrize(
    "request_",
    [
        ShareGroupHeartbeatRequest(group_id="g"),
        ShareGroupDescribeRequest(group_ids=["g"]),
        AlterShareGroupOffsetsRequest(group_id="g"),
        DeleteShareGroupOffsetsRequest(group_id="g"),
        DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g")]),
    ],
)
def test_every_request_can_be_answered_with_an_error_alone(request_: Request) -> None:
    response = failure(request_, RequestInfo(1), ErrorCode.NOT_COORDINATOR)
    groups = getattr(response, "groups", [response])
    assert [each.error_code for each in groups] == [ErrorCode.NOT_COORDINATOR]
