"""Every way in which a classic group refuses, by request."""

from __future__ import annotations

from typing import Any

from forebay.errors import ErrorCode
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from forebay.wire.messages.leave_group import LeaveGroupRequest
from support.machines.group_runtime import Runtime


def join_code(runtime: Runtime, *args: Any, **options: Any) -> int:
    code: int = runtime.answers[runtime.join(*args, **options)].error_code
    return code


def test_join_refuses_what_cannot_be() -> None:
    runtime = Runtime(min_session_timeout_ms=1_000, max_session_timeout_ms=20_000)
    assert join_code(runtime, group_id="") == ErrorCode.INVALID_GROUP_ID
    assert join_code(runtime, session_ms=999) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join_code(runtime, session_ms=20_001) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join_code(runtime, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert join_code(runtime, protocols=()) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join_code(runtime, protocol_type="") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert runtime.shard.groups == {}
    runtime.stabilize()
    assert join_code(runtime, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert join_code(runtime, protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join_code(runtime, protocols=[("other", b"")]) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join_code(runtime, "stranger", instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID


def test_join_refuses_a_fenced_instance() -> None:
    runtime = Runtime()
    old = runtime.answers[runtime.join(instance_id="one")].member_id
    runtime.sync_all([old], 1)
    runtime.join(instance_id="one")
    assert join_code(runtime, old, instance_id="one") == ErrorCode.FENCED_INSTANCE_ID


def test_an_id_that_was_given_to_a_dynamic_member_is_not_for_a_static_one() -> None:
    runtime = Runtime()
    pending = runtime.answers[runtime.join()].member_id
    assert join_code(runtime, pending, instance_id="one") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_else() -> None:
    runtime = Runtime(max_size=2)
    generation, (a, b) = runtime.stabilize(2)
    assert join_code(runtime) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert runtime.heartbeat(a, generation) == ErrorCode.NONE
    runtime.leave((b, None))
    third, ticket = runtime.enter()
    assert ticket not in runtime.answers
    assert join_code(runtime, a) == ErrorCode.NONE
    assert runtime.answers[ticket].member_id == third


def test_a_static_member_comes_back_to_a_full_group() -> None:
    runtime = Runtime(max_size=1)
    old = runtime.answers[runtime.join(instance_id="one")].member_id
    runtime.sync_all([old], 1)
    assert join_code(runtime, instance_id="two") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join_code(runtime, instance_id="one") == ErrorCode.NONE


def test_a_group_that_became_too_large_loses_the_last_to_join_again() -> None:
    runtime = Runtime()
    _, (a, b) = runtime.stabilize(2)
    runtime.config = type(runtime.config)(max_size=1)
    runtime.crash()
    ticket = runtime.join(a)
    assert join_code(runtime, b) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [member.member_id for member in runtime.answers[ticket].members] == [a]


def test_sync_refuses_what_does_not_fit_the_generation() -> None:
    runtime = Runtime()
    generation, (a,) = runtime.stabilize()

    def code(*args: Any, **options: Any) -> int:
        result: int = runtime.answers[runtime.sync(*args, **options)].error_code
        return result

    assert code("", 1, group_id="") == ErrorCode.INVALID_GROUP_ID
    assert code(a, 1, group_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code("stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(a, generation, instance_id="one") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(a, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert code(a, generation, protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(a, generation, protocol_name="sticky") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(a, generation, protocol_name=None, protocol_type=None) == ErrorCode.NONE


def test_heartbeat_refuses_strangers_and_old_generations() -> None:
    runtime = Runtime()
    generation, (a,) = runtime.stabilize()
    assert runtime.heartbeat(a, generation, group_id="") == ErrorCode.INVALID_GROUP_ID
    assert runtime.heartbeat(a, generation, group_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert runtime.heartbeat("stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runtime.heartbeat(a, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    runtime.leave((a, None))
    assert runtime.heartbeat(a, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_refuses_strangers_one_by_one() -> None:
    runtime = Runtime()
    assert runtime.leave(("a", None), group_id="other") == [ErrorCode.UNKNOWN_MEMBER_ID]
    empty = runtime.ask("leave_group", LeaveGroupRequest(group_id=""), 5)
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID


def test_the_first_version_has_one_timeout_for_session_and_rebalance() -> None:
    runtime = Runtime()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=7_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    member = runtime.ask("join_group", request, 0).member_id
    assert runtime.group().members[member].rebalance_timeout_ms == 7_000
