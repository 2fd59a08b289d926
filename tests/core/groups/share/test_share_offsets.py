"""What administrators ask of share groups: offsets shown, set and deleted; groups deleted."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.core.groups.share.effects import DeleteShares, ShareSummary, SummarizeShares
from forebay.errors import ErrorCode
from forebay.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from forebay.wire.messages.delete_groups import DeleteGroupsRequest
from forebay.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from support.machines.share_runtime import ORDERS, PAYMENTS, ShareRuntime, assigned, parts

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def runtime() -> ShareRuntime:
    """With an empty group that has been through all of payments."""
    runtime = ShareRuntime()
    runtime.beat("a", 0, "payments")
    runtime.beat("a", -1)
    return runtime


def alteration(group_id: str = "g", **topics: dict[int, int]) -> AlterShareGroupOffsetsRequest:
    return AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )


def alter(runtime: ShareRuntime, group_id: str = "g", **topics: dict[int, int]) -> Any:
    return runtime.ask("alter_share_group_offsets", alteration(group_id, **topics), 0)


def deletion(*topics: str, group_id: str = "g") -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    )


def forget(runtime: ShareRuntime, *topics: str, group_id: str = "g") -> Any:
    return runtime.ask("delete_share_group_offsets", deletion(*topics, group_id=group_id), 0)


def description(topics: dict[str, list[int]] | None, *group_ids: str) -> DescribeShareGroupOffsetsRequest:
    asked = (
        None
        if topics is None
        else [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=found)
            for name, found in topics.items()
        ]
    )
    return DescribeShareGroupOffsetsRequest(
        groups=[
            DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=asked)
            for group_id in group_ids or ("g",)
        ]
    )


def offsets(runtime: ShareRuntime, topics: dict[str, list[int]] | None = None, *group_ids: str) -> Any:
    response = runtime.ask("describe_share_group_offsets", description(topics, *group_ids), 1)
    return [
        {
            topic.topic_name: {
                each.partition_index: (each.start_offset, each.lag, each.error_code)
                for each in topic.partitions
            }
            for topic in group.topics
        }
        for group in response.groups
    ]


def remove(runtime: ShareRuntime, *group_ids: str) -> dict[str, int]:
    response = runtime.ask("delete_groups", DeleteGroupsRequest(groups_names=list(group_ids)), 2)
    return {result.group_id: result.error_code for result in response.results}


# -- describing -------------------------------------------------------------------------------------------


def test_offsets_of_all_topics_that_the_group_has(runtime: ShareRuntime) -> None:
    alter(runtime, payments={0: 10})
    (group,) = offsets(runtime)
    assert group == {"payments": {0: (10, 88, 0), 1: (-1, -1, 0)}}


def test_what_the_group_has_not_begun_with_starts_nowhere_and_is_no_error(runtime: ShareRuntime) -> None:
    (group,) = offsets(runtime, {"orders": [0], "payments": [0, 9], "missing": [3]})
    nothing = (-1, -1, 0)
    assert group == {"orders": {0: nothing}, "payments": {0: nothing, 9: nothing}, "missing": {3: nothing}}


def test_groups_that_are_not_there_have_no_offsets(runtime: ShareRuntime) -> None:
    assert offsets(runtime, None, "g", "other") == [{"payments": {0: (-1, -1, 0), 1: (-1, -1, 0)}}, {}]


def test_an_error_of_a_share_coordinator_is_shown_for_its_partitions(runtime: ShareRuntime) -> None:
    runtime.error = UNAVAILABLE
    (group,) = offsets(runtime, {"payments": [1], "orders": [1]})
    assert group == {"payments": {1: (-1, -1, UNAVAILABLE)}, "orders": {1: (-1, -1, 0)}}


def test_a_partition_that_never_had_a_record_has_no_start(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    ticket = runtime.send("describe_share_group_offsets", description(None), 1)
    summaries = {(PAYMENTS, 0): ShareSummary(0, 1, 0, 0), (PAYMENTS, 1): ShareSummary(0, 1, 0, 1)}
    runtime.carry_out(runtime.shard.share_partitions_summarized(ticket, "g", summaries, runtime.now))
    (topic,) = runtime.answers[ticket].groups[0].topics
    assert [(each.start_offset, each.lag) for each in topic.partitions] == [(-1, -1), (0, 1)]


def test_summaries_may_come_one_by_one_and_too_late(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    ticket = runtime.send("describe_share_group_offsets", description(None), 1)
    (effect,) = runtime.effects
    for partition in effect.partitions:  # type: ignore[attr-defined]
        assert ticket not in runtime.answers
        step = runtime.shard.share_partitions_summarized(
            ticket, "g", {partition: ShareSummary(5, 1, 0, 9)}, runtime.now
        )
        runtime.carry_out(step)
    (topic,) = runtime.answers[ticket].groups[0].topics
    assert [(each.start_offset, each.leader_epoch, each.lag) for each in topic.partitions] == [(5, 1, 4)] * 2
    runtime.perform()
    late = runtime.shard.share_partitions_summarized(99, "g", {}, runtime.now)
    assert (late.records, late.replies) == ([], [])


@pytest.mark.parametrize(
    ("summary", "lag"),
    [
        (ShareSummary(10, 1, 3, 20), 7),
        (ShareSummary(-1, 1, 3, 20), -1),
        (ShareSummary(10, 1, -1, 20), -1),
        (ShareSummary(10, 1, 0, -1), -1),
        (ShareSummary(10, 1, 12, 20), 0),
        (ShareSummary(0, 1, 0, 0), -1),
    ],
)
def test_lag(summary: ShareSummary, lag: int) -> None:
    assert summary.lag == lag


# -- altering ---------------------------------------------------------------------------------------------


def test_a_group_begins_where_it_is_told_to(runtime: ShareRuntime) -> None:
    response = alter(runtime, payments={0: 7, 1: 8}, orders={3: 9})
    assert response.error_code == 0
    assert [topic.topic_id for topic in response.responses] == [PAYMENTS, ORDERS]
    assert [each.error_code for topic in response.responses for each in topic.partitions] == [0, 0, 0]
    assert runtime.start_offsets() == {(PAYMENTS, 0): 7, (PAYMENTS, 1): 8, (ORDERS, 3): 9}
    assert runtime.states["g", (ORDERS, 3)][0] == 3, "in the epoch that was raised for it"
    assert assigned(runtime.beat("a", 0, "payments")) == parts(PAYMENTS, 0, 1)
    assert assigned(runtime.beat("a", 4, "orders")) == parts(ORDERS, 0, 1, 2, 3)
    assert runtime.start_offsets()[ORDERS, 3] == 9
    assert runtime.start_offsets()[ORDERS, 0] == 0, "the others were added to a topic that it has"


def test_a_group_that_is_not_there_is_made(runtime: ShareRuntime) -> None:
    assert alter(runtime, "new", orders={0: 5}).error_code == 0
    assert runtime.shares("new").state_name == "Empty"
    assert runtime.start_offsets("new") == {(ORDERS, 0): 5}


def test_what_cannot_be_altered_is_said_for_each_partition(runtime: ShareRuntime) -> None:
    response = alter(runtime, payments={0: 7, 2: 8, 1: -2}, missing={0: 1})
    codes = {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in response.responses
        for each in topic.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {
        ("payments", 0): 0,
        ("payments", 2): unknown,
        ("payments", 1): ErrorCode.INVALID_REQUEST,
        ("missing", 0): unknown,
    }


def test_altering_reports_what_share_coordinators_answer(runtime: ShareRuntime) -> None:
    runtime.error = UNAVAILABLE
    response = alter(runtime, payments={0: 7})
    assert [each.error_code for each in response.responses[0].partitions] == [UNAVAILABLE]
    assert runtime.shares().state.topics[PAYMENTS].initialized == {0, 1}, "what was there stays"


@pytest.mark.parametrize("ask", [alter, forget])
def test_groups_whose_offsets_cannot_be_changed(runtime: ShareRuntime, ask: Any) -> None:
    assert ask(runtime, group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    runtime.join(group_id="classic")
    assert ask(runtime, group_id="classic").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    runtime.beat("a", 0, "orders")
    assert ask(runtime).error_code == ErrorCode.NON_EMPTY_GROUP


def test_a_member_that_joins_meanwhile_waits_for_the_alteration(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    admin = runtime.send("alter_share_group_offsets", alteration(orders={0: 5, 1: 5, 2: 5, 3: 5}), 0)
    member = runtime.send_beat("a", 0, "orders")
    assert admin not in runtime.answers
    assert member not in runtime.answers
    runtime.perform()
    assert admin in runtime.answers
    assert assigned(runtime.answer(member)) == parts(ORDERS, 0, 1, 2, 3)
    assert {runtime.start_offsets()[ORDERS, index] for index in range(4)} == {5}


def test_a_member_that_joins_meanwhile_waits_also_for_what_it_could_have_now(runtime: ShareRuntime) -> None:
    """The leader would not notice that the group is told to begin elsewhere."""
    runtime.answers_at_once = False
    runtime.send("alter_share_group_offsets", alteration(payments={0: 5}), 0)
    member = runtime.send_beat("a", 0, "payments")
    assert member not in runtime.answers
    runtime.perform()
    assert assigned(runtime.answer(member)) == parts(PAYMENTS, 0, 1)


def test_what_is_not_altered_within_a_second_is_assigned_later(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    runtime.send("alter_share_group_offsets", alteration(payments={0: 5}), 0)
    member = runtime.send_beat("a", 0, "payments")
    runtime.advance(1_000)
    joined = runtime.answer(member)
    assert assigned(joined) == parts(PAYMENTS, 1)
    assert runtime.beat("a", joined.member_epoch).assignment is None
    runtime.perform()
    assert assigned(runtime.beat("a", joined.member_epoch)) == parts(PAYMENTS, 0, 1)


@pytest.mark.parametrize("error", [UNAVAILABLE, ErrorCode.NONE])
def test_an_alteration_that_failed_or_was_lost_keeps_nobody_waiting(
    runtime: ShareRuntime, error: ErrorCode
) -> None:
    runtime.answers_at_once = False
    runtime.send("alter_share_group_offsets", alteration(payments={0: 5}), 0)
    runtime.error = error
    runtime.perform(is_reported=error != ErrorCode.NONE)
    runtime.advance(30_000)
    assert assigned(runtime.beat("a", 0, "payments")) == parts(PAYMENTS, 0, 1)


def test_the_report_of_an_older_alteration_does_not_end_the_wait_for_a_newer(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    for offset in (5, 6):
        runtime.send("alter_share_group_offsets", alteration(payments={0: offset}), 0)
    member = runtime.send_beat("a", 0, "payments")
    runtime.perform()
    assert member not in runtime.answers
    runtime.perform()
    assert assigned(runtime.answer(member)) == parts(PAYMENTS, 0, 1)
    assert runtime.start_offsets()[PAYMENTS, 0] == 6


# -- states that are lost ---------------------------------------------------------------------------------


def test_a_state_that_is_found_missing_is_made_again(runtime: ShareRuntime) -> None:
    epoch = runtime.beat("a", 0, "payments").member_epoch
    del runtime.states["g", (PAYMENTS, 1)]
    offsets(runtime)
    assert runtime.start_offsets() == {(PAYMENTS, 0): -1, (PAYMENTS, 1): 0}, "rather too much than too little"
    assert runtime.states["g", (PAYMENTS, 1)][0] > epoch
    runtime.beat("a", epoch)
    assert runtime.shares().state.members["a"].assigned == parts(PAYMENTS, 0, 1)


def test_what_was_missing_when_it_was_made_again_already_is_not_made_a_third_time(
    runtime: ShareRuntime,
) -> None:
    del runtime.states["g", (PAYMENTS, 1)]
    runtime.answers_at_once = False
    for _ in range(2):
        runtime.send("describe_share_group_offsets", description(None), 1)
    runtime.perform()  # the first finds out
    runtime.send("describe_share_group_offsets", description(None), 1)
    late = {(PAYMENTS, 1): ShareSummary(is_missing=True)}
    second, again, third = runtime.effects
    runtime.effects = [again]
    runtime.perform()
    made = dict(runtime.states)
    for asked in (second, third):
        assert isinstance(asked, SummarizeShares)
        step = runtime.shard.share_partitions_summarized(asked.ticket, "g", late, runtime.now)
        runtime.carry_out(step)
    assert not runtime.effects
    assert runtime.states == made


def test_a_state_that_is_being_deleted_is_not_missing(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    ticket = runtime.send("describe_share_group_offsets", description(None), 1)
    runtime.send("delete_share_group_offsets", deletion("payments"), 0)
    late = {(PAYMENTS, 0): ShareSummary(is_missing=True)}
    runtime.carry_out(runtime.shard.share_partitions_summarized(ticket, "g", late, runtime.now))
    assert [type(effect) for effect in runtime.effects] == [SummarizeShares, DeleteShares]


# -- forgetting -------------------------------------------------------------------------------------------


def test_offsets_are_deleted_by_topic(runtime: ShareRuntime) -> None:
    response = forget(runtime, "payments", "orders", "missing")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = [(topic.topic_name, topic.topic_id, topic.error_code) for topic in response.responses]
    none = bytes(16)
    assert found == [("payments", PAYMENTS, 0), ("orders", none, unknown), ("missing", none, unknown)]
    assert runtime.states == {}
    assert runtime.shares().state.topics == {}
    assert offsets(runtime) == [{}]


def test_a_group_that_is_not_there_has_nothing_to_forget(runtime: ShareRuntime) -> None:
    assert forget(runtime, "payments", group_id="new").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deletion_that_failed_goes_on_until_it_is_done(runtime: ShareRuntime) -> None:
    runtime.error = UNAVAILABLE
    (topic,) = forget(runtime, "payments").responses
    assert topic.error_code == UNAVAILABLE
    (refused,) = alter(runtime, payments={0: 4}).responses
    assert [each.error_code for each in refused.partitions] == [UNAVAILABLE], "it is being deleted"
    runtime.advance(5_000)
    assert len(runtime.states) == 2
    runtime.error = ErrorCode.NONE
    runtime.advance(1_000)
    assert runtime.states == {}
    assert runtime.shares().state.topics == {}


def test_a_coordinator_that_takes_over_goes_on_with_the_deletion(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    runtime.send("delete_share_group_offsets", deletion("payments"), 0)
    runtime.effects.clear()
    runtime.crash()
    both = ((PAYMENTS, 0), (PAYMENTS, 1))
    assert runtime.effects == [DeleteShares(group_id="g", state_epoch=2, partitions=both)]
    runtime.report_deleted("g", {(PAYMENTS, 0): ErrorCode.NONE})
    runtime.effects.clear()
    runtime.crash()
    assert runtime.effects == [DeleteShares(group_id="g", state_epoch=2, partitions=((PAYMENTS, 1),))]


def test_a_member_that_joins_meanwhile_begins_anew(runtime: ShareRuntime) -> None:
    alter(runtime, payments={0: 7, 1: 7})
    runtime.answers_at_once = False
    admin = runtime.send("delete_share_group_offsets", deletion("payments"), 0)
    member = runtime.send_beat("a", 0, "payments")
    assert member not in runtime.answers
    runtime.perform()
    assert [topic.error_code for topic in runtime.answers[admin].responses] == [0]
    assert member not in runtime.answers, "what was deleted is made again first"
    runtime.perform()
    assert assigned(runtime.answer(member)) == parts(PAYMENTS, 0, 1)
    assert runtime.start_offsets() == {(PAYMENTS, 0): -1, (PAYMENTS, 1): -1}


# -- deleting groups --------------------------------------------------------------------------------------


def test_a_group_is_deleted_after_its_state(runtime: ShareRuntime) -> None:
    runtime.beat("b", 0, "orders", group_id="busy")
    runtime.answers_at_once = False
    ticket = runtime.send("delete_groups", DeleteGroupsRequest(groups_names=["g", "none", "busy"]), 2)
    assert ticket not in runtime.answers
    runtime.perform()
    codes = {result.group_id: result.error_code for result in runtime.answers[ticket].results}
    assert codes == {
        "g": 0,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
        "busy": ErrorCode.NON_EMPTY_GROUP,
    }
    assert "g" not in runtime.shard.groups
    assert runtime.start_offsets() == {}
    runtime.answers_at_once = True
    assert runtime.beat("a", 0, "payments").error_code == 0, "there may be one of that name again"
    assert set(runtime.start_offsets().values()) == {-1}


def test_a_group_without_state_is_deleted_at_once(runtime: ShareRuntime) -> None:
    forget(runtime, "payments")
    runtime.answers_at_once = False
    assert remove(runtime, "g") == {"g": 0}


def test_a_group_with_members_is_not_deleted(runtime: ShareRuntime) -> None:
    runtime.beat("a", 0, "payments")
    assert remove(runtime, "g") == {"g": ErrorCode.NON_EMPTY_GROUP}
    assert len(runtime.states) == 2


def test_a_group_whose_state_cannot_be_deleted_stays(runtime: ShareRuntime) -> None:
    runtime.error = UNAVAILABLE
    assert remove(runtime, "g") == {"g": UNAVAILABLE}
    assert "g" in runtime.shard.groups
    runtime.error = ErrorCode.NONE
    assert remove(runtime, "g") == {"g": 0}


def test_a_member_that_joins_while_its_group_is_deleted_makes_it_anew(runtime: ShareRuntime) -> None:
    """The state is gone, so the answer must not be that the group was not empty."""
    alter(runtime, payments={0: 7, 1: 7})
    runtime.answers_at_once = False
    ticket = runtime.send("delete_groups", DeleteGroupsRequest(groups_names=["g"]), 2)
    member = runtime.send_beat("a", 0, "payments")
    runtime.perform()
    assert [result.error_code for result in runtime.answers[ticket].results] == [ErrorCode.NONE]
    assert member not in runtime.answers, "nothing of the old state is assigned"
    runtime.perform()
    assert assigned(runtime.answer(member)) == parts(PAYMENTS, 0, 1)
    assert set(runtime.start_offsets().values()) == {-1}


def test_two_requests_for_the_same_deletion_are_both_answered(runtime: ShareRuntime) -> None:
    runtime.answers_at_once = False
    tickets = [runtime.send("delete_groups", DeleteGroupsRequest(groups_names=["g"]), 2) for _ in range(2)]
    runtime.perform()
    assert [runtime.answers[ticket].results[0].error_code for ticket in tickets] == [0, 0]
    runtime.perform()


def test_groups_that_are_made_again_have_epochs_that_none_before_had(runtime: ShareRuntime) -> None:
    """Else the leader of a partition would take the state of the new group for that of the old."""
    for _ in range(9):
        runtime.beat("b", 0, "payments", group_id="other")
        runtime.beat("b", -1, group_id="other")
    before = {name: runtime.shares(name).state.epoch for name in ("g", "other")}
    for name in before:
        forget(runtime, "payments", group_id=name)
    assert remove(runtime, "other", "g") == {"other": 0, "g": 0}, "at once, both in one step"
    runtime.crash()
    for name, epoch in before.items():
        assert runtime.beat("a", 0, "payments", group_id=name).member_epoch > epoch
        assert runtime.states[name, (PAYMENTS, 0)][0] > epoch


def test_a_deletion_that_comes_late_leaves_alone_what_was_made_since(runtime: ShareRuntime) -> None:
    """It was on its way for long. Its coordinator has asked again since, or it is the one before."""
    runtime.answers_at_once = False
    runtime.send("delete_share_group_offsets", deletion("payments"), 0)
    (late,) = runtime.effects
    runtime.perform()
    runtime.answers_at_once = True
    runtime.beat("a", 0, "payments")
    made = dict(runtime.states)
    runtime.effects = [late]
    runtime.perform(is_reported=False)
    assert runtime.states == made


# -- committed offsets ------------------------------------------------------------------------------------


def test_a_share_group_has_no_committed_offsets(runtime: ShareRuntime) -> None:
    assert runtime.commit(5) == ErrorCode.GROUP_ID_NOT_FOUND
    asked = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    )
    fetched = runtime.ask("offset_fetch", OffsetFetchRequest(groups=[asked]), 8)
    assert fetched.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
