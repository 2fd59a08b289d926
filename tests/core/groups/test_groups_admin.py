"""Groups as administrators see them, and requests that no group has answered."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.groups.failures import failure
from forebay.core.step import RequestInfo
from forebay.errors import ErrorCode
from forebay.wire.codec.compiled import encode
from forebay.wire.messages import api
from forebay.wire.messages.describe_groups import DescribeGroupsRequest
from forebay.wire.messages.list_groups import ListGroupsRequest
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from forebay.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from support.machines.group_runtime import Runtime, subscription


def group_ids(runtime: Runtime, **filters: Any) -> list[str]:
    return [group.group_id for group in runtime.shard.list_groups(ListGroupsRequest(**filters))]


def test_groups_are_listed_by_state_and_type() -> None:
    runtime = Runtime()
    runtime.stabilize()
    runtime.commit(1, group_id="simple")
    assert group_ids(runtime) == ["g", "simple"]
    assert group_ids(runtime, states_filter=["stable"]) == ["g"]
    assert group_ids(runtime, states_filter=["Empty", "Dead"]) == ["simple"]
    assert group_ids(runtime, types_filter=["Classic"]) == ["g", "simple"]
    assert group_ids(runtime, types_filter=["consumer"]) == []


def test_groups_are_described() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    request = DescribeGroupsRequest(groups=["g", "nobody"])
    known, unknown = runtime.ask("describe_groups", request, 6).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
    (member,) = known.members
    assert (member.member_id, member.client_id, member.client_host) == (a, "app", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("orders"), a.encode())
    assert (unknown.group_state, unknown.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert unknown.error_message == "Group nobody not found."
    assert runtime.ask("describe_groups", request, 5).groups[1].error_code == 0
    runtime.enter()
    known, _ = runtime.ask("describe_groups", request, 6).groups
    assert (known.group_state, known.protocol_data) == ("PreparingRebalance", "")
    assert all(member.member_metadata == b"" for member in known.members)


# -- failures -----------------------------------------------------------------------------------------

GROUP_API_KEYS = (8, 9, 11, 12, 13, 14, 15, 16, 28, 42, 47, 68, 69)


@given(key=st.sampled_from(GROUP_API_KEYS), data=st.data())
@settings(max_examples=100, deadline=None)
def test_every_request_about_groups_can_be_refused_in_every_version(key: int, data: st.DataObject) -> None:
    kind = api(key)
    version = data.draw(st.integers(kind.min_version, kind.max_version))
    response = failure(kind.request(), RequestInfo(version), ErrorCode.NOT_COORDINATOR)
    assert isinstance(response, kind.response)
    encode(response, version)


def test_a_refusal_names_every_partition() -> None:
    part = OffsetCommitRequestPartition(partition_index=3, committed_offset=1)
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="orders", partitions=[part])]
    )
    response: Any = failure(request, RequestInfo(8), ErrorCode.NOT_COORDINATOR)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert failure(TxnOffsetCommitRequest(), RequestInfo(3), ErrorCode.NOT_COORDINATOR) is not None
    old = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[3])]
    )
    response = failure(old, RequestInfo(1), ErrorCode.NOT_COORDINATOR)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    response = failure(old, RequestInfo(5), ErrorCode.NOT_COORDINATOR)
    assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])
