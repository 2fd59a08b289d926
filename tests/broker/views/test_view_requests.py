"""A view looks like a topic to every request of a reader, and refuses what would change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from forebay.errors import ErrorCode
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from forebay.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from forebay.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from forebay.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.config_calls import describe, increment
from support.clients.view_calls import delete, document, documents, make_view, try_view
from support.clients.wire_client import (
    CREATE_TOPICS,
    EARLIEST,
    LATEST,
    WireClient,
    append,
    create,
    create_topic,
    offset_at,
    read,
    read_all,
    values_of,
)
from support.waiting import Patience

TOPIC, SET = 2, 0
METADATA = 12
COORDINATOR_NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
EVEN = "value.id % 2 = 0"


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def view(client: WireClient, topic: str) -> str:
    """Of the even numbers among 0..9, which are one batch of the topic."""
    create(client, topic)
    append(client, topic, documents(range(10)))
    make_view(client, f"{topic}-view", topic, EVEN)
    return f"{topic}-view"


def metadata(client: WireClient, *topics: MetadataRequestTopic) -> dict[str, Any]:
    answer = client.call(MetadataRequest(topics=list(topics) or None), METADATA)
    return {topic.name or "": topic for topic in answer.topics}


def test_a_view_shows_what_matches_at_the_offsets_of_its_source(client: WireClient, view: str) -> None:
    assert read_all(client, view) == [(at, document(at)) for at in range(0, 10, 2)]
    assert (offset_at(client, view, EARLIEST), offset_at(client, view, LATEST)) == (0, 10)
    assert offset_at(client, view, 1_003) == 4, "the first message with that time that the view shows"


def test_a_view_is_listed_and_described_like_its_source(client: WireClient, topic: str, view: str) -> None:
    known = metadata(client)
    source, shown = known[topic], known[view]
    assert shown.partitions == source.partitions and shown.topic_id not in (source.topic_id, ZERO_UUID)
    by_id = metadata(client, MetadataRequestTopic(name=None, topic_id=shown.topic_id))
    by_name = metadata(client, MetadataRequestTopic(name=view))
    assert by_id == by_name == {view: shown}
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=view)], response_partition_limit=10)
    (described,) = client.call(request, 0).topics
    assert (described.error_code, described.topic_id) == (ErrorCode.NONE, shown.topic_id)
    assert [part.leader_id for part in described.partitions] == [part.leader_id for part in source.partitions]


@pytest.mark.parametrize("software", ["librdkafka", "confluent-kafka-python"])
def test_a_producer_of_any_software_is_told_of_a_view(client: WireClient, view: str, software: str) -> None:
    client.call(ApiVersionsRequest(client_software_name=software, client_software_version="2.0"), 3)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=view)], allow_auto_topic_creation=True)
    (found,) = client.call(request, METADATA).topics
    assert (found.name, found.error_code, len(found.partitions)) == (view, ErrorCode.NONE, 1)


def test_a_view_is_read_by_its_id(client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, documents(range(4)))
    view_id = make_view(client, f"{topic}-view", topic, EVEN)
    assert values_of(read(client, view_id, version=16).records) == [(0, document(0)), (2, document(2))]


def test_the_query_is_among_the_settings_and_cannot_be_altered(
    client: WireClient, topic: str, view: str
) -> None:
    found = {config.name: config for config in describe(client, TOPIC, view).configs}
    assert found["forebay.view.source"].value == topic
    assert found["forebay.view.where"].value == EVEN
    assert all(config.read_only for config in found.values())
    assert "retention.ms" in found, "a view is kept for as long as its source"
    refused = increment(client, TOPIC, view, ("retention.ms", SET, "1000"))
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert describe(client, TOPIC, topic, "forebay.view.source").configs == []


def test_the_end_of_an_epoch_is_that_of_the_source(client: WireClient, topic: str, view: str) -> None:
    def ends(name: str) -> tuple[int, int, int]:
        wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=[wanted])]
        )
        (found,) = client.call(request, 4).topics[0].partitions
        return found.error_code, found.leader_epoch, found.end_offset

    assert ends(view) == ends(topic) == (ErrorCode.NONE, 0, 10)


def test_nobody_produces_to_a_view(client: WireClient, view: str) -> None:
    refused = append(client, view, documents(range(1)))
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert "view" in refused.error_message
    view_id = metadata(client)[view].topic_id
    assert append(client, view_id, documents(range(1)), version=13).error_code == ErrorCode.POLICY_VIOLATION
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=view, partitions=[0])],
    )
    (topic,) = client.call(request, 3).results_by_topic_v3_and_below
    assert topic.results_by_partition[0].partition_error_code == ErrorCode.POLICY_VIOLATION


def test_what_would_change_a_view_is_refused(client: WireClient, view: str) -> None:
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=view, count=3)], timeout_ms=1000)
    assert client.call(more, 3).results[0].error_code == ErrorCode.POLICY_VIOLATION
    place = DeleteRecordsTopic(name=view, partitions=[DeleteRecordsPartition(partition_index=0, offset=5)])
    gone = client.call(DeleteRecordsRequest(topics=[place], timeout_ms=1000), 2)
    assert gone.topics[0].partitions[0].error_code == ErrorCode.POLICY_VIOLATION
    leader = ElectLeadersRequest(
        election_type=0, topic_partitions=[TopicPartitions(topic=view, partitions=[0])], timeout_ms=1000
    )
    elected = client.call(leader, 2).replica_election_results[0].partition_result[0]
    assert elected.error_code == ErrorCode.POLICY_VIOLATION
    moved = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(name=view, partitions=[ReassignablePartition(partition_index=0, replicas=[1])])
        ]
    )
    answer = client.call(moved, 0).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.POLICY_VIOLATION


def test_share_groups_are_told_that_they_cannot_read_a_view(client: WireClient, view: str) -> None:
    request = ShareGroupHeartbeatRequest(
        group_id=view, member_id=str(uuid4()), member_epoch=0, subscribed_topic_names=[view]
    )
    patience = Patience("the coordinator is ready")
    while (answer := client.call(request, 1)).error_code in COORDINATOR_NOT_READY:
        patience.check(answer.error_code)
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[view]), 4)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert view in answer.error_message


def test_names_are_shared_with_topics(client: WireClient, topic: str, view: str) -> None:
    assert try_view(client, topic, topic).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert try_view(client, view, topic).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    (made,) = client.call(create_topic(view), CREATE_TOPICS).topics
    assert made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("query", "code", "word"),
    [
        ({"where": "value.id >"}, ErrorCode.INVALID_CONFIG, "value.id >"),
        ({"where": "eval(value)"}, ErrorCode.INVALID_CONFIG, "eval"),
        ({"partitions": 7}, ErrorCode.INVALID_PARTITIONS, "1"),
        ({"keep_tombstones": "perhaps"}, ErrorCode.INVALID_CONFIG, "true or false"),
        ({"retention": "1"}, ErrorCode.INVALID_CONFIG, "forebay.view.retention"),
    ],
)
def test_a_query_that_cannot_be_is_refused_with_the_reason(
    client: WireClient, topic: str, query: dict[str, Any], code: ErrorCode, word: str
) -> None:
    create(client, topic)
    refused = try_view(client, f"{topic}-view", topic, **query)
    assert refused.error_code == code
    assert word in refused.error_message
    assert f"{topic}-view" not in metadata(client)


def test_a_source_is_a_topic_that_exists(client: WireClient, topic: str, view: str) -> None:
    assert try_view(client, f"{topic}-a", f"{topic}-none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert try_view(client, f"{topic}-b", view).error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_with_views_is_not_deleted_and_says_which(client: WireClient, topic: str, view: str) -> None:
    refused = delete(client, topic)
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert view in refused.error_message
    assert delete(client, view).error_code == ErrorCode.NONE
    assert view not in metadata(client)
    assert len(read_all(client, topic)) == 10, "deleting a view deletes no message"
    assert delete(client, topic).error_code == ErrorCode.NONE


def test_a_view_is_deleted_by_its_id(client: WireClient, topic: str) -> None:
    create(client, topic)
    view_id = make_view(client, f"{topic}-view", topic)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=view_id)], timeout_ms=1000)
    (deleted,) = client.call(request, 6).responses
    assert (deleted.error_code, deleted.name) == (ErrorCode.NONE, f"{topic}-view")


def test_views_are_there_after_a_restart_and_after_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker()
    with WireClient(broker.bootstrap) as client:
        create(client, "source")
        append(client, "source", documents(range(10)), acks=-1)
        make_view(client, "shown", "source", EVEN)
    for end in (broker.stop, broker.kill):
        end()
        broker.start()
        with WireClient(broker.bootstrap) as client:
            assert [offset for offset, _ in read_all(client, "shown")] == [0, 2, 4, 6, 8]
