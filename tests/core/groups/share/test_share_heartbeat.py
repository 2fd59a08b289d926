"""Share groups by example: joining, staying, leaving, timeouts, and each error that there is."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.config import GroupSettings, ShareGroupsConfig
from forebay.core.groups.shard import TopicInfo
from forebay.core.groups.share import assignor
from forebay.errors import ErrorCode
from forebay.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from forebay.wire.messages.list_groups import ListGroupsRequest
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.machines.share_runtime import (
    ORDERS,
    PAYMENTS,
    SESSION_MS,
    ShareClient,
    ShareRuntime,
    assigned,
    parts,
    settle,
)

ALL_ORDERS = parts(ORDERS, 0, 1, 2, 3)


@pytest.fixture
def runtime() -> ShareRuntime:
    return ShareRuntime()


# -- joining and staying ----------------------------------------------------------------------------------


def test_the_first_heartbeat_brings_the_partitions(runtime: ShareRuntime) -> None:
    response = runtime.beat("a", 0, "orders", "payments", "missing")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", 1)
    assert response.heartbeat_interval_ms == 5_000
    assert assigned(response) == ALL_ORDERS | parts(PAYMENTS, 0, 1)
    assert runtime.shares().state_name == "Stable"


def test_a_heartbeat_without_news_is_answered_without_an_assignment(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    written = len(runtime.log)
    for _ in range(3):
        response = runtime.beat("a", 1)
        assert (response.error_code, response.member_epoch, response.assignment) == (0, 1, None)
    assert len(runtime.log) == written, "and nothing is written"


def test_a_heartbeat_with_topics_is_told_the_assignment_again(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    assert assigned(runtime.beat("a", 1, "orders")) == ALL_ORDERS


def test_a_third_member_gets_its_part_at_once_and_the_others_with_their_next_heartbeats(
    runtime: ShareRuntime,
) -> None:
    runtime.beat("a", 0, "orders")
    assert assigned(runtime.beat("b", 0, "orders")) == ALL_ORDERS, "two members have everything"
    third = runtime.beat("c", 0, "orders")
    part = assigned(third)
    assert part is not None
    assert (third.member_epoch, len(part)) == (3, 2)
    for name, epoch in (("a", 1), ("b", 2)):
        told = runtime.beat(name, epoch)
        assert (told.member_epoch, len(assigned(told) or ())) == (3, 3)
    holders = [member.assigned for member in runtime.shares().state.members.values()]
    assert all(sum(each in held for held in holders) == 2 for each in ALL_ORDERS)


def test_a_target_of_an_earlier_version_is_made_anew(
    runtime: ShareRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then each partition had one member."""
    with monkeypatch.context() as earlier:
        earlier.setattr(assignor, "MEMBERS_PER_PARTITION", 1)
        for name in "ab":
            runtime.beat(name, 0, "orders")
        assert len(assigned(runtime.beat("a", 1)) or ()) == 2
    runtime.crash()
    told = runtime.beat("a", 2)
    assert (told.member_epoch, assigned(told)) == (3, ALL_ORDERS)
    assert runtime.beat("a", 3).member_epoch == 3, "once"


def test_more_members_than_partitions_share_them(runtime: ShareRuntime) -> None:
    clients = [ShareClient(runtime, name, "payments") for name in "abcde"]
    settle(clients)
    settle(clients)
    assert [len(client.assigned) for client in clients] == [1] * 5
    assert frozenset().union(*(client.assigned for client in clients)) == parts(PAYMENTS, 0, 1)


def test_a_member_that_lost_the_answer_may_come_with_its_old_epoch_once_more(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    runtime.beat("b", 0, "orders")
    assert runtime.beat("a", 1).member_epoch == 2
    again = runtime.beat("a", 1)
    assert (again.error_code, again.member_epoch) == (0, 2)
    assert assigned(again) == ALL_ORDERS, "and hears again what it was told"


@pytest.mark.parametrize("epoch", [3, 100])
def test_an_epoch_from_the_future_is_fenced(runtime: ShareRuntime, epoch: int) -> None:
    runtime.beat("a", 0, "orders")
    response = runtime.beat("a", epoch)
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "join again" in (response.error_message or "")


def test_an_epoch_older_than_the_one_before_is_fenced(runtime: ShareRuntime) -> None:
    for name in "abc":
        runtime.beat(name, 0, "orders")
        runtime.beat("a", runtime.shares().state.members["a"].epoch)
    assert runtime.shares().state.members["a"].epoch == 3
    assert runtime.beat("a", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert assigned(runtime.beat("a", 0, "orders")) is not None, "it joins again with the same id"


def test_members_and_groups_that_are_not_there(runtime: ShareRuntime) -> None:
    assert runtime.beat("a", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runtime.beat("a", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    runtime.beat("a", 0, "orders")
    assert runtime.beat("b", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runtime.beat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("fault", "request_"),
    [
        ("member id is empty", {"member_id": ""}),
        ("longer than 36", {"member_id": "x" * 37}),
        ("group id is empty", {"group_id": ""}),
        ("rack id is empty", {"rack_id": ""}),
        ("must subscribe", {"subscribed_topic_names": None}),
        ("must subscribe", {"subscribed_topic_names": []}),
        ("below -1", {"member_epoch": -2}),
    ],
)
def test_requests_that_are_wrong(runtime: ShareRuntime, fault: str, request_: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 0,
        "subscribed_topic_names": ["orders"],
    }
    request = ShareGroupHeartbeatRequest(**{**good, **request_})
    response = runtime.ask("share_group_heartbeat", request, 1)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert fault in response.error_message
    assert not runtime.shard.groups


def test_a_full_group_lets_only_its_members_in() -> None:
    runtime = ShareRuntime(share=ShareGroupsConfig(max_size=2))
    for name in "ab":
        runtime.beat(name, 0, "orders")
    assert runtime.beat("c", 0, "orders").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert runtime.beat("a", 0, "orders").error_code == ErrorCode.NONE
    runtime.beat("b", -1)
    assert runtime.beat("c", 0, "orders").error_code == ErrorCode.NONE


def test_a_changed_subscription_raises_the_epoch_and_moves_partitions(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    response = runtime.beat("a", 1, "payments")
    assert (response.member_epoch, assigned(response)) == (2, parts(PAYMENTS, 0, 1))


def test_another_client_address_is_written_and_changes_nothing_else(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    response = runtime.beat("a", 1, client_id="other", rack_id="r1")
    assert (response.member_epoch, response.assignment) == (1, None)
    (member,) = runtime.describe().members
    assert (member.client_id, member.rack_id) == ("other", "r1")


# -- topics -----------------------------------------------------------------------------------------------


def test_a_topic_that_comes_later_is_assigned(runtime: ShareRuntime) -> None:
    assert assigned(runtime.beat("a", 0, "new")) == frozenset()
    new = b"n" * 16
    runtime.see_topics({**runtime.topics, "new": TopicInfo(new, 2)})
    response = runtime.beat("a", 1)
    assert assigned(response) == parts(new, 0, 1)
    assert runtime.start_offsets() == {(new, 0): -1, (new, 1): -1}


def test_partitions_that_were_folded_and_are_gone_are_given_to_nobody(runtime: ShareRuntime) -> None:
    assert assigned(runtime.beat("a", 0, "orders")) == parts(ORDERS, *range(4))
    runtime.see_topics({**runtime.topics, "orders": TopicInfo(ORDERS, 2, named_end=4)})
    assert assigned(runtime.beat("a", 1)) == parts(ORDERS, 0, 1)


def test_partitions_that_are_added_are_read_from_their_beginning(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    runtime.see_topics({**runtime.topics, "orders": TopicInfo(ORDERS, 6)})
    assert assigned(runtime.beat("a", 1)) == parts(ORDERS, *range(6))
    starts = runtime.start_offsets()
    assert [starts[ORDERS, index] for index in range(6)] == [-1, -1, -1, -1, 0, 0]


def test_the_state_of_a_deleted_topic_is_deleted(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders", "payments")
    runtime.see_topics({"payments": runtime.topics["payments"]})
    response = runtime.beat("a", 1)
    assert assigned(response) == parts(PAYMENTS, 0, 1)
    assert len(runtime.states) == 6
    runtime.advance(6_000)
    assert set(runtime.start_offsets()) == parts(PAYMENTS, 0, 1)
    assert set(runtime.shares().state.topics) == {PAYMENTS}


def test_a_topic_that_is_missing_and_was_not_deleted_keeps_its_state(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    topics, before = runtime.topics, dict(runtime.states)
    runtime.see_topics({}, are_deleted=False)
    assert not assigned(runtime.beat("a", 1))
    runtime.advance(6_000)
    runtime.crash()
    runtime.advance(6_000)
    runtime.see_topics(topics)
    assert runtime.states == before
    assert assigned(runtime.beat("a", 2)) == ALL_ORDERS


def test_a_topic_that_is_only_out_of_sight_for_a_moment_keeps_its_state(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    topics = runtime.topics
    runtime.see_topics({})
    runtime.crash()
    runtime.advance(1_000)
    runtime.see_topics(topics)
    runtime.advance(10_000)
    assert set(runtime.start_offsets()) == ALL_ORDERS


def test_a_topic_that_was_out_of_sight_for_longer_begins_anew(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    topics, before = runtime.topics, dict(runtime.states)
    runtime.see_topics({})
    runtime.advance(6_000)
    assert runtime.states == {}
    runtime.see_topics(topics)
    runtime.beat("a", 1)
    assert runtime.shares().state.members["a"].assigned == ALL_ORDERS
    assert runtime.states.keys() == before.keys()
    assert all(epoch > before[key][0] for key, (epoch, _) in runtime.states.items())


def test_a_topic_made_anew_is_another_one(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    again = b"O" * 16
    runtime.see_topics({"orders": TopicInfo(again, 1)})
    assert assigned(runtime.beat("a", 1)) == parts(again, 0)
    runtime.advance(6_000)
    assert set(runtime.start_offsets()) == parts(again, 0)


# -- initialization ---------------------------------------------------------------------------------------


def test_a_heartbeat_waits_for_the_initialization(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    first = runtime.send_beat("a", 0, "orders")
    second = runtime.send_beat("b", 0, "orders")
    assert first not in runtime.answers
    assert second not in runtime.answers
    assert len(runtime.effects) == 1, "both wait for the same"
    runtime.perform()
    assert [assigned(runtime.answer(ticket)) for ticket in (first, second)] == [ALL_ORDERS, ALL_ORDERS]


def test_a_heartbeat_waits_for_a_second_at_most(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    ticket = runtime.send_beat("a", 0, "orders")
    runtime.advance(999)
    assert ticket not in runtime.answers
    runtime.advance(1)
    response = runtime.answer(ticket)
    assert (response.member_epoch, assigned(response)) == (1, frozenset())
    assert runtime.beat("a", 1).assignment is None, "the next one does not wait again"
    runtime.perform()
    told = runtime.beat("a", 1)
    assert (told.member_epoch, assigned(told)) == (2, ALL_ORDERS)


def test_an_initialization_without_an_answer_is_tried_again(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    runtime.send_beat("a", 0, "orders")
    lost = runtime.effects.pop()
    runtime.advance(29_000)
    runtime.beat("a", 1)
    assert not runtime.effects
    runtime.advance(1_001)
    runtime.send_beat("a", 1)
    assert runtime.effects == [lost]


def test_a_failed_initialization_is_tried_again_by_a_later_heartbeat(runtime: ShareRuntime) -> None:
    runtime.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert assigned(runtime.beat("a", 0, "orders")) == frozenset()
    runtime.error = ErrorCode.NONE
    assert runtime.beat("a", 1).assignment is None, "not at once"
    runtime.advance(1_000)
    assert assigned(runtime.beat("a", 1)) == ALL_ORDERS
    assert set(runtime.start_offsets().values()) == {-1}, "where it should have begun"


def test_what_is_initialized_of_a_topic_is_assigned(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    ticket = runtime.send_beat("a", 0, "payments")
    failed = ErrorCode.COORDINATOR_NOT_AVAILABLE
    runtime.report_initialized("g", 1, {(PAYMENTS, 0): ErrorCode.NONE})
    assert ticket not in runtime.answers, "it still waits for the other"
    runtime.report_initialized("g", 1, {(PAYMENTS, 1): failed})
    assert assigned(runtime.answer(ticket)) == parts(PAYMENTS, 0)
    runtime.effects.clear()
    runtime.advance(1_000)
    ticket = runtime.send_beat("a", 1)
    runtime.perform()
    assert assigned(runtime.answer(ticket)) == parts(PAYMENTS, 0, 1)
    assert runtime.start_offsets() == {(PAYMENTS, 1): -1}, "it is not taken for one that was added"


def test_a_coordinator_that_takes_over_goes_on_with_the_initialization(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    runtime.send_beat("a", 0, "orders")
    runtime.perform(is_reported=False)
    runtime.crash()
    ticket = runtime.send_beat("a", 0, "orders")
    runtime.perform()
    assert assigned(runtime.answer(ticket)) == ALL_ORDERS
    assert set(runtime.start_offsets().values()) == {-1}


def test_epochs_that_the_log_has_lost_are_passed_again(runtime: ShareRuntime) -> None:
    """As after an unclean election: a share coordinator knows a higher one."""
    runtime.states["g", (PAYMENTS, 0)] = (9, 50)
    assert assigned(runtime.beat("a", 0, "payments")) == parts(PAYMENTS, 1)
    assert runtime.states["g", (PAYMENTS, 0)] == (9, 50), "it is not this group that may delete it"
    epoch = runtime.shares().state.members["a"].epoch
    for _ in range(5):
        runtime.advance(1_000)
        epoch = runtime.beat("a", epoch).member_epoch
    assert runtime.shares().state.members["a"].assigned == parts(PAYMENTS, 0, 1)
    assert runtime.states["g", (PAYMENTS, 0)] == (16, -1)


def test_a_late_report_for_a_group_that_is_gone_has_the_state_deleted(runtime: ShareRuntime) -> None:
    runtime.states["g", (ORDERS, 0)] = (1, -1)
    runtime.report_initialized("g", 1, {(ORDERS, 0): ErrorCode.NONE, (ORDERS, 1): ErrorCode.NOT_COORDINATOR})
    assert runtime.states == {}


def test_a_second_heartbeat_of_a_member_that_waits_takes_the_place_of_the_first(
    runtime: ShareRuntime,
) -> None:
    runtime.answers_at_once = False
    first = runtime.send_beat("a", 0, "orders")
    second = runtime.send_beat("a", 0, "orders")
    assert assigned(runtime.answer(first)) == frozenset()
    runtime.perform()
    assert assigned(runtime.answer(second)) == ALL_ORDERS


def test_a_member_that_leaves_while_it_waits_is_answered(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    ticket = runtime.send_beat("a", 0, "orders")
    assert runtime.beat("a", -1).error_code == ErrorCode.NONE
    assert runtime.answer(ticket).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    runtime.perform()
    assert runtime.shares().state.topics[ORDERS].initialized == frozenset(range(4))


# -- the pace of assignments ------------------------------------------------------------------------------


def test_assignments_are_as_far_apart_as_the_group_wants(runtime: ShareRuntime) -> None:
    overrides = {"share.assignment.interval.ms": "1000", "share.heartbeat.interval.ms": "300"}
    runtime.settings["g"] = GroupSettings.resolve(runtime.config, overrides)
    first = runtime.beat("a", 0, "orders")
    assert (assigned(first), first.heartbeat_interval_ms) == (ALL_ORDERS, 300)
    assert assigned(runtime.beat("b", 0, "orders")) == frozenset(), "too soon for another"
    runtime.advance(1_000)
    assert assigned(runtime.beat("b", 1)) == ALL_ORDERS
    runtime.beat("a", -1)
    runtime.beat("b", -1)
    assert assigned(runtime.beat("c", 0, "orders")) == ALL_ORDERS, "an empty group does not wait"


# -- leaving and timeouts ---------------------------------------------------------------------------------


def test_leaving_gives_the_partitions_to_the_others(runtime: ShareRuntime) -> None:
    for name in "abc":
        runtime.beat(name, 0, "orders")
    left = runtime.beat("a", -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "a", -1)
    told = runtime.beat("c", 3)
    assert (told.member_epoch, assigned(told)) == (4, ALL_ORDERS)


def test_the_last_member_leaves_an_empty_group(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    runtime.beat("a", -1)
    group = runtime.shares()
    assert group.state_name == "Empty"
    assert (group.state.epoch, group.state.assignment_epoch, group.state.assigned_at_ms) == (2, 2, 0)
    assert group.state.topics[ORDERS].initialized == frozenset(range(4)), "how far it came is kept"
    runtime.advance(8 * 86_400_000)  # offsets of a consumer group are kept for a week
    assert "g" in runtime.shard.groups, "for as long as nobody deletes it"


def test_a_silent_member_is_dropped(runtime: ShareRuntime) -> None:
    for name in "abc":
        runtime.beat(name, 0, "orders")
    runtime.advance(SESSION_MS - 1)
    runtime.beat("b", 2)
    runtime.beat("c", 3)
    runtime.advance(1)
    assert set(runtime.shares().state.members) == {"b", "c"}
    assert assigned(runtime.beat("c", 3)) == ALL_ORDERS
    assert runtime.beat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_reload_costs_no_member_its_session(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders")
    runtime.advance(SESSION_MS - 1)
    runtime.crash()
    runtime.advance(SESSION_MS - 1)
    response = runtime.beat("a", 1)
    assert (response.error_code, response.member_epoch, response.assignment) == (0, 1, None)


# -- other kinds of groups --------------------------------------------------------------------------------


def test_a_group_of_another_kind_is_not_found(runtime: ShareRuntime) -> None:
    runtime.join(group_id="g")
    assert runtime.beat("a", 0, "orders").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert runtime.beat("a", 5).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert runtime.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [0, 7])
def test_a_share_group_is_no_group_of_consumers(runtime: ShareRuntime, epoch: int) -> None:
    runtime.beat("a", 0, "orders")
    runtime.beat("a", -1)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="c",
        member_epoch=epoch,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    response = runtime.ask("consumer_group_heartbeat", request, 1)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("member_id", ["", "m"])
def test_a_share_group_is_no_classic_group(runtime: ShareRuntime, member_id: str) -> None:
    runtime.beat("a", 0, "orders")
    response = runtime.answers[runtime.join(member_id)]
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert runtime.shares().state_name == "Stable"


def test_a_share_group_is_listed_and_described(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "orders", rack_id="r1")
    (listed,) = runtime.shard.list_groups(ListGroupsRequest(types_filter=["Share"]))
    assert (listed.group_id, listed.group_type, listed.protocol_type) == ("g", "share", "share")
    assert listed.group_state == "Stable"
    assert not runtime.shard.list_groups(ListGroupsRequest(types_filter=["consumer"]))
    assert not runtime.shard.list_groups(ListGroupsRequest(states_filter=["Empty"]))
    described = runtime.describe()
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    assert (described.group_epoch, described.assignment_epoch) == (1, 1)
    (member,) = described.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("a", "r1", 1)
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_id, topic.topic_name, topic.partitions) == (ORDERS, "orders", [0, 1, 2, 3])
    missing = runtime.describe("missing")
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert missing.error_message == "Group missing not found."
