"""Looking at a broker: cluster, partitions page by page, bytes on disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from forebay.wire.messages.describe_cluster import DescribeClusterRequest
from forebay.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from forebay.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def create(client: WireClient, **partitions: int) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in partitions.items()
    ]
    results = client.call(CreateTopicsRequest(topics=topics), 7).topics
    assert [result.error_code for result in results] == [ErrorCode.NONE] * len(topics)


# -- cluster -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_names_the_address_we_came_by(
    client: WireClient, broker: BrokerProcess, version: int
) -> None:
    response = client.call(DescribeClusterRequest(), version)
    assert response.error_code == ErrorCode.NONE
    assert len(response.cluster_id) == 22
    assert response.controller_id == 1
    assert [(b.broker_id, f"{b.host}:{b.port}", b.rack) for b in response.brokers] == [
        (1, broker.bootstrap, None)
    ]
    assert response.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_broker_describes_brokers_only(client: WireClient, endpoint_type: int, code: ErrorCode) -> None:
    response = client.call(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert (response.error_code, response.brokers) == (code, [])


# -- partitions, page by page ------------------------------------------------------------------------------


def pages(client: WireClient, names: list[str], limit: int) -> list[list[tuple[str, int]]]:
    """Every page as the partitions on it, until there is no cursor."""
    cursor: Cursor | None = None
    found: list[list[tuple[str, int]]] = []
    while len(found) < 50:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        response = client.call(request, 0)
        found.append([(t.name, p.partition_index) for t in response.topics for p in t.partitions])
        cursor = response.next_cursor
        if cursor is None:
            return found
    raise AssertionError("the cursor never ends")


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 100])
def test_pages_give_every_partition_once_in_order(
    broker: BrokerProcess, client: WireClient, limit: int
) -> None:
    names = [f"paged-{limit}-{letter}" for letter in "abc"]
    create(client, **dict(zip(names, (3, 1, 2), strict=True)))
    found = pages(client, names[::-1], limit)
    assert [partition for page in found for partition in page] == [
        (names[0], 0),
        (names[0], 1),
        (names[0], 2),
        (names[1], 0),
        (names[2], 0),
        (names[2], 1),
    ]
    assert all(len(page) <= limit for page in found)


def test_a_partition_is_described_in_full(client: WireClient, topic: str) -> None:
    create(client, **{topic: 1})
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])
    (found,) = client.call(request, 0).topics
    (partition,) = found.partitions
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
    assert found.topic_id != bytes(16)


def test_without_names_every_topic_is_described(client: WireClient, topic: str) -> None:
    create(client, **{topic: 2})
    found = [partition for page in pages(client, [], 2000) for partition in page]
    assert {(topic, 0), (topic, 1)} <= set(found)
    assert found == sorted(found)


def test_an_unknown_topic_is_an_error_of_its_own(client: WireClient, topic: str) -> None:
    create(client, **{topic: 1})
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="nowhere"), TopicRequest(name=topic)])
    found = {item.name: item.error_code for item in client.call(request, 0).topics}
    assert found == {"nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic: ErrorCode.NONE}


def test_a_cursor_that_points_nowhere(client: WireClient, topic: str) -> None:
    create(client, **{topic: 1})
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=topic)], cursor=Cursor(topic_name=topic, partition_index=-1)
    )
    (found,) = client.call(request, 0).topics
    assert found.error_code == ErrorCode.INVALID_REQUEST
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=topic)], cursor=Cursor(topic_name=topic, partition_index=99)
    )
    response = client.call(request, 0)
    assert ([t.partitions for t in response.topics], response.next_cursor) == ([[]], None)


# -- disk --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_log_directories(client: WireClient, broker: BrokerProcess, topic: str, version: int) -> None:
    create(client, **{topic: 2})
    wanted = DescribableLogDirTopic(topic=topic, partitions=[0, 1, 7])
    (result,) = client.call(DescribeLogDirsRequest(topics=[wanted]), version).results
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, str(broker.data))
    (found,) = result.topics
    assert [(p.partition_index, p.partition_size, p.offset_lag) for p in found.partitions] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0


def test_log_directories_of_every_topic_and_of_none(client: WireClient, topic: str) -> None:
    create(client, **{topic: 1})
    (everything,) = client.call(DescribeLogDirsRequest(topics=None), 4).results
    assert topic in {item.name for item in everything.topics}
    missing = DescribableLogDirTopic(topic=topic + "-missing", partitions=[0])
    (nothing,) = client.call(DescribeLogDirsRequest(topics=[missing]), 4).results
    assert nothing.topics == []
