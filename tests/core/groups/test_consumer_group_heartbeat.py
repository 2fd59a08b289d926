"""KIP-848 groups by example: joining, reconciling, leaving, timeouts, and each error that there is."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.core.groups.assigned_partitions import Partitions
from forebay.core.groups.consumer.members import MemberState
from forebay.core.groups.shard import TopicInfo
from forebay.errors import ErrorCode
from forebay.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from forebay.wire.messages.delete_groups import DeleteGroupsRequest
from forebay.wire.messages.list_groups import ListGroupsRequest
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from support.machines.consumer_runtime import (
    ORDERS,
    PAYMENTS,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerClient,
    ConsumerRuntime,
    assigned,
    parts,
    settle,
)
from support.machines.group_runtime import own_settings

NONE: Partitions = frozenset()
INTERVAL_MS = 1_000
"""How long what a leaver had waits, by default."""


@pytest.fixture
def runtime() -> ConsumerRuntime:
    return ConsumerRuntime()


def clients(runtime: ConsumerRuntime, *names: str, **options: Any) -> list[ConsumerClient]:
    """Members of a group that has come to rest."""
    found = [ConsumerClient(runtime, name, **options) for name in names]
    for _ in range(3):
        settle(found)
    return found


# -- joining and reconciling -------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once(runtime: ConsumerRuntime) -> None:
    response = runtime.enter_group("a", "orders", "payments", "missing")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", 1)
    assert response.heartbeat_interval_ms == 5_000
    assert assigned(response) == parts(ORDERS, 0, 1, 2, 3) | parts(PAYMENTS, 0, 1)
    assert runtime.consumers().state_name == "Stable"


def test_a_broker_names_members_of_the_first_version(runtime: ConsumerRuntime) -> None:
    assert runtime.enter_group("", version=0).member_id == "id1"
    assert runtime.enter_group("").error_code == ErrorCode.INVALID_REQUEST


def test_a_heartbeat_without_news_is_answered_without_an_assignment(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("a")
    written = len(runtime.log)
    response = runtime.beat("a", 1)
    assert (response.error_code, response.member_epoch, response.assignment) == (0, 1, None)
    assert len(runtime.log) == written, "and nothing is written"


def test_a_full_heartbeat_is_told_the_assignment_again(runtime: ConsumerRuntime) -> None:
    told = assigned(runtime.enter_group("a"))
    assert told is not None
    again = runtime.beat("a", 1, topics=["orders"], owned=told, rebalance_ms=REBALANCE_MS)
    assert assigned(again) == told


def test_partitions_are_given_up_before_they_are_given(runtime: ConsumerRuntime) -> None:
    everything = assigned(runtime.enter_group("a"))
    assert everything is not None
    second = runtime.enter_group("b")
    assert (second.member_epoch, assigned(second)) == (2, NONE), "nothing is free yet"

    told = runtime.beat("a", 1, owned=everything)
    half = assigned(told)
    assert half is not None
    assert (told.member_epoch, len(half)) == (1, 2), "it stays in its epoch until it has given up"
    assert runtime.beat("b", 2).assignment is None
    assert runtime.beat("a", 1).member_epoch == 1, "saying nothing about partitions proves nothing"
    assert runtime.beat("b", 2).assignment is None
    assert runtime.consumers().state_name == "Reconciling"

    assert runtime.beat("a", 1, owned=half).member_epoch == 2
    assert assigned(runtime.beat("b", 2)) == everything - half
    assert runtime.consumers().state_name == "Stable"


def test_a_member_that_lost_the_answer_may_come_with_its_old_epoch_once_more(
    runtime: ConsumerRuntime,
) -> None:
    a, _ = clients(runtime, "a", "b")
    runtime.beat("b1", -1)
    runtime.advance(INTERVAL_MS)
    bumped = runtime.beat("a1", a.epoch, owned=a.owned)
    assert bumped.member_epoch > a.epoch
    again = runtime.beat("a1", a.epoch, owned=a.owned, topics=["orders"], rebalance_ms=REBALANCE_MS)
    assert (again.error_code, again.member_epoch) == (0, bumped.member_epoch)
    assert assigned(again) == parts(ORDERS, 0, 1, 2, 3)


@pytest.mark.parametrize("owned", [None, parts(PAYMENTS, 0)], ids=["unsaid", "not its own"])
def test_an_old_epoch_is_fenced_unless_it_owns_no_more_than_it_should(
    runtime: ConsumerRuntime, owned: Partitions | None
) -> None:
    a, _ = clients(runtime, "a", "b")
    runtime.beat("b1", -1)
    runtime.advance(INTERVAL_MS)
    assert runtime.beat("a1", a.epoch, owned=a.owned).member_epoch > a.epoch
    assert runtime.beat("a1", a.epoch, owned=owned).error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("shift", [1, 100])
def test_an_epoch_from_the_future_is_fenced(runtime: ConsumerRuntime, shift: int) -> None:
    runtime.enter_group("a")
    response = runtime.beat("a", 1 + shift)
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "join again" in (response.error_message or "")


def test_a_fenced_member_joins_again_with_nothing(runtime: ConsumerRuntime) -> None:
    a, b = clients(runtime, "a", "b")
    b.epoch += 1
    assert b.beat() == ErrorCode.FENCED_MEMBER_EPOCH
    assert b.beat() == ErrorCode.NONE
    assert b.owned == runtime.consumers().state.target("b1")
    assert a.beat() == ErrorCode.NONE


def test_members_and_groups_that_are_not_there(runtime: ConsumerRuntime) -> None:
    assert runtime.beat("a", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runtime.beat("a", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runtime.shard.groups == {}
    runtime.enter_group("a")
    assert runtime.beat("b", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_more_members() -> None:
    runtime = ConsumerRuntime(consumer_max_size=1)
    runtime.enter_group("a")
    assert runtime.enter_group("b").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert runtime.enter_group("a").error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"group_id": ""}, "group id"),
        ({"instance_id": ""}, "instance id"),
        ({"rebalance_ms": -1}, "rebalance timeout"),
        ({"owned": None}, "own no partitions"),
        ({"owned": parts(ORDERS, 0)}, "own no partitions"),
        ({"topics": None}, "subscribe"),
        ({"topics": None, "regex": ""}, "subscribe"),
    ],
)
def test_requests_that_make_no_sense(runtime: ConsumerRuntime, options: Any, reason: str) -> None:
    response = runtime.enter_group("a", **options)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert reason in (response.error_message or "")


@pytest.mark.parametrize(("epoch", "instance_id"), [(-3, None), (-2, None)])
def test_epochs_that_make_no_sense(runtime: ConsumerRuntime, epoch: int, instance_id: str | None) -> None:
    runtime.enter_group("a")
    assert runtime.beat("a", epoch, instance_id=instance_id).error_code == ErrorCode.INVALID_REQUEST


# -- assignors and subscriptions ---------------------------------------------------------------------------


def test_assignors(runtime: ConsumerRuntime) -> None:
    refused = runtime.enter_group("a", assignor="clever")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    text = "ServerAssignor clever is not supported. Supported assignors: uniform, range."
    assert refused.error_message == text
    runtime.enter_group("a", "orders", "payments")
    assert runtime.describe().assignor_name == "uniform"
    runtime.enter_group("b", "orders", "payments", assignor="range")
    assert runtime.describe().assignor_name == "range", "one vote is more than none"
    assert runtime.consumers().state.target("b") == parts(ORDERS, 2, 3) | parts(PAYMENTS, 1)


def test_members_change_their_subscription(runtime: ConsumerRuntime) -> None:
    a, b = clients(runtime, "a", "b")
    b.subscribe("payments")
    for _ in range(2):
        settle([b, a])
    assert (a.owned, b.owned) == (parts(ORDERS, 0, 1, 2, 3), parts(PAYMENTS, 0, 1))
    b.subscribe()
    for _ in range(2):
        settle([b, a])
    assert b.owned == NONE
    assert runtime.consumers().state_name == "Stable"


def test_a_pattern_takes_in_topics_as_they_come(runtime: ConsumerRuntime) -> None:
    (a,) = clients(runtime, "a")
    a.subscribe(regex="(orders|new-.*|__.*)")
    settle([a])
    assert a.owned == parts(ORDERS, 0, 1, 2, 3)
    fresh = {"new-one": TopicInfo(b"n" * 16, 1), "__transaction_state": TopicInfo(b"i" * 16, 9)}
    runtime.see_topics({**runtime.topics, **fresh})
    settle([a])
    assert a.owned == parts(ORDERS, 0, 1, 2, 3) | parts(b"n" * 16, 0), "internal ones are not meant"
    assert runtime.describe().members[0].subscribed_topic_regex == "(orders|new-.*|__.*)"
    a.subscribe("payments")
    for _ in range(2):
        settle([a])
    assert a.owned == parts(PAYMENTS, 0, 1), "an empty pattern takes the old one back"


def test_a_pattern_that_is_none_is_refused(runtime: ConsumerRuntime) -> None:
    response = runtime.enter_group("a", topics=None, regex="orders(")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "orders(" in (response.error_message or "")


def test_topics_grow_go_and_come_back_as_others(runtime: ConsumerRuntime) -> None:
    a, b = clients(runtime, "a", "b")
    epoch = runtime.consumers().state.epoch
    runtime.see_topics({**runtime.topics, "unrelated": TopicInfo(b"u" * 16, 3)})
    settle([a, b])
    assert runtime.consumers().state.epoch == epoch, "nobody here subscribes to it"
    runtime.see_topics({**runtime.topics, "orders": TopicInfo(ORDERS, 6)})
    settle([a, b])
    settle([a, b])
    assert (len(a.owned), len(b.owned)) == (3, 3)
    runtime.see_topics({"orders": TopicInfo(b"x" * 16, 2)})
    settle([a, b])
    settle([a, b])
    assert a.owned | b.owned == parts(b"x" * 16, 0, 1)


def test_topics_that_changed_while_nobody_looked(runtime: ConsumerRuntime) -> None:
    (a,) = clients(runtime, "a")
    runtime.topics = {"orders": TopicInfo(ORDERS, 5)}
    runtime.crash()
    settle([a])
    assert a.owned == parts(ORDERS, 0, 1, 2, 3, 4)


# -- leaving and timeouts ----------------------------------------------------------------------------------


def test_what_a_leaver_had_goes_to_the_others(runtime: ConsumerRuntime) -> None:
    a, b = clients(runtime, "a", "b")
    left = runtime.beat("b1", -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "b1", -1)
    assert runtime.consumers().state_name == "Assigning"
    runtime.advance(INTERVAL_MS)
    settle([a])
    assert a.owned == parts(ORDERS, 0, 1, 2, 3)
    assert b.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_what_leavers_had_waits_for_those_that_leave_with_them(runtime: ConsumerRuntime) -> None:
    a, b, _ = clients(runtime, "a", "b", "c")
    before = a.owned
    runtime.beat("c1", -1)
    runtime.advance(INTERVAL_MS - 200)
    runtime.beat("b1", -1)
    told = runtime.beat("a1", a.epoch, owned=a.owned)
    assert (told.assignment, told.member_epoch) == (None, a.epoch)
    assert told.heartbeat_interval_ms == 200, "it comes back when there is something to tell"
    runtime.advance(200)
    settle([a])
    assert before < a.owned == parts(ORDERS, 0, 1, 2, 3)
    assert runtime.beat("a1", a.epoch).heartbeat_interval_ms == 5_000
    assert b.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_joins_does_not_wait_for_those_that_leave(runtime: ConsumerRuntime) -> None:
    a, _ = clients(runtime, "a", "b")
    runtime.beat("b1", -1)
    joined = runtime.enter_group("c")
    settle([a])
    assert assigned(joined) == parts(ORDERS, 2, 3)


def test_the_wait_after_a_leave_is_a_setting(runtime: ConsumerRuntime) -> None:
    runtime.settings["g"] = own_settings(assignment_interval_ms=0)
    a, _ = clients(runtime, "a", "b")
    runtime.beat("b1", -1)
    settle([a])
    assert a.owned == parts(ORDERS, 0, 1, 2, 3)


def test_a_silent_member_is_out_after_its_session(runtime: ConsumerRuntime) -> None:
    a, b = clients(runtime, "a", "b")
    runtime.advance(SESSION_MS - 1)
    settle([a])
    assert len(runtime.consumers().state.members) == 2
    runtime.advance(1)
    assert set(runtime.consumers().state.members) == {"a1"}
    settle([a])
    assert a.owned == parts(ORDERS, 0, 1, 2, 3)
    assert b.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_sessions_begin_anew_after_a_restart(runtime: ConsumerRuntime) -> None:
    clients(runtime, "a", "b")
    runtime.advance(SESSION_MS - 1)
    runtime.crash()
    runtime.advance(SESSION_MS - 1)
    assert len(runtime.consumers().state.members) == 2
    runtime.advance(1)
    assert runtime.consumers().state_name == "Empty"


@pytest.mark.parametrize("crashes", [False, True])
def test_a_member_that_does_not_give_up_in_time_is_out(runtime: ConsumerRuntime, crashes: bool) -> None:
    (a,) = clients(runtime, "a")
    runtime.enter_group("b")
    a.beat()
    assert runtime.consumers().state.members["a1"].state is MemberState.UNREVOKED
    if crashes:
        runtime.crash()
    for _ in range(REBALANCE_MS // 10_000 - 1):
        runtime.advance(10_000)
        assert a.beat() == ErrorCode.NONE
        runtime.beat("b", 2)
    runtime.advance(9_999)
    assert a.beat() == ErrorCode.NONE
    runtime.advance(1)
    assert a.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert assigned(runtime.beat("b", 2)) == parts(ORDERS, 0, 1, 2, 3)


def test_one_that_gave_up_in_time_stays(runtime: ConsumerRuntime) -> None:
    (a,) = clients(runtime, "a")
    b = ConsumerClient(runtime, "b")
    b.beat()
    for _ in range(2):
        settle([a, b])
    for _ in range(20):
        runtime.advance(10_000)
        settle([a, b])
    assert (len(a.owned), len(b.owned)) == (2, 2)


# -- static members ----------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had(runtime: ConsumerRuntime) -> None:
    a, s = clients(runtime, "a")[0], ConsumerClient(runtime, "s", "one")
    for _ in range(3):
        settle([a, s])
    had, epoch = s.owned, runtime.consumers().state.epoch
    s.leave(-2)
    settle([a])
    assert len(a.owned) == 2, "its share is kept for it"
    settle([s])
    assert (s.member_id, s.owned) == ("s2", had)
    assert runtime.consumers().state.epoch == epoch, "and nobody else notices"
    fenced = runtime.beat("s1", 3, instance_id="one")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_in_use_is_not_given_away(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("s", instance_id="one")
    other = runtime.enter_group("t", instance_id="one")
    assert other.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert runtime.enter_group("s", instance_id="one").error_code == ErrorCode.NONE


def test_a_static_member_that_is_away_for_good(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("s", instance_id="one")
    assert runtime.beat("s", -2, instance_id="one").member_epoch == -2
    assert runtime.beat("s", 1, instance_id="one").error_code == ErrorCode.FENCED_MEMBER_EPOCH
    runtime.advance(SESSION_MS)
    assert runtime.consumers().is_empty
    assert runtime.beat("s", 1, instance_id="one").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_leave_for_good(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("s", instance_id="one")
    assert runtime.beat("t", -1, instance_id="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert runtime.beat("s", -1, instance_id="one").error_code == ErrorCode.NONE
    assert runtime.enter_group("t", instance_id="one").error_code == ErrorCode.NONE


# -- offsets -----------------------------------------------------------------------------------------------


def test_commits_are_checked_against_the_member_epoch(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("a")

    def commit(member_id: str, epoch: int, version: int = 9) -> int:
        return runtime.commit(5, member_id=member_id, generation=epoch, version=version)

    assert commit("a", 1) == ErrorCode.NONE
    assert commit("a", 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit("a", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("b", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runtime.txn_commit(6, member_id="a", generation=2) == ErrorCode.ILLEGAL_GENERATION
    assert runtime.txn_commit(6, member_id="a", generation=1) == ErrorCode.NONE
    runtime.beat("a", -1)
    assert commit("", -1) == ErrorCode.NONE, "an empty group takes offsets from anybody"


@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_a_transaction_may_commit_for_a_group_without_naming_a_member(
    runtime: ConsumerRuntime, version: int
) -> None:
    """As producers do that were told no more than the group's id (before KIP-447)."""
    runtime.enter_group("a")
    assert runtime.txn_commit(5, version=version) == ErrorCode.NONE
    runtime.end_transaction(commit=True)
    assert runtime.fetch() == (5, ErrorCode.NONE)


@pytest.mark.parametrize(("member_id", "epoch"), [("b", -1), ("b", 1), ("", 1)])
def test_a_transaction_that_names_a_member_must_name_one_of_the_group(
    runtime: ConsumerRuntime, member_id: str, epoch: int
) -> None:
    runtime.enter_group("a")
    assert runtime.txn_commit(6, member_id=member_id, generation=epoch) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("transactional", [False, True])
def test_a_commit_may_cross_a_new_epoch_on_its_way(runtime: ConsumerRuntime, transactional: bool) -> None:
    (a,) = clients(runtime, "a")
    old = a.epoch

    def commit(epoch: int, **where: Any) -> int:
        if transactional:
            return runtime.txn_commit(5, member_id="a1", generation=epoch, **where)
        return runtime.commit(5, member_id="a1", generation=epoch, version=9, **where)

    stale = ErrorCode.ILLEGAL_GENERATION if transactional else ErrorCode.STALE_MEMBER_EPOCH
    for count in (5, 6):
        runtime.see_topics({**runtime.topics, "orders": TopicInfo(ORDERS, count)})
        a.beat()
        assert commit(a.epoch - 1) == ErrorCode.NONE
        assert commit(a.epoch - 1, topic="payments") == stale, "which it never had"
    assert commit(old) == stale, "two epochs ago"


def test_what_was_given_up_is_not_committed_late(runtime: ConsumerRuntime) -> None:
    (a,) = clients(runtime, "a")
    old = a.epoch
    b = ConsumerClient(runtime, "b")
    for _ in range(2):
        settle([b, a])
    (_, mine), (_, lost) = min(a.owned), min(b.owned)
    assert runtime.commit(5, partition=mine, member_id="a1", generation=old, version=9) == ErrorCode.NONE
    code = runtime.commit(5, partition=lost, member_id="a1", generation=old, version=9)
    assert code == ErrorCode.STALE_MEMBER_EPOCH


def test_a_static_member_that_is_away_commits_nothing(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("s", instance_id="one")
    runtime.beat("s", -2, instance_id="one")
    code = runtime.commit(5, member_id="s", generation=-2, version=9)
    assert code == ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        (None, -1, ErrorCode.NONE),
        ("a", 1, ErrorCode.NONE),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_fetches_are_checked_against_the_member_epoch(
    runtime: ConsumerRuntime, member_id: str | None, epoch: int, expected: ErrorCode
) -> None:
    runtime.enter_group("a")
    topic = OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    asked = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=[topic])
    response = runtime.ask("offset_fetch", OffsetFetchRequest(groups=[asked]), 9)
    assert response.groups[0].error_code == expected


def test_offsets_outlive_the_group_kind(runtime: ConsumerRuntime) -> None:
    runtime.commit(7)
    runtime.enter_group("a")
    assert runtime.fetch() == (7, 0)
    runtime.crash()
    assert runtime.fetch() == (7, 0)


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    runtime = ConsumerRuntime(offsets_retention_minutes=2, offsets_retention_check_interval_ms=1_000)
    (a,) = clients(runtime, "a")
    runtime.commit(7, member_id="a1", generation=a.epoch, version=9)
    runtime.commit(8, topic="payments", member_id="a1", generation=a.epoch, version=9)
    for _ in range(6):
        runtime.advance(20_000)
        settle([a])
    assert (runtime.fetch(), runtime.fetch("payments")) == ((7, 0), (-1, 0))
    a.leave()
    runtime.advance(2_000)
    assert runtime.shard.groups == {}, "offsets and group are gone when nobody is left"


# -- administration ----------------------------------------------------------------------------------------


def test_describing_a_group(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("a")
    runtime.enter_group("b", instance_id="one")
    group = runtime.describe()
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (
        0,
        "Reconciling",
        2,
        2,
    )
    first, second = group.members
    assert (first.member_id, first.member_epoch, first.member_type) == ("a", 1, 1)
    assert (first.client_id, first.client_host, first.subscribed_topic_names) == (
        "app",
        "/127.0.0.1",
        ["orders"],
    )
    assert [(t.topic_name, t.partitions) for t in first.assignment.topic_partitions] == [
        ("orders", [0, 1, 2, 3])
    ]
    assert [len(t.partitions) for t in second.target_assignment.topic_partitions] == [2]
    assert (second.instance_id, second.assignment.topic_partitions) == ("one", [])
    assert runtime.describe("other").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_listing_and_deleting(runtime: ConsumerRuntime) -> None:
    runtime.enter_group("a")

    def listed(**filters: list[str]) -> list[tuple[str, str, str, str]]:
        found = runtime.shard.list_groups(ListGroupsRequest(**filters))
        return [(each.group_id, each.group_type, each.group_state, each.protocol_type) for each in found]

    def delete() -> int:
        answer = runtime.ask("delete_groups", DeleteGroupsRequest(groups_names=["g"]), 2)
        code: int = answer.results[0].error_code
        return code

    assert listed(types_filter=["Consumer"]) == [("g", "consumer", "Stable", "consumer")]
    assert listed(types_filter=["classic"]) == []
    assert delete() == ErrorCode.NON_EMPTY_GROUP
    runtime.beat("a", -1)
    assert listed(states_filter=["empty"]) == [("g", "consumer", "Empty", "consumer")]
    assert delete() == ErrorCode.NONE
    assert runtime.shard.groups == {}
    assert runtime.fresh().groups == {}


# -- settings of a group -----------------------------------------------------------------------------------


def test_a_group_has_its_own_session_and_heartbeat(runtime: ConsumerRuntime) -> None:
    runtime.settings["g"] = own_settings(session_timeout_ms=2_000, heartbeat_interval_ms=300)
    assert runtime.enter_group("a").heartbeat_interval_ms == 300
    assert runtime.enter_group("b", group_id="other").heartbeat_interval_ms == 5_000
    runtime.advance(1_999)
    assert "a" in runtime.consumers().state.members
    runtime.advance(1)
    assert runtime.consumers().is_empty
    assert not runtime.consumers("other").is_empty


def test_new_settings_count_from_the_next_heartbeat_on(runtime: ConsumerRuntime) -> None:
    epoch = runtime.enter_group("a").member_epoch
    runtime.settings["g"] = own_settings(session_timeout_ms=2_000, heartbeat_interval_ms=300)
    runtime.advance(10_000)
    assert runtime.beat("a", epoch).heartbeat_interval_ms == 300
    runtime.advance(2_000)
    assert runtime.consumers().is_empty


def test_a_member_whose_metadata_was_written_again_survives_compaction() -> None:
    """Compaction leaves the newest record of each key: the assignment of a member then comes before it."""
    runtime = ConsumerRuntime()
    runtime.enter_group("a")
    again = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    runtime.ask("consumer_group_heartbeat", again, 1, client_id="another client id")
    epoch, assigned = runtime.consumers().state.members["a"].epoch, runtime.consumers().state.owners
    runtime.compact()
    runtime.crash()
    assert runtime.consumers().state.members["a"].epoch == epoch == 1
    assert runtime.consumers().state.owners == assigned
    assert runtime.beat("a", 1).error_code == ErrorCode.NONE
