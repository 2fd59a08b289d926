"""Who is shown partitions that were folded and are gone: producers with messages for them, nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.handlers import metadata
from forebay.errors import ErrorCode
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from forebay.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.replicated import until
from support.clients.wire_client import WireClient, append, batch, create, read, read_all

JAVA = "apache-kafka-java"
SETTINGS = {"forebay.fold.grace.ms": "0", "log.retention.check.interval.ms": "50"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", SETTINGS) as broker:
        yield broker


def call_itself(client: WireClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="4.3.1")
    assert client.call(request, 3).error_code == 0


def shown(client: WireClient, *topics: str) -> list[int]:
    """How many partitions each has in the metadata."""
    asked = [MetadataRequestTopic(name=topic) for topic in topics]
    return [len(topic.partitions) for topic in client.call(MetadataRequest(topics=asked), 12).topics]


def shrink(client: WireClient, topic: str, before: int, after: int) -> None:
    """A topic whose closed partitions are empty, and go."""
    create(client, topic, before)
    fold(client, topic, after)


def fold(client: WireClient, topic: str, after: int) -> None:
    wanted = CreatePartitionsTopic(name=topic, count=after, assignments=None)
    (done,) = client.call(CreatePartitionsRequest(topics=[wanted], timeout_ms=60_000), 3).results
    assert done.error_code == 0, done.error_message
    until(lambda: shown(client, topic) == [after], "the closed partitions go")


def test_a_producer_that_asks_again_is_shown_what_its_batches_are_for(
    broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"{topic}-other"
    with WireClient(broker.bootstrap) as administrator, WireClient(broker.bootstrap) as producer:
        call_itself(administrator, JAVA)
        call_itself(producer, JAVA)
        shrink(administrator, topic, 4, 2)
        shrink(administrator, other, 6, 3)
        create(administrator, "ordinary", 5)
        assert append(producer, "ordinary", batch(b"a")).error_code == 0
        assert shown(producer, topic, other, "ordinary") == [2, 3, 5]
        assert shown(producer, topic, other, "ordinary") == [4, 6, 5]
        assert append(producer, topic, batch(b"b"), partition=3).error_code == 0
        # Whoever has produced nothing may be a consumer, whose group would wait for these partitions.
        for _ in range(3):
            assert shown(administrator, topic, other) == [2, 3]
        # It goes on as it is: if it lowered its count now, it could have older messages of a key in hand.
        monkeypatch.setattr(metadata, "_ASKS_AGAIN_S", 0.0)
        assert shown(producer, topic, other) == [4, 6]
        with WireClient(broker.bootstrap) as again:
            call_itself(again, JAVA)
            assert append(again, topic, batch(b"c"), partition=1).error_code == 0
            for _ in range(2):
                assert shown(again, topic, other) == [2, 3]


@pytest.mark.parametrize("name", ["", "kafka-python"])
def test_producers_of_other_clients_are_shown_what_their_batches_are_for(
    broker: LocalBroker, topic: str, name: str
) -> None:
    with WireClient(broker.bootstrap) as producer, WireClient(broker.bootstrap) as beginner:
        shrink(producer, topic, 4, 2)
        if name:
            call_itself(producer, name)
            call_itself(beginner, name)
        assert append(producer, topic, batch(b"a"), partition=3).error_code == 0
        assert shown(producer, topic) == [4]
        # It has sent nothing yet, and has all its batches in hand.
        assert beginner.call(InitProducerIdRequest(transactional_id=None), 4).error_code == 0
        assert (shown(beginner, topic), shown(beginner, topic)) == ([2], [4])


@pytest.mark.parametrize("name", ["", "sarama"])
def test_clients_that_may_be_consumers_are_not_shown_what_is_gone(
    broker: LocalBroker, topic: str, name: str
) -> None:
    with WireClient(broker.bootstrap) as stranger:
        shrink(stranger, topic, 4, 2)
        if name:
            call_itself(stranger, name)
        assert append(stranger, topic, batch(b"a"), partition=3).error_code == 0
        assert read(stranger, topic, partitions=[1]).error_code == 0
        for _ in range(2):
            assert shown(stranger, topic) == [2]


def test_where_partitions_ended_that_are_gone(broker: LocalBroker, topic: str) -> None:
    with WireClient(broker.bootstrap) as client:
        shrink(client, topic, 4, 2)
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])
        (described,) = client.call(request, 0).topics
    assert {each.partition_index: each.end_offset for each in described.gone} == {2: 0, 3: 0}


GROUP = "readers"


def ready(client: WireClient, name: str, kind: int) -> None:
    """Wait for the coordinator of a group (0) or of a transactional id (1)."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
    until(lambda: client.call(request, 4).coordinators[0].error_code == 0, "there is a coordinator")


def commit(client: WireClient, topic: str, *partitions: int) -> list[int]:
    """Commit the offset 7 for each; the error codes."""
    each = [OffsetCommitRequestPartition(partition_index=index, committed_offset=7) for index in partitions]
    wanted = OffsetCommitRequestTopic(name=topic, partitions=each)
    (done,) = client.call(OffsetCommitRequest(group_id=GROUP, topics=[wanted]), 8).topics
    return [partition.error_code for partition in done.partitions]


def commit_in_transaction(client: WireClient, topic: str, *partitions: int) -> list[int]:
    ready(client, "t", 1)
    producer = client.call(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4)
    each = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=8) for index in partitions
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=each)],
    )
    (done,) = client.call(request, 5).topics
    return [partition.error_code for partition in done.partitions]


def committed(client: WireClient, topic: str, count: int) -> list[int]:
    wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(count)))
    (found,) = client.call(OffsetFetchRequest(group_id=GROUP, topics=[wanted]), 7).topics
    return [partition.committed_offset for partition in found.partitions]


def test_groups_commit_for_partitions_that_are_gone(broker: LocalBroker, topic: str) -> None:
    """A refused commit keeps members of Java's classic groups from joining again, for minutes."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 4)
        ready(client, GROUP, 0)
        until(lambda: commit(client, topic, 0, 1, 2, 3) == [0, 0, 0, 0], "the coordinator is ready")
        fold(client, topic, 2)
        until(lambda: committed(client, topic, 4) == [7, 7, -1, -1], "offsets go with their partitions")
        assert commit(client, topic, 1, 2, 3, 4) == [0, 0, 0, unknown]
        assert commit_in_transaction(client, topic, 1, 2, 3, 4) == [0, 0, 0, unknown]
        assert committed(client, topic, 4) == [7, 7, -1, -1]


def test_the_numbers_of_producers_outlive_their_partition(broker: LocalBroker, topic: str) -> None:
    """The partition that takes over has got nothing of this producer yet, and must not begin anywhere."""

    def send(sequence: int) -> int:
        data = batch(b"%d" % sequence, producer_id=4711, producer_epoch=0, base_sequence=sequence)
        code: int = append(client, topic, data, partition=3).error_code
        return code

    with WireClient(broker.bootstrap) as client:
        create(client, topic, 4)
        assert [send(sequence) for sequence in range(3)] == [0, 0, 0]
        partition = DeleteRecordsPartition(partition_index=3, offset=-1)
        wanted = DeleteRecordsTopic(name=topic, partitions=[partition])
        (deleted,) = client.call(DeleteRecordsRequest(topics=[wanted], timeout_ms=60_000), 2).topics
        assert deleted.partitions[0].error_code == 0
        fold(client, topic, 2)
        assert send(4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "another comes before it"
        assert [send(sequence) for sequence in (1, 2, 3, 4, 3)] == [0, 0, 0, 0, 0]
        assert [value for _, value in read_all(client, topic, 1)] == [b"3", b"4"], "nothing twice"
