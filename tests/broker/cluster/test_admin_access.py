"""What tools ask a broker beside topics and settings: access, directories, the quorum, moves under way."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from forebay.core.acls.operations import NOT_ASKED, ON_CLUSTER, ON_GROUP, ON_TOPIC
from forebay.core.cluster.config_changes import AlterOp
from forebay.core.cluster.resources import ResourceType as Kind
from forebay.errors import ErrorCode
from forebay.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from forebay.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from forebay.wire.messages.describe_acls import DescribeAclsRequest
from forebay.wire.messages.describe_cluster import DescribeClusterRequest
from forebay.wire.messages.describe_groups import DescribeGroupsRequest
from forebay.wire.messages.describe_quorum import DescribeQuorumRequest
from forebay.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.list_config_resources import ListConfigResourcesRequest
from forebay.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.brokers.broker_process import BrokerProcess
from support.clients.config_calls import increment
from support.clients.kafka_clients import confluent_admin, confluent_consumer
from support.clients.wire_client import WireClient, create

with warnings.catch_warnings():
    # kafka-python reads its schemas by a deprecated call when it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import (
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        KafkaAdminClient,
        ResourcePatternFilter,
    )
    from kafka.admin import ACLResourcePatternType as PatternType
    from kafka.admin import ResourceType as PythonResourceType
    from kafka.errors import LogDirNotFoundError, NoError, SecurityDisabledError, UnsupportedVersionError

    from kafka import TopicPartitionReplica

SECONDS = 120.0


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def confluent(broker: BrokerProcess) -> AdminClient:
    return confluent_admin(broker.bootstrap)


@pytest.fixture
def kafka_python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


# -- authorized operations -----------------------------------------------------------------------------------


def test_the_bits_are_kafkas() -> None:
    assert (ON_TOPIC, ON_GROUP, ON_CLUSTER) == (3576, 3400, 8096)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("version", [8, 10, 13])
def test_metadata_tells_what_is_allowed_when_asked(
    client: WireClient, topic: str, version: int, asked: bool
) -> None:
    create(client, topic)
    wanted = [MetadataRequestTopic(name=name) for name in (topic, f"no-{topic}")]
    response = client.call(
        MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=asked and version <= 10,
            include_topic_authorized_operations=asked,
        ),
        version,
    )
    found, missing = (each.topic_authorized_operations for each in response.topics)
    assert (found, missing) == (ON_TOPIC if asked else NOT_ASKED, NOT_ASKED)
    assert response.cluster_authorized_operations == (ON_CLUSTER if asked and version <= 10 else NOT_ASKED)


@pytest.mark.parametrize("asked", [False, True])
def test_the_cluster_tells_what_is_allowed_when_asked(client: WireClient, asked: bool) -> None:
    response = client.call(DescribeClusterRequest(include_cluster_authorized_operations=asked), 1)
    assert response.cluster_authorized_operations == (ON_CLUSTER if asked else NOT_ASKED)


def test_pages_of_topics_always_tell_what_is_allowed(client: WireClient, topic: str) -> None:
    create(client, topic)
    topics = [TopicRequest(name=topic), TopicRequest(name=f"{topic}-missing")]
    response = client.call(DescribeTopicPartitionsRequest(topics=topics), 0)
    assert [each.topic_authorized_operations for each in response.topics] == [ON_TOPIC, NOT_ASKED]


def _is_stable(confluent: AdminClient, group_id: str) -> bool:
    group = confluent.describe_consumer_groups([group_id])[group_id].result(SECONDS)
    return bool(group.state == ConsumerGroupState.STABLE)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_tell_what_is_allowed_when_asked(
    broker: BrokerProcess, client: WireClient, confluent: AdminClient, topic: str, protocol: str
) -> None:
    create(client, topic)
    group_id = f"{protocol}-of-{topic}"
    consumer = confluent_consumer(broker.bootstrap, group_id=group_id, group_protocol=protocol)
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + SECONDS
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.1)
        while not _is_stable(confluent, group_id) and time.monotonic() < deadline:
            consumer.poll(0.1)  # its acknowledgement of the assignment is on its way
        for asked in (False, True):
            described = confluent.describe_consumer_groups([group_id], include_authorized_operations=asked)
            group = described[group_id].result(SECONDS)
            assert group.state == ConsumerGroupState.STABLE
            told = sum(1 << operation.value for operation in group.authorized_operations or ())
            assert told == (ON_GROUP if asked else 0)
    finally:
        consumer.close()


@pytest.mark.parametrize("asked", [True, False])
def test_a_dead_group_says_what_may_be_done_with_it(client: WireClient, topic: str, asked: bool) -> None:
    """Before version 6 it is no error that there is no such group."""
    request = DescribeGroupsRequest(groups=[topic], include_authorized_operations=asked)
    for version in (3, 5):
        (group,) = client.call(request, version).groups
        assert (group.group_state, group.error_code) == ("Dead", ErrorCode.NONE)
        assert group.authorized_operations == (ON_GROUP if asked else NOT_ASKED)


def test_a_group_that_does_not_exist_allows_nothing(client: WireClient, topic: str) -> None:
    classic = client.call(DescribeGroupsRequest(groups=[topic], include_authorized_operations=True), 6)
    modern = client.call(
        ConsumerGroupDescribeRequest(group_ids=[topic], include_authorized_operations=True), 1
    )
    found = (*classic.groups, *modern.groups)
    assert [each.authorized_operations for each in found] == [NOT_ASKED] * 2
    assert [each.error_message for each in found] == [f"Group {topic} not found."] * 2


def test_confluent_reads_all_operations(confluent: AdminClient, client: WireClient, topic: str) -> None:
    create(client, topic)
    topics = TopicCollection([topic])
    described = confluent.describe_topics(topics, include_authorized_operations=True)[topic].result(SECONDS)
    assert sum(1 << operation.value for operation in described.authorized_operations) == ON_TOPIC
    cluster = confluent.describe_cluster(include_authorized_operations=True).result(SECONDS)
    assert sum(1 << operation.value for operation in cluster.authorized_operations) == ON_CLUSTER


# -- access rules --------------------------------------------------------------------------------------------

ITS_FILTER = AclBindingFilter(
    ResourceType.ANY,
    "t",
    ResourcePatternType.ANY,
    "User:x",
    "*",
    AclOperation.ANY,
    AclPermissionType.ANY,
)
RULE = AclBinding(
    ResourceType.TOPIC,
    "t",
    ResourcePatternType.LITERAL,
    "User:x",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)


def test_there_are_no_rules_without_an_authorizer(client: WireClient) -> None:
    for version in (1, 2, 3):
        response = client.call(DescribeAclsRequest(resource_type_filter=1, operation=1), version)
        assert (response.error_code, response.resources) == (ErrorCode.SECURITY_DISABLED, [])
        assert response.error_message == "No Authorizer is configured."


def test_rules_are_refused_one_by_one(confluent: AdminClient) -> None:
    for future in (*confluent.create_acls([RULE]).values(), *confluent.delete_acls([ITS_FILTER]).values()):
        with pytest.raises(KafkaException, match="No Authorizer is configured") as caught:
            future.result(SECONDS)
        assert caught.value.args[0].code() == ErrorCode.SECURITY_DISABLED


def test_kafka_python_hears_that_security_is_disabled(kafka_python: KafkaAdminClient) -> None:
    everything = ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(PythonResourceType.ANY, None, PatternType.ANY),
    )
    with pytest.raises(SecurityDisabledError):
        kafka_python.describe_acls(everything)


# -- directories ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_replicas_are_in_the_one_directory_already(
    broker: BrokerProcess, client: WireClient, topic: str, version: int
) -> None:
    create(client, topic, 2)
    wanted = [
        AlterReplicaLogDirTopic(name=topic, partitions=[0, 1, 2]),
        AlterReplicaLogDirTopic(name=f"no-{topic}", partitions=[0]),
    ]
    here = AlterReplicaLogDir(path=str(broker.data), topics=wanted)
    response = client.call(AlterReplicaLogDirsRequest(dirs=[here]), version)
    found = {each.topic_name: [p.error_code for p in each.partitions] for each in response.results}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {topic: [ErrorCode.NONE, ErrorCode.NONE, unknown], f"no-{topic}": [unknown]}


def test_there_is_no_other_directory(broker: BrokerProcess, client: WireClient, topic: str) -> None:
    create(client, topic)
    for path in ("/elsewhere", "", "\x00", f"{broker.data}/{topic}-0"):
        wanted = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=wanted)])
        (result,) = client.call(request, 2).results
        assert [each.error_code for each in result.partitions] == [ErrorCode.LOG_DIR_NOT_FOUND]


def test_kafka_python_moves_replicas_to_where_they_are(
    broker: BrokerProcess, client: WireClient, kafka_python: KafkaAdminClient, topic: str
) -> None:
    create(client, topic)
    replica = TopicPartitionReplica(topic, 0, 1)
    assert kafka_python.alter_replica_log_dirs({replica: str(broker.data)}) == {replica: NoError}
    assert kafka_python.alter_replica_log_dirs({replica: "/elsewhere"}) == {replica: LogDirNotFoundError}


# -- resources, the quorum, moves ----------------------------------------------------------------------------


def test_what_has_settings_is_listed(client: WireClient, topic: str) -> None:
    create(client, topic)
    group_id = f"group/of {topic}"
    increment(client, Kind.GROUP, group_id, ("consumer.session.timeout.ms", AlterOp.SET, "50000"))

    def listed(*kinds: int, version: int = 1) -> set[tuple[int, str]]:
        response = client.call(ListConfigResourcesRequest(resource_types=list(kinds)), version)
        assert response.error_code == ErrorCode.NONE
        return {(each.resource_type, each.resource_name) for each in response.config_resources}

    everything = listed()
    expected = {(Kind.TOPIC, topic), (Kind.BROKER, "1"), (Kind.BROKER_LOGGER, "1"), (Kind.GROUP, group_id)}
    assert expected <= everything
    assert listed(Kind.GROUP, Kind.BROKER) == {
        each for each in everything if each[0] in (Kind.GROUP, Kind.BROKER)
    }
    assert listed(Kind.CLIENT_METRICS) == listed(version=0) == set()
    refused = client.call(ListConfigResourcesRequest(resource_types=[99]), 1)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_kafka_python_lists_what_has_settings(kafka_python: KafkaAdminClient) -> None:
    assert kafka_python.list_config_resources()["broker"] == ["1"]


def test_there_is_no_quorum_and_the_broker_says_so(
    client: WireClient, kafka_python: KafkaAdminClient
) -> None:
    for version in (0, 1, 2):
        assert client.call(DescribeQuorumRequest(), version).error_code == ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(UnsupportedVersionError, match="there is no KRaft quorum"):
        kafka_python.describe_metadata_quorum()


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_found_without_a_message(client: WireClient, topic: str, version: int) -> None:
    """Some clients take any message, an empty one too, for a failure."""
    deadline = time.monotonic() + SECONDS
    while True:
        request = (
            FindCoordinatorRequest(key=topic)
            if version < 4
            else FindCoordinatorRequest(coordinator_keys=[topic])
        )
        response = client.call(request, version)
        (found,) = response.coordinators or [response]
        if found.error_code == ErrorCode.NONE or time.monotonic() > deadline:
            break
    assert (found.error_code, found.error_message, found.node_id) == (ErrorCode.NONE, None, 1)


def test_no_moves_are_no_error(client: WireClient, kafka_python: KafkaAdminClient) -> None:
    response = client.call(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (response.error_code, response.error_message, response.topics) == (ErrorCode.NONE, None, [])
    assert kafka_python.list_partition_reassignments() == {}
