"""Offsets of groups: who may commit, what is found, transactions, expiry, deletion."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.core.groups.shard import TopicInfo
from forebay.errors import ErrorCode
from forebay.wire.messages.delete_groups import DeleteGroupsRequest
from forebay.wire.messages.list_groups import ListGroupsRequest
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from forebay.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from forebay.wire.state.consumer_protocol import ConsumerProtocolSubscription
from forebay.wire.state.versioned import pack
from support.machines.group_runtime import TOPICS, Runtime

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
LONG_SESSION_MS = 1_800_000


def group_ids(runtime: Runtime, **filters: Any) -> list[str]:
    return [group.group_id for group in runtime.shard.list_groups(ListGroupsRequest(**filters))]


def delete(runtime: Runtime, *names: str) -> dict[str, int]:
    results = runtime.ask("delete_groups", DeleteGroupsRequest(groups_names=list(names)), 2).results
    return {result.group_id: result.error_code for result in results}


def offset_delete(runtime: Runtime, topic: str, partition: int, group_id: str = "g") -> int:
    partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
    request = OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    )
    response = runtime.ask("offset_delete", request, 0)
    code: int = response.error_code or response.topics[0].partitions[0].error_code
    return code


# -- committing ---------------------------------------------------------------------------------------


def test_a_program_outside_of_any_group_stores_its_offsets() -> None:
    runtime = Runtime()
    assert runtime.commit(42, metadata="half way") == ErrorCode.NONE
    assert runtime.fetch() == (42, 0)
    runtime.crash()
    assert runtime.fetch() == (42, 0)
    assert runtime.fetch(partition=1) == (-1, 0)
    (listed,) = runtime.shard.list_groups(ListGroupsRequest())
    assert (listed.group_state, listed.group_type, listed.protocol_type) == ("Empty", "classic", "")


def test_members_commit_in_their_generation_only() -> None:
    runtime = Runtime()
    generation, (a,) = runtime.stabilize()
    assert runtime.commit(1, member_id=a, generation=generation) == ErrorCode.NONE
    assert runtime.commit(2, member_id=a, generation=generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert runtime.commit(2, member_id=a) == ErrorCode.ILLEGAL_GENERATION
    assert runtime.commit(2, member_id="stranger", generation=generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runtime.commit(2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runtime.fetch() == (1, 0)


def test_commits_during_a_rebalance() -> None:
    runtime = Runtime()
    generation, (a,) = runtime.stabilize()
    runtime.enter()
    assert runtime.commit(5, member_id=a, generation=generation) == ErrorCode.NONE
    runtime.join(a)
    code = runtime.commit(6, member_id=a, generation=generation + 1)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
    assert runtime.txn_commit(6, member_id=a, generation=generation + 1) == ErrorCode.NONE


def test_a_fenced_instance_commits_nothing() -> None:
    runtime = Runtime()
    old = runtime.answers[runtime.join(instance_id="one")].member_id
    runtime.sync_all([old], 1)
    runtime.join(instance_id="one")
    code = runtime.commit(1, member_id=old, generation=1, instance_id="one")
    assert code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(("version", "code"), [(8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND")])
def test_a_member_of_a_group_that_is_gone(version: int, code: str) -> None:
    runtime = Runtime()
    assert runtime.commit(1, member_id="a", generation=3, version=version) == ErrorCode[code]
    assert runtime.txn_commit(1, member_id="a", generation=3) == ErrorCode.ILLEGAL_GENERATION


def test_what_cannot_be_stored_is_refused() -> None:
    runtime = Runtime(offset_metadata_max_bytes=8)
    assert runtime.commit(1, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert runtime.commit(1, partition=4) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert runtime.commit(1, partition=-1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert runtime.commit(1, metadata="x" * 8) == ErrorCode.NONE
    assert runtime.commit(2, metadata="é" * 5) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert runtime.fetch() == (1, 0)


def test_offsets_that_are_too_large_for_one_batch_are_refused_together() -> None:
    """Each record repeats the group's name: a small request must not become a batch that nobody can carry."""
    runtime = Runtime()
    group_id = "g" * 30_000
    first = OffsetCommitRequestPartition(partition_index=1, committed_offset=1)
    other = OffsetCommitRequestPartition(partition_index=99, committed_offset=1)
    many = [OffsetCommitRequestPartition(partition_index=0, committed_offset=n) for n in range(300)]

    def codes(partitions: list[OffsetCommitRequestPartition]) -> set[int]:
        topic = OffsetCommitRequestTopic(name="orders", partitions=partitions)
        answer = runtime.ask("offset_commit", OffsetCommitRequest(group_id=group_id, topics=[topic]), 8)
        return {each.error_code for each in answer.topics[0].partitions}

    refused = {ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes([first, other, *many]) == refused
    assert runtime.fetch(group_id=group_id, partition=1) == (-1, 0)
    assert codes([first, *many[:200]]) == {ErrorCode.NONE}
    assert runtime.fetch(group_id=group_id) == (199, 0)


def test_offsets_of_a_transaction_that_are_too_large_are_refused_together() -> None:
    runtime = Runtime()
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=n) for n in range(300)]
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g" * 30_000,
        producer_id=7,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=partitions)],
    )
    (topic,) = runtime.ask("txn_offset_commit", request, 3).topics
    assert {each.error_code for each in topic.partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    runtime.end_transaction(commit=True)
    assert runtime.fetch(group_id=request.group_id) == (-1, 0)


@pytest.mark.parametrize("offset", [-1, -2, -5, -(2**63), 2**63 - 1])
def test_any_offset_is_stored_as_it_is(offset: int) -> None:
    runtime = Runtime()
    assert runtime.commit(7) == ErrorCode.NONE
    assert runtime.commit(offset) == ErrorCode.NONE
    assert runtime.fetch() == (offset, 0)
    assert runtime.txn_commit(offset, partition=1) == ErrorCode.NONE


def test_one_bad_partition_does_not_spoil_the_others() -> None:
    runtime = Runtime()
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index + 10)
        for index in (0, 9, 1)
    ]
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    )
    topic = runtime.ask("offset_commit", request, 8).topics[0]
    assert [partition.error_code for partition in topic.partitions] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0,
    ]
    assert (runtime.fetch(partition=0), runtime.fetch(partition=1)) == ((10, 0), (11, 0))
    assert len(runtime.log) == 1


def test_topics_by_id() -> None:
    runtime = Runtime()
    known, unknown = TOPICS["payments"].topic_id, b"?" * 16
    part = OffsetCommitRequestPartition(partition_index=1, committed_offset=8)
    request = OffsetCommitRequest(
        group_id="g",
        topics=[OffsetCommitRequestTopic(topic_id=each, partitions=[part]) for each in (known, unknown)],
    )
    first, second = runtime.ask("offset_commit", request, 10).topics
    assert (first.topic_id, first.partitions[0].error_code) == (known, 0)
    assert (second.topic_id, second.partitions[0].error_code) == (unknown, ErrorCode.UNKNOWN_TOPIC_ID)
    assert runtime.fetch("payments", 1) == (8, 0)

    wanted = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[1]) for each in (known, unknown)]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
    first, second = runtime.ask("offset_fetch", asked, 10).groups[0].topics
    assert (first.topic_id, first.partitions[0].committed_offset) == (known, 8)
    assert second.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert [topic.topic_id for topic in runtime.ask("offset_fetch", everything, 10).groups[0].topics] == [
        known
    ]


# -- partitions that were folded and are gone ---------------------------------------------------------

FOLDED = {**TOPICS, "orders": TOPICS["orders"]._replace(partitions=2, named_end=4)}
"""Two of its four partitions are gone."""


def test_offsets_for_partitions_that_are_gone_are_accepted_and_not_kept() -> None:
    """Kafka's Java client repeats a refused commit for minutes before it joins its group again."""
    runtime = Runtime()
    runtime.see_topics(FOLDED)
    assert (runtime.commit(7, partition=2), runtime.commit(8, partition=1)) == (0, 0)
    assert (runtime.txn_commit(7, partition=3), runtime.txn_commit(9, partition=0)) == (0, 0)
    runtime.end_transaction(commit=True)
    assert [runtime.fetch(partition=index) for index in range(4)] == [(9, 0), (8, 0), (-1, 0), (-1, 0)]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (runtime.commit(7, partition=4), runtime.txn_commit(7, partition=4)) == (unknown, unknown)
    assert runtime.commit(7, partition=-1) == unknown
    code = runtime.commit(7, partition=2, member_id="stranger", generation=3)
    assert code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_offsets_of_partitions_go_with_them() -> None:
    runtime = Runtime()
    generation, (a,) = runtime.stabilize()
    for index in range(4):
        runtime.commit(index + 1, member_id=a, generation=generation, partition=index)
    runtime.commit(5, group_id="other", partition=3)
    runtime.txn_commit(6, group_id="other", partition=3)
    runtime.see_topics(FOLDED)
    runtime.advance(0)
    found = [runtime.fetch(partition=index, stable=True)[0] for index in range(4)]
    assert found == [1, 2, -1, -1]
    assert runtime.fetch(group_id="other", partition=3, stable=True) == (-1, 0)
    runtime.end_transaction(commit=True)
    assert group_ids(runtime) == ["g"]
    runtime.crash()
    assert [runtime.fetch(partition=index)[0] for index in range(4)] == [1, 2, -1, -1]


def test_offsets_of_partitions_that_this_coordinator_has_not_heard_of_stay() -> None:
    """The coordinator before may have known more: a topic that grows has no folded partitions."""
    runtime = Runtime()
    runtime.commit(1, partition=3)
    runtime.see_topics({**TOPICS, "orders": TOPICS["orders"]._replace(partitions=2)})
    runtime.advance(DAY_MS)
    runtime.see_topics(TOPICS)
    assert runtime.fetch(partition=3) == (1, 0)


# -- fetching -----------------------------------------------------------------------------------------


def test_several_groups_at_once_and_all_topics() -> None:
    runtime = Runtime()
    runtime.commit(1, group_id="a")
    runtime.commit(2, group_id="a", topic="payments", partition=1)
    runtime.commit(3, group_id="b")
    asked = [
        OffsetFetchRequestGroup(group_id="a", topics=None),
        OffsetFetchRequestGroup(
            group_id="b", topics=[OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])]
        ),
        OffsetFetchRequestGroup(group_id="c", topics=None),
    ]
    a, b, c = runtime.ask("offset_fetch", OffsetFetchRequest(groups=asked), 8).groups
    assert {
        (topic.name, part.partition_index, part.committed_offset)
        for topic in a.topics
        for part in topic.partitions
    } == {("orders", 0, 1), ("payments", 1, 2)}
    assert [part.committed_offset for part in b.topics[0].partitions] == [3, -1]
    assert (c.error_code, c.topics) == (0, [])


@pytest.mark.parametrize("version", range(1, 8))
def test_the_versions_for_one_group(version: int) -> None:
    runtime = Runtime()
    runtime.commit(5, metadata="note")
    topic = OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    response = runtime.ask("offset_fetch", OffsetFetchRequest(group_id="g", topics=[topic]), version)
    (found,) = response.topics[0].partitions
    assert (found.committed_offset, found.metadata, response.error_code) == (5, "note", 0)
    if version >= 2:
        response = runtime.ask("offset_fetch", OffsetFetchRequest(group_id="g", topics=None), version)
        assert [each.name for each in response.topics] == ["orders"]


# -- transactions -------------------------------------------------------------------------------------


def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    runtime = Runtime()
    runtime.commit(1)
    assert runtime.txn_commit(9) == ErrorCode.NONE
    assert runtime.fetch() == (1, 0)
    assert runtime.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert runtime.fetch(partition=1, stable=True) == (-1, 0)
    runtime.crash()
    assert runtime.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    runtime.end_transaction(commit=True)
    assert runtime.fetch(stable=True) == (9, 0)
    runtime.crash()
    assert runtime.fetch(stable=True) == (9, 0)


def test_offsets_of_a_transaction_vanish_when_it_aborts() -> None:
    runtime = Runtime()
    runtime.txn_commit(9)
    assert group_ids(runtime) == ["g"]
    runtime.end_transaction(commit=False)
    assert runtime.fetch(stable=True) == (-1, 0)
    assert group_ids(runtime) == []


def test_the_later_of_a_plain_and_a_transactional_commit_wins() -> None:
    runtime = Runtime()
    runtime.txn_commit(9)
    runtime.commit(3)
    runtime.end_transaction(commit=True)
    assert runtime.fetch() == (3, 0)
    runtime.txn_commit(10)
    runtime.end_transaction(commit=True)
    assert runtime.fetch() == (10, 0)


def test_transactions_of_two_producers_end_each_for_itself() -> None:
    runtime = Runtime()
    runtime.txn_commit(1, producer_id=1, partition=0)
    runtime.txn_commit(2, producer_id=2, partition=1)
    runtime.end_transaction(commit=True, producer_id=1)
    assert runtime.fetch(partition=0, stable=True) == (1, 0)
    assert runtime.fetch(partition=1, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    runtime.end_transaction(commit=False, producer_id=2)
    runtime.end_transaction(commit=True, producer_id=3)
    assert runtime.fetch(partition=1, stable=True) == (-1, 0)


def test_a_transaction_is_written_as_its_producers() -> None:
    runtime = Runtime()
    runtime.txn_commit(1, producer_id=77)
    ((producer_id, _),) = [entry for entry in runtime.log if isinstance(entry, tuple) and len(entry) == 2]
    assert producer_id == 77
    assert runtime.txn_commit(1, producer_id=-1) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert runtime.txn_commit(1, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(runtime.log) == 1


def test_an_old_transactional_client_names_no_member() -> None:
    runtime = Runtime()
    runtime.stabilize()
    assert runtime.txn_commit(4, version=2) == ErrorCode.NONE


# -- deleting -----------------------------------------------------------------------------------------


def test_a_group_with_members_is_not_deleted() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    runtime.commit(1, group_id="other")
    assert delete(runtime, "g", "other", "nobody", "other") == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "other": ErrorCode.NONE,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert group_ids(runtime) == ["g"]
    runtime.leave((a, None))
    assert delete(runtime, "g") == {"g": ErrorCode.NONE}
    assert group_ids(runtime) == []
    runtime.crash()
    assert group_ids(runtime) == []


def test_deleting_a_group_also_deletes_what_a_transaction_holds() -> None:
    runtime = Runtime()
    runtime.commit(1)
    runtime.txn_commit(2, partition=1)
    assert delete(runtime, "g") == {"g": ErrorCode.NONE}
    runtime.end_transaction(commit=True)
    assert group_ids(runtime) == []


def test_offsets_are_deleted_unless_somebody_consumes_the_topic() -> None:
    runtime = Runtime()
    assert offset_delete(runtime, "orders", 0) == ErrorCode.GROUP_ID_NOT_FOUND
    assert offset_delete(runtime, "orders", 0, group_id="") == ErrorCode.INVALID_GROUP_ID
    generation, (a,) = runtime.stabilize()
    runtime.commit(1, member_id=a, generation=generation)
    runtime.commit(2, member_id=a, generation=generation, topic="payments")
    assert offset_delete(runtime, "orders", 0) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert offset_delete(runtime, "payments", 0) == ErrorCode.NONE
    assert offset_delete(runtime, "payments", 1) == ErrorCode.NONE
    assert offset_delete(runtime, "nowhere", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (runtime.fetch(), runtime.fetch("payments")) == ((1, 0), (-1, 0))


@pytest.mark.parametrize("version", [1, 2, 3, 9])
def test_a_member_that_claims_a_version_without_its_fields_subscribes_to_what_it_names(version: int) -> None:
    runtime = Runtime()
    claimed = version.to_bytes(2, "big") + pack(ConsumerProtocolSubscription(topics=["orders"]), 0)[2:]
    generation, (a,) = runtime.stabilize(protocols=[("range", claimed)])
    runtime.commit(1, member_id=a, generation=generation)
    runtime.commit(2, member_id=a, generation=generation, topic="payments")
    assert offset_delete(runtime, "orders", 0) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert offset_delete(runtime, "payments", 0) == ErrorCode.NONE


def test_offsets_of_a_group_with_an_unknown_protocol_are_left_alone() -> None:
    runtime = Runtime()
    runtime.stabilize(protocol_type="consumer", protocols=[("range", b"gibberish")])
    assert offset_delete(runtime, "orders", 0) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    connect: dict[str, Any] = {"group_id": "c", "protocol_type": "connect"}
    runtime.enter(**connect)
    assert offset_delete(runtime, "orders", 0, group_id="c") == ErrorCode.NON_EMPTY_GROUP


# -- expiry -------------------------------------------------------------------------------------------


def test_offsets_of_a_simple_group_expire_by_their_own_age() -> None:
    runtime = Runtime()
    runtime.commit(1, partition=0)
    runtime.advance(DAY_MS)
    runtime.commit(2, partition=1)
    runtime.advance(WEEK_MS - DAY_MS + 600_000)
    assert (runtime.fetch(partition=0)[0], runtime.fetch(partition=1)[0]) == (-1, 2)
    runtime.advance(DAY_MS)
    assert group_ids(runtime) == []


def test_what_a_spark_sink_records_neither_expires_nor_is_deleted_as_a_group() -> None:
    """Without it a write that is repeated would be there twice."""
    runtime = Runtime()
    runtime.commit(3, group_id="spark-sink-job")
    runtime.commit(3, group_id="spark-sinks")
    runtime.advance(3 * WEEK_MS)
    runtime.crash()
    runtime.advance(3 * WEEK_MS)
    assert runtime.fetch(group_id="spark-sink-job")[0] == 3
    groups = runtime.shard.list_groups(ListGroupsRequest())
    assert [(each.group_id, each.protocol_type) for each in groups] == [("spark-sink-job", "spark-sink")]
    assert delete(runtime, "spark-sink-job") == {"spark-sink-job": ErrorCode.POLICY_VIOLATION}
    assert runtime.fetch(group_id="spark-sink-job")[0] == 3
    assert offset_delete(runtime, "orders", 0, group_id="spark-sink-job") == ErrorCode.NONE
    assert group_ids(runtime) == []


def test_offsets_do_not_expire_by_a_step_of_the_clock_that_is_not_believed() -> None:
    runtime = Runtime()
    runtime.commit(1)
    runtime.wall_ahead_ms += 2 * WEEK_MS
    runtime.doubted_ms = 2 * WEEK_MS
    runtime.advance(WEEK_MS - DAY_MS)
    assert runtime.fetch() == (1, 0)
    runtime.advance(2 * DAY_MS)
    assert runtime.fetch() == (-1, 0)


def test_offsets_of_a_group_expire_when_it_has_been_empty_for_long() -> None:
    runtime = Runtime()
    generation, (a,) = runtime.stabilize(session_ms=LONG_SESSION_MS)
    runtime.commit(1, member_id=a, generation=generation)
    runtime.commit(2, member_id=a, generation=generation, topic="payments")
    for _ in range(2 * WEEK_MS // 1_000_000):
        runtime.advance(1_000_000)
        assert runtime.heartbeat(a, generation) == ErrorCode.NONE
    assert (runtime.fetch(), runtime.fetch("payments")) == ((1, 0), (-1, 0)), "subscribed topics are kept"
    runtime.leave((a, None))
    runtime.advance(WEEK_MS - 1_000_000)
    assert runtime.fetch() == (1, 0)
    runtime.advance(2_000_000)
    assert group_ids(runtime) == []


def test_an_old_client_chooses_when_its_offset_expires() -> None:
    runtime = Runtime()
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request = OffsetCommitRequest(
        group_id="g",
        retention_time_ms=3_600_000,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[part])],
    )
    runtime.ask("offset_commit", request, 4)
    runtime.crash()
    runtime.advance(3_000_000)
    assert runtime.fetch() == (7, 0)
    runtime.advance(1_200_000)
    assert runtime.fetch() == (-1, 0)


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 1_700_000_000_000])
def test_an_old_client_keeps_its_offset_for_as_long_as_can_be_said(retention_ms: int) -> None:
    runtime = Runtime()
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request = OffsetCommitRequest(
        group_id="g",
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[part])],
    )
    (topic,) = runtime.ask("offset_commit", request, 4).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE
    runtime.crash()
    runtime.advance(5 * WEEK_MS)
    assert runtime.fetch() == (7, 0)


def test_what_a_transaction_holds_does_not_expire() -> None:
    runtime = Runtime()
    runtime.commit(1)
    runtime.txn_commit(2)
    runtime.advance(2 * WEEK_MS)
    assert runtime.fetch() == (1, 0)
    runtime.end_transaction(commit=False)
    runtime.advance(600_000)
    assert group_ids(runtime) == []


def test_an_empty_group_without_offsets_is_forgotten() -> None:
    runtime = Runtime()
    _, (a,) = runtime.stabilize()
    runtime.leave((a, None))
    assert group_ids(runtime) == ["g"]
    runtime.advance(600_000)
    assert group_ids(runtime) == []


def test_the_offsets_of_a_deleted_topic_go_with_it_and_not_those_of_its_successor() -> None:
    runtime = Runtime()
    for group_id in ("a", "b"):
        runtime.commit(1, group_id=group_id)
        runtime.commit(2, group_id=group_id, topic="payments")
    runtime.txn_commit(3, group_id="b", partition=2)
    runtime.see_topics({**TOPICS, "orders": TopicInfo(b"n" * 16, 4)})
    runtime.commit(100, group_id="b", partition=1)
    runtime.advance(0)
    assert runtime.shard.expiration.deleted == {}
    assert runtime.fetch(group_id="a") == runtime.fetch(group_id="b") == (-1, 0)
    assert runtime.fetch(group_id="b", partition=2, stable=True) == (-1, 0)
    assert runtime.fetch(group_id="b", partition=1) == (100, 0)
    assert runtime.fetch("payments", group_id="a") == (2, 0)


def test_the_offsets_of_a_topic_that_is_missing_and_was_not_deleted_are_kept() -> None:
    runtime = Runtime()
    runtime.commit(7)
    runtime.see_topics({"payments": TOPICS["payments"]}, are_deleted=False)
    runtime.advance(0)
    runtime.see_topics(TOPICS)
    runtime.advance(0)
    assert runtime.fetch() == (7, 0)


def test_the_offsets_of_a_missing_topic_are_not_those_of_another_with_its_name() -> None:
    runtime = Runtime()
    runtime.commit(7)
    runtime.see_topics({"payments": TOPICS["payments"]}, are_deleted=False)
    runtime.see_topics({**TOPICS, "orders": TopicInfo(b"n" * 16, 4)})
    runtime.advance(0)
    assert runtime.fetch() == (-1, 0)


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_that_was_deleted_while_nobody_coordinated_leaves_no_offsets_to_its_successor(
    is_made_anew: bool,
) -> None:
    """The disk was full, say: a topic was deleted to make room, and its offsets could not be."""
    runtime = Runtime()
    runtime.commit(7)
    runtime.commit(8, topic="payments")
    successor = {**TOPICS, "orders": TopicInfo(b"n" * 16, 4)}
    runtime.deleted = {TOPICS["orders"].topic_id}
    runtime.topics = successor if is_made_anew else {"payments": TOPICS["payments"]}
    runtime.crash()
    runtime.see_topics(successor)
    assert runtime.fetch() == (-1, 0)
    assert runtime.fetch("payments") == (8, 0)
    runtime.commit(1, partition=1)
    runtime.advance(600_000)
    assert runtime.shard.offsets.get("g", "orders", 0) is None
    assert runtime.fetch(partition=1) == (1, 0)
    assert runtime.fetch("payments") == (8, 0)


def test_a_topic_that_was_missing_while_nobody_coordinated_has_its_offsets_when_it_is_back() -> None:
    runtime = Runtime()
    runtime.commit(7)
    runtime.topics = {"payments": TOPICS["payments"]}
    runtime.crash()
    runtime.advance(600_000)
    runtime.see_topics(TOPICS)
    assert runtime.fetch() == (7, 0)


def test_a_sweep_of_many_groups_comes_in_small_steps() -> None:
    runtime = Runtime()
    runtime.check = lambda: None  # type: ignore[method-assign]
    for number in range(350):
        runtime.commit(number, group_id=f"g{number}")
    before = len(runtime.log)
    runtime.see_topics({"payments": TOPICS["payments"]})
    runtime.advance(0)
    steps = [entry[1] for entry in runtime.log[before:] if isinstance(entry, tuple) and len(entry) == 2]
    assert [len(records) for records in steps] == [100, 100, 100, 50]
    assert runtime.shard.groups == {}
