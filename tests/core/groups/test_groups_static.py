"""Static members of classic groups: they come back to their place, and fence their older selves."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.errors import ErrorCode
from support.machines.group_runtime import Runtime, subscription

TWO_PROTOCOLS = (("range", subscription("orders")), ("sticky", subscription("orders")))


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    runtime = Runtime()
    generation, (leader,) = runtime.stabilize()
    static, _ = runtime.enter(instance_id="one")
    runtime.join(leader)
    static = runtime.group().static["one"]
    runtime.sync_all([leader, static], generation + 1)
    back = runtime.answers[runtime.join(instance_id="one")]
    assert (back.error_code, back.generation_id) == (0, generation + 1)
    assert back.member_id != static
    assert back.skip_assignment is False
    assert runtime.answers[runtime.sync(back.member_id, generation + 1)].assignment == static.encode()
    assert runtime.heartbeat(leader, generation + 1) == ErrorCode.NONE
    old = runtime.heartbeat(static, generation + 1, instance_id="one")
    assert old == ErrorCode.FENCED_INSTANCE_ID
    runtime.crash()
    assert runtime.heartbeat(back.member_id, generation + 1, instance_id="one") == ErrorCode.NONE


@pytest.mark.parametrize("version", [8, 9])
def test_a_static_leader_that_comes_back_is_kept_from_assigning_anew(version: int) -> None:
    runtime = Runtime()
    old = runtime.answers[runtime.join(instance_id="one", version=version)].member_id
    runtime.sync_all([old], 1)
    back = runtime.answers[runtime.join(instance_id="one", version=version)]
    if version == 9:
        assert (back.leader, back.skip_assignment) == (back.member_id, True)
        assert [member.member_id for member in back.members] == [back.member_id]
    else:
        assert (back.leader, back.members) == (old, [])


def test_a_static_member_that_brings_another_protocol_begins_a_rebalance() -> None:
    runtime = Runtime()
    old = runtime.answers[runtime.join(instance_id="one", protocols=TWO_PROTOCOLS)].member_id
    runtime.sync_all([old], 1)
    back = runtime.answers[runtime.join(instance_id="one", protocols=TWO_PROTOCOLS[::-1])]
    assert (back.generation_id, back.protocol_name) == (2, "sticky")


def test_a_static_member_that_is_replaced_while_it_waits_is_fenced() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    waiting = runtime.join(instance_id="one")
    taken = runtime.join(instance_id="one")
    assert runtime.answers[waiting].error_code == ErrorCode.FENCED_INSTANCE_ID
    runtime.join(a)
    assert runtime.answers[taken].error_code == ErrorCode.NONE
    parked = runtime.sync(runtime.answers[taken].member_id, 2)
    runtime.join(instance_id="one")
    assert runtime.answers[parked].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_took_its_place_back_may_wait_longer_than_a_session() -> None:
    runtime = Runtime()
    generation, (a,) = runtime.stabilize(session_ms=60_000, rebalance_ms=60_000)
    runtime.join(instance_id="one", session_ms=5_000)
    ticket = runtime.join(instance_id="one", session_ms=5_000)
    runtime.advance(50_000)
    assert ticket not in runtime.answers
    runtime.join(a)
    assert runtime.answers[ticket].generation_id == generation + 1


def test_a_static_member_stays_through_a_rebalance_until_its_session_ends() -> None:
    runtime = Runtime()
    runtime.join(instance_id="one", session_ms=60_000, rebalance_ms=5_000)
    one = runtime.group().static["one"]
    runtime.sync_all([one], 1)
    b, ticket = runtime.enter(session_ms=60_000, rebalance_ms=5_000)
    runtime.advance(5_000)
    joined = runtime.answers[ticket]
    assert joined.leader == b
    assert {member.member_id for member in joined.members} == {one, b}


def test_a_group_of_absent_static_members_waits_for_them_without_spinning() -> None:
    runtime = Runtime()
    options: dict[str, Any] = {"session_ms": 60_000, "rebalance_ms": 0}
    one = runtime.answers[runtime.join(instance_id="one", **options)].member_id
    runtime.sync_all([one], 1)
    runtime.join(instance_id="two", **options)
    runtime.join(one, instance_id="one", **options)
    two = runtime.group().static["two"]
    runtime.sync_all([one, two], 2)
    assert runtime.leave((one, "one")) == [0]
    runtime.advance(30_000)
    assert runtime.heartbeat(two, 2, instance_id="two") == ErrorCode.REBALANCE_IN_PROGRESS
    assert runtime.answers[runtime.join(two, instance_id="two", **options)].generation_id == 3


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    runtime = Runtime()
    one = runtime.answers[runtime.join(instance_id="one")].member_id
    runtime.sync_all([one], 1)
    assert runtime.leave(("", "one"), ("", "two"), ("", None)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert runtime.group().is_empty
