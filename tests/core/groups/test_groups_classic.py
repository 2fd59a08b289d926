"""Classic groups: how members come together, what each is told, and every way to be refused."""

from __future__ import annotations

import pytest

from forebay.core.groups.classic.group import TRANSITIONS, State
from forebay.core.groups.classic.requests import NEW_MEMBER_TIMEOUT_MS
from forebay.errors import ErrorCode
from forebay.wire.batch import EndTxnMarker
from forebay.wire.codec.layout import STRING_BYTES_MAX
from forebay.wire.messages.leave_group import LeaveGroupRequest
from support.machines.group_runtime import Runtime, subscription

HOUR_MS = 3_600_000

# -- generations --------------------------------------------------------------------------------------


def test_a_first_member_is_told_its_id_then_leads_its_own_generation() -> None:
    runtime = Runtime()
    first = runtime.answers[runtime.join()]
    assert (first.error_code, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "app-id1")
    joined = runtime.answers[runtime.join("app-id1")]
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, "app-id1")
    assert [member.member_id for member in joined.members] == ["app-id1"]
    assert joined.members[0].metadata == subscription("orders")
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    synced = runtime.answers[runtime.sync("app-id1", 1, {"app-id1": b"all"})]
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert runtime.group().state is State.STABLE
    assert len(runtime.log) == 1


def test_a_client_before_member_ids_were_required_joins_at_once() -> None:
    runtime = Runtime()
    joined = runtime.answers[runtime.join(version=3)]
    assert (joined.error_code, joined.generation_id) == (0, 1)


def test_two_members_share_a_generation_and_only_the_leader_sees_both() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    b, waiting = runtime.enter()
    assert waiting not in runtime.answers
    assert runtime.heartbeat(a, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again = runtime.answers[runtime.join(a)]
    other = runtime.answers[waiting]
    assert again.generation_id == other.generation_id == 2
    assert again.leader == other.leader == a
    assert {member.member_id for member in again.members} == {a, b}
    assert other.members == []
    follower = runtime.sync(b, 2)
    assert follower not in runtime.answers
    leader = runtime.sync(a, 2, {a: b"0", b: b"1"})
    assert runtime.answers[follower].assignment == b"1"
    assert runtime.answers[leader].assignment == b"0"
    assert runtime.heartbeat(b, 2) == ErrorCode.NONE


def test_a_follower_that_syncs_late_gets_its_assignment() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    b, _ = runtime.enter()
    runtime.join(a)
    runtime.sync(a, 2, {a: b"0", b: b"1"})
    assert runtime.answers[runtime.sync(b, 2)].assignment == b"1"


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    b, _ = runtime.enter()
    runtime.join(a)
    runtime.sync(a, 2, {a: b"0", "stranger": b"9"})
    answer = runtime.answers[runtime.sync(b, 2)]
    assert (answer.error_code, answer.assignment) == (0, b"")


def test_the_protocol_with_most_votes_that_all_support_wins() -> None:
    runtime = Runtime(initial_rebalance_delay_ms=100)
    votes = [("x", "y", "z"), ("y", "x"), ("x", "y"), ("y", "z", "x"), ("y", "x")]
    tickets = [runtime.enter(protocols=[(name, b"") for name in names])[1] for names in votes]
    runtime.advance(10_000)
    assert {runtime.answers[ticket].protocol_name for ticket in tickets} == {"y"}


def test_an_unchanged_follower_that_joins_again_does_not_disturb_the_group() -> None:
    runtime = Runtime()
    generation, (leader, follower) = runtime.stabilize(2)
    answer = runtime.answers[runtime.join(follower)]
    assert (answer.generation_id, answer.leader, answer.members) == (generation, leader, [])
    assert runtime.group().state is State.STABLE


def test_a_changed_subscription_or_the_leader_joining_again_begins_a_rebalance() -> None:
    runtime = Runtime()
    generation, (leader, follower) = runtime.stabilize(2)
    changed = runtime.join(follower, protocols=[("range", subscription("payments"))])
    assert changed not in runtime.answers
    assert runtime.answers[runtime.join(leader)].generation_id == generation + 1
    assert runtime.answers[changed].generation_id == generation + 1
    runtime.sync_all([leader, follower], generation + 1)
    assert runtime.join(leader) not in runtime.answers


def test_a_lost_join_response_is_given_again_while_the_group_completes() -> None:
    runtime = Runtime()
    member, ticket = runtime.enter()
    again = runtime.answers[runtime.join(member)]
    assert again == runtime.answers[ticket]


def test_a_member_that_changes_while_others_wait_for_the_assignment_sends_them_back() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    b, _ = runtime.enter()
    runtime.join(a)
    waiting = runtime.sync(b, 2)
    runtime.join(a, protocols=[("range", subscription("payments"))])
    assert runtime.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert runtime.answers[runtime.sync(b, 2)].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_client_that_asks_again_is_answered_on_its_second_request() -> None:
    runtime = Runtime()
    _, (a, b) = runtime.stabilize(2)
    first = runtime.join(a)
    second = runtime.join(a)
    assert runtime.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    runtime.join(b)
    assert runtime.answers[second].error_code == ErrorCode.NONE
    generation = runtime.answers[second].generation_id
    follower = b if runtime.group().leader == a else a
    first = runtime.sync(follower, generation)
    second = runtime.sync(follower, generation)
    assert runtime.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in runtime.answers


# -- time ---------------------------------------------------------------------------------------------


def test_the_first_rebalance_waits_for_more_members_and_each_extends_it() -> None:
    runtime = Runtime(initial_rebalance_delay_ms=3_000)
    _, first = runtime.enter()
    runtime.advance(2_000)
    _, second = runtime.enter()
    runtime.advance(2_000)
    assert first not in runtime.answers
    runtime.advance(2_000)
    assert runtime.answers[first].generation_id == runtime.answers[second].generation_id == 1


def test_the_first_rebalance_is_not_extended_beyond_the_rebalance_timeout() -> None:
    runtime = Runtime(initial_rebalance_delay_ms=3_000)
    _, first = runtime.enter(rebalance_ms=7_000)
    for _ in range(3):
        runtime.advance(2_000)
        runtime.enter(rebalance_ms=7_000)
    assert first not in runtime.answers
    runtime.advance(1_000)
    assert runtime.answers[first].generation_id == 1


def test_a_silent_member_is_dropped_and_the_others_share_its_work() -> None:
    runtime = Runtime()
    generation, (a, b) = runtime.stabilize(2)
    for _ in range(3):
        runtime.advance(4_000)
        code = runtime.heartbeat(a, generation)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
    assert runtime.heartbeat(b, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    joined = runtime.answers[runtime.join(a)]
    assert [member.member_id for member in joined.members] == [a]


def test_the_last_member_to_go_leaves_an_empty_group_behind() -> None:
    runtime = Runtime()
    runtime.stabilize()
    runtime.advance(10_000)
    assert runtime.group().state is State.EMPTY
    assert runtime.group().generation == 2
    runtime.crash()
    assert (runtime.group().state, runtime.group().generation) == (State.EMPTY, 2)


def test_what_falls_due_together_makes_one_change() -> None:
    runtime = Runtime()
    runtime.stabilize()
    runtime.join()  # an id that nobody uses, which expires together with the only member
    runtime.advance(10_000)
    assert (runtime.group().state, runtime.group().generation) == (State.EMPTY, 2)
    records = [record for entry in runtime.log if not isinstance(entry, EndTxnMarker) for record in entry[1]]
    assert len(records) == 2
    assert runtime.group().pending == set()


def test_who_does_not_join_again_within_the_rebalance_timeout_is_out() -> None:
    runtime = Runtime()
    generation, (a, b) = runtime.stabilize(2, session_ms=60_000, rebalance_ms=5_000)
    ticket = runtime.join(a, session_ms=60_000, rebalance_ms=5_000)
    assert ticket not in runtime.answers
    runtime.advance(5_000)
    joined = runtime.answers[ticket]
    assert (joined.generation_id, joined.leader) == (generation + 1, a)
    assert runtime.heartbeat(b, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_sync_within_the_rebalance_timeout_is_out() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize(rebalance_ms=5_000, session_ms=60_000)
    b, _ = runtime.enter(rebalance_ms=5_000, session_ms=60_000)
    runtime.join(a, rebalance_ms=5_000, session_ms=60_000)
    waiting = runtime.sync(b, 2)  # the leader never hands in an assignment
    runtime.advance(5_000)
    assert runtime.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert a not in runtime.group().members
    assert runtime.answers[runtime.join(b, rebalance_ms=5_000)].leader == b


def test_a_member_that_waits_needs_no_heartbeat() -> None:
    runtime = Runtime()
    generation, (a, b) = runtime.stabilize(2)
    ticket = runtime.join(a)
    for _ in range(4):
        runtime.advance(5_000)
        runtime.heartbeat(b, generation)
    assert ticket not in runtime.answers
    assert a in runtime.group().members


def test_a_member_that_waited_longer_than_its_session_is_watched_again() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    b, _ = runtime.enter()
    runtime.join(a)
    waiting = runtime.sync(b, 2)
    for _ in range(2):
        runtime.advance(6_000)
        assert runtime.heartbeat(a, 2) == ErrorCode.NONE
    runtime.sync(a, 2, {b: b"work"})
    assert runtime.answers[waiting].assignment == b"work"
    runtime.advance(6_000)
    assert runtime.heartbeat(a, 2) == ErrorCode.NONE
    runtime.advance(6_000)
    assert runtime.heartbeat(b, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_whose_client_is_gone_is_dropped_in_the_end() -> None:
    runtime = Runtime()
    hour_ms = 1_800_000
    generation, (a,) = runtime.stabilize(session_ms=hour_ms, rebalance_ms=hour_ms)
    b, ticket = runtime.enter(session_ms=hour_ms, rebalance_ms=hour_ms)
    runtime.advance(NEW_MEMBER_TIMEOUT_MS)
    assert runtime.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert b not in runtime.group().members
    assert runtime.heartbeat(a, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_id_that_nobody_joins_with_expires_and_a_group_of_nothing_else_with_it() -> None:
    runtime = Runtime()
    answer = runtime.answers[runtime.join()]
    assert "g" in runtime.shard.groups
    runtime.advance(10_000)
    assert "g" not in runtime.shard.groups
    assert runtime.answers[runtime.join(answer.member_id)].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runtime.log == []


def test_a_rebalance_waits_for_those_that_are_about_to_join() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    pending = runtime.answers[runtime.join()].member_id
    ticket = runtime.join(a)
    assert ticket not in runtime.answers
    runtime.join(pending)
    assert len(runtime.answers[ticket].members) == 2


def test_commits_keep_a_session_alive() -> None:
    runtime = Runtime()
    generation, (a,) = runtime.stabilize()
    for offset in range(4):
        runtime.advance(6_000)
        assert runtime.commit(offset, member_id=a, generation=generation) == ErrorCode.NONE
    assert runtime.heartbeat(a, generation) == ErrorCode.NONE


def test_members_get_fresh_sessions_after_a_restart() -> None:
    runtime = Runtime()
    generation, (a, b) = runtime.stabilize(2)
    runtime.advance(9_000)
    runtime.crash()
    runtime.advance(9_000)
    assert runtime.heartbeat(a, generation) == ErrorCode.NONE
    runtime.advance(2_000)
    assert runtime.heartbeat(b, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_generation_that_was_never_complete_is_forgotten_in_a_crash() -> None:
    runtime = Runtime()
    generation, (a,) = runtime.stabilize()
    runtime.enter()
    runtime.join(a)
    runtime.crash()
    assert runtime.answers[runtime.sync(a, generation + 1)].error_code == ErrorCode.ILLEGAL_GENERATION
    assert runtime.heartbeat(a, generation) == ErrorCode.NONE


# -- leaving ------------------------------------------------------------------------------------------


def test_several_members_leave_in_one_request() -> None:
    runtime = Runtime()
    generation, (a, b, c) = runtime.stabilize(3)
    assert runtime.leave((b, None), ("stranger", None), (c, None)) == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert runtime.heartbeat(a, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert runtime.answers[runtime.join(a)].generation_id == generation + 1


def test_an_old_client_leaves_and_is_told_on_the_top_level() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    request = LeaveGroupRequest(group_id="g", member_id="stranger")
    assert runtime.ask("leave_group", request, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request = LeaveGroupRequest(group_id="g", member_id=a)
    assert runtime.ask("leave_group", request, 2).error_code == ErrorCode.NONE
    assert runtime.group().is_empty


def test_an_id_that_was_given_out_can_be_returned() -> None:
    runtime = Runtime()
    generation, (a,) = runtime.stabilize()
    pending = runtime.answers[runtime.join()].member_id
    assert runtime.leave((pending, None)) == [0]
    assert runtime.group().state is State.STABLE
    assert runtime.heartbeat(a, generation) == ErrorCode.NONE


def test_the_last_one_that_others_wait_for_leaves_and_the_rebalance_goes_on() -> None:
    runtime = Runtime()
    _, (a, b) = runtime.stabilize(2)
    ticket = runtime.join(a)
    assert runtime.leave((b, None)) == [0]
    assert [member.member_id for member in runtime.answers[ticket].members] == [a]


# -- the table ----------------------------------------------------------------------------------------


def test_the_table_of_states_is_complete_and_every_state_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(State)
    reached, front = {State.EMPTY}, [State.EMPTY]
    while front:
        for state in TRANSITIONS[front.pop()] - reached:
            reached.add(state)
            front.append(state)
    assert reached == set(State)


def test_a_transition_that_the_table_does_not_have_is_refused() -> None:
    runtime = Runtime()
    runtime.stabilize()
    with pytest.raises(AssertionError, match="STABLE"):
        runtime.group().become(State.COMPLETING)


# -- clocks that are set ----------------------------------------------------------------------------------


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_sessions_last_as_long_whatever_the_clock_is_set_to(step_ms: int) -> None:
    runtime = Runtime()
    generation, (a, b) = runtime.stabilize(2, session_ms=10_000)
    runtime.advance(5_000)
    runtime.wall_ahead_ms += step_ms
    assert runtime.heartbeat(a, generation) == ErrorCode.NONE
    runtime.advance(4_999)
    assert set(runtime.group().members) == {a, b}
    runtime.advance(1)
    assert set(runtime.group().members) == {a}


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_a_rebalance_waits_as_long_whatever_the_clock_is_set_to(step_ms: int) -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize(session_ms=300_000, rebalance_ms=30_000)
    _, ticket = runtime.enter(session_ms=300_000, rebalance_ms=30_000)
    runtime.wall_ahead_ms += step_ms
    runtime.advance(29_999)
    assert ticket not in runtime.answers
    assert a in runtime.group().members
    runtime.advance(1)
    assert runtime.answers[ticket].generation_id == 2
    assert a not in runtime.group().members


@pytest.mark.parametrize("version", [3, 9])
def test_a_client_with_the_longest_name_gets_an_id_that_can_be_stored(version: int) -> None:
    runtime = Runtime()
    name = "é" * (STRING_BYTES_MAX // 2)
    member_id, ticket = runtime.enter(version=version, client_id=name)
    answer = runtime.answers[ticket]
    assert len(member_id.encode()) <= STRING_BYTES_MAX
    assert name.startswith(member_id.rpartition("-")[0])
    assert answer.error_code == ErrorCode.NONE
    synced = runtime.answers[runtime.sync(member_id, 1, {member_id: b"all"})]
    assert (synced.error_code, synced.assignment) == (0, b"all")


def test_an_id_that_is_never_used_does_not_cut_the_first_delay_short() -> None:
    runtime = Runtime(initial_rebalance_delay_ms=3_000)
    unused = runtime.answers[runtime.join(session_ms=1_000)]
    assert unused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    _, ticket = runtime.enter()
    runtime.advance(2_999)
    assert ticket not in runtime.answers, "others may come yet"
    late, later_ticket = runtime.enter()
    runtime.advance(3_001)
    assert runtime.answers[ticket].generation_id == 1
    assert runtime.answers[later_ticket].generation_id == 1
    assert late in runtime.group().members


def test_an_id_that_is_never_used_holds_up_no_other_rebalance_for_longer_than_its_session() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize(rebalance_ms=60_000)
    assert runtime.answers[runtime.join(session_ms=1_000)].error_code == ErrorCode.MEMBER_ID_REQUIRED
    _, ticket = runtime.enter(rebalance_ms=60_000)
    again = runtime.join(a, rebalance_ms=60_000)
    runtime.advance(999)
    assert ticket not in runtime.answers
    runtime.advance(1)
    assert (runtime.answers[ticket].generation_id, runtime.answers[again].generation_id) == (2, 2)
