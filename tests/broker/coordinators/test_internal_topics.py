"""The brokers' own topics: clients may read them, and neither write nor delete what is in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient, append, batch, create, read

INTERNAL = ["__consumer_offsets", "__transaction_state"]


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    """Of a broker on which the topics are there."""
    with WireClient(broker.bootstrap) as client:
        for key_type in (0, 1):
            client.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4)
        yield client


@pytest.mark.parametrize("name", INTERNAL)
def test_only_brokers_write_to_them(client: WireClient, name: str) -> None:
    # Several times: a repeated request takes the fast path, which must refuse it too.
    for _ in range(4):
        assert append(client, name, batch(b"garbage")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    answer = read(client, name)
    assert answer.error_code == ErrorCode.NONE
    assert b"garbage" not in bytes(answer.records or b"")  # others may have written what belongs there


@pytest.mark.parametrize("name", INTERNAL)
def test_nothing_is_deleted_from_them(client: WireClient, name: str) -> None:
    before = read(client, name).log_start_offset
    partitions = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in (0, 99)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=partitions)], timeout_ms=1000
    )
    results = client.call(request, 2).topics[0].partitions
    assert [(each.error_code, each.low_watermark) for each in results] == [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert read(client, name).log_start_offset == before


def test_no_other_topic_is_called_internal(client: WireClient, topic: str) -> None:
    create(client, f"__{topic}")
    names = [*INTERNAL, f"__{topic}"]
    metadata = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), 12)
    assert {each.name: each.is_internal for each in metadata.topics} == {
        **dict.fromkeys(INTERNAL, True),
        f"__{topic}": False,
    }
    pages = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names])
    described = client.call(pages, 0).topics
    assert [each.is_internal for each in described] == [each.name in INTERNAL for each in described]
