"""When rules change under open connections; what brokers need; views, dead letters and the store."""

from __future__ import annotations

import asyncio
import socket

import pytest

from forebay.core.acls.bindings import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
)
from forebay.core.cluster.images.view_image import ViewImage, ViewPut
from forebay.errors import ErrorCode
from forebay.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from forebay.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from forebay.wire.messages.fetch import ReplicaState
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from forebay.wire.messages.share_fetch import AcknowledgementBatch, AcquiredRecords, ShareFetchRequest
from forebay.wire.messages.share_fetch import FetchPartition as SharePartition
from forebay.wire.messages.share_fetch import FetchTopic as ShareTopic
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.access.principals import ACCESS, KnownClient, add_acls, delete_acl, stored_acls
from support.access.rules import DENIED, MEMBER, C, G, T, allow, deny, make, topic_id
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.kafka_clients import DEADLINE_SECONDS
from support.clients.wire_client import FETCH, PRODUCE, batch, fetch, produce, values_of
from support.waiting import Patience

# -- open connections --------------------------------------------------------------------------------------


def test_a_deny_ends_the_fast_path_of_a_producer(
    guarded: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    make(admin, "fast")
    add_acls(admin, [allow(Operation.WRITE, "fast")])
    for _ in range(4):
        (topic,) = ada.call(produce("fast", batch(b"v"), acks=-1), PRODUCE).responses
        assert topic.partition_responses[0].error_code == ErrorCode.NONE
    port = ada.socket.getsockname()[1]
    memos = guarded.on_loop(
        lambda node: [c.memo is not None for c in node.server.connections if c.peer[1] == port]
    )
    assert memos == [True], "the fast path is in use"
    add_acls(admin, [deny(Operation.WRITE, "fast")])
    for _ in range(3):
        (topic,) = ada.call(produce("fast", batch(b"v"), acks=-1), PRODUCE).responses
        assert topic.partition_responses[0].error_code == DENIED
    end = guarded.on_loop(lambda node: node.partitions.get("fast", 0).log.end_offset)
    assert end == 4


def test_a_deny_reaches_a_fetch_that_waits_and_the_rest_of_its_session(
    guarded: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    make(admin, "waits")
    rule = allow(Operation.READ, "waits")
    add_acls(admin, [rule])
    begun = ada.call(fetch("waits", session_epoch=0), FETCH)
    assert begun.session_id and begun.responses[0].partitions[0].error_code == ErrorCode.NONE
    waiting = fetch("waits", partitions=(), max_wait_ms=120_000, session_id=begun.session_id, session_epoch=1)
    ada.post(waiting, FETCH)
    delete_acl(admin, rule)
    ended = ada.read()
    assert [topic.partitions[0].error_code for topic in ended.responses] == [DENIED]
    admin.call(produce("waits", batch(b"secret"), acks=-1), PRODUCE)
    later = fetch("waits", partitions=(), session_id=begun.session_id, session_epoch=2)
    (topic,) = ada.call(later, FETCH).responses
    assert (topic.partitions[0].error_code, values_of(topic.partitions[0].records)) == (DENIED, [])
    add_acls(admin, [rule])
    again = fetch("waits", partitions=(), session_id=begun.session_id, session_epoch=3)
    (topic,) = ada.call(again, FETCH).responses
    assert values_of(topic.partitions[0].records) == [(0, b"secret")]


def test_a_deny_reaches_the_session_of_a_share_consumer(
    guarded: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    make(admin, "shared")
    rule = allow(Operation.READ, "shared")
    add_acls(admin, [rule, allow(Operation.READ, "sharers", G)])
    wanted = topic_id(guarded, "shared")
    member = ShareGroupHeartbeatRequest(
        group_id="sharers", member_id=MEMBER, member_epoch=0, subscribed_topic_names=["shared"]
    )
    patience = Patience("the group has a member")
    while ada.call(member, 1).error_code:
        admin.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["sharers"]), 4)
        patience.check()
    asked = share_fetch(wanted, epoch=0)
    assert ada.call(asked, 1).error_code == ErrorCode.NONE
    epoch = 1
    acquired: list[AcquiredRecords] = []
    while not acquired:
        admin.call(produce("shared", batch(b"v"), acks=-1), PRODUCE)
        answer = ada.call(share_fetch(wanted, epoch=epoch, named=False, max_wait_ms=200), 1)
        acquired = [each for t in answer.responses for p in t.partitions for each in p.acquired_records]
        epoch += 1
        patience.check(answer)
    add_acls(admin, [deny(Operation.READ, "shared")])
    range_ = acquired[0]
    accepted = AcknowledgementBatch(
        first_offset=range_.first_offset, last_offset=range_.last_offset, acknowledge_types=[1]
    )
    acknowledged = ada.call(
        ShareAcknowledgeRequest(
            group_id="sharers",
            member_id=MEMBER,
            share_session_epoch=epoch,
            topics=[
                AcknowledgeTopic(
                    topic_id=wanted,
                    partitions=[AcknowledgePartition(partition_index=0, acknowledgement_batches=[accepted])],
                )
            ],
        ),
        1,
    )
    assert [t.partitions[0].error_code for t in acknowledged.responses] == [DENIED]
    fetched = ada.call(share_fetch(wanted, epoch=epoch + 1, named=False), 1)
    assert [t.partitions[0].error_code for t in fetched.responses] == [DENIED]
    for part in (acknowledged.responses[0].partitions[0], fetched.responses[0].partitions[0]):
        assert "shared" not in (part.error_message or ""), "an id does not tell the name"
    delete_acl(admin, allow(Operation.READ, "sharers", G))
    refused = ada.call(share_fetch(wanted, epoch=epoch + 2, named=False), 1)
    assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def share_fetch(wanted: bytes, *, epoch: int, named: bool = True, max_wait_ms: int = 0) -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id="sharers",
        member_id=MEMBER,
        share_session_epoch=epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=10,
        batch_size=10,
        topics=[ShareTopic(topic_id=wanted, partitions=[SharePartition(partition_index=0)])] if named else [],
    )


def test_rules_by_host(guarded: LocalBroker, admin: KnownClient) -> None:
    make(admin, "hosted")
    rule = AclBinding(
        T, PatternType.LITERAL, "hosted", "User:ANONYMOUS", "127.0.0.9", Operation.WRITE, Permission.ALLOW
    )
    add_acls(admin, [rule])
    host, _, port = guarded.bootstrap.rpartition(":")
    found = {}
    for source in ("127.0.0.1", "127.0.0.9"):
        with KnownClient(guarded, "User:ANONYMOUS") as client:
            client.socket.close()
            client.socket = socket.create_connection((host, int(port)), 60, (source, 0))
            (topic,) = client.call(produce("hosted", batch(b"v")), PRODUCE).responses
            found[source] = topic.partition_responses[0].error_code
    assert found == {"127.0.0.1": DENIED, "127.0.0.9": ErrorCode.NONE}


# -- brokers -----------------------------------------------------------------------------------------------


def test_a_follower_needs_cluster_action(admin: KnownClient, ada: KnownClient) -> None:
    make(admin, "followed")
    admin.call(produce("followed", batch(b"v"), acks=-1), PRODUCE)
    add_acls(admin, [allow(Operation.ALL, "followed")])
    request = fetch("followed")
    request.replica_state = ReplicaState(replica_id=1, replica_epoch=1)
    request.replica_id = 1
    (topic,) = ada.call(request, FETCH).responses
    assert (topic.partitions[0].error_code, values_of(topic.partitions[0].records)) == (DENIED, [])


def test_to_call_oneself_a_broker_is_not_enough(admin: KnownClient, ada: KnownClient) -> None:
    make(admin, "not-yours")
    add_acls(admin, [allow(Operation.CLUSTER_ACTION, CLUSTER_NAME, C, principal="User:peer")])
    found = []
    for principal in ("User:ada", "User:peer"):
        ada.log_in(principal)
        ada.socket.sendall(ada.frame(produce("not-yours", batch(b"v")), PRODUCE, "forebay-broker-1.1.1"))
        (topic,) = ada.read().responses
        found.append(topic.partition_responses[0].error_code)
    assert found == [DENIED, ErrorCode.NONE]


# -- Forebay's own -----------------------------------------------------------------------------------------


def view(name: str, source: str) -> CreateTopicsRequest:
    config = CreatableTopicConfig(name="forebay.view.source", value=source)
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, configs=[config])
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def test_a_view_is_read_by_its_own_name(guarded: LocalBroker, admin: KnownClient, ada: KnownClient) -> None:
    make(admin, "v-source")
    admin.call(produce("v-source", batch(b"v"), acks=-1), PRODUCE)
    assert admin.call(view("v-view", "v-source"), 7).topics[0].error_code == ErrorCode.NONE
    (refused,) = ada.call(fetch("v-view"), FETCH).responses
    assert refused.partitions[0].error_code == DENIED
    add_acls(admin, [allow(Operation.READ, "v-view")])
    (shown,) = ada.call(fetch("v-view"), FETCH).responses
    assert values_of(shown.partitions[0].records) == [(0, b"v")]
    (refused,) = ada.call(fetch("v-source"), FETCH).responses
    assert refused.partitions[0].error_code == DENIED


def test_who_makes_a_view_must_be_allowed_to_read_its_source(admin: KnownClient, ada: KnownClient) -> None:
    make(admin, "w-source")
    add_acls(admin, [allow(Operation.CREATE, "w-view")])
    (refused,) = ada.call(view("w-view", "w-source"), 7).topics
    assert refused.error_code == DENIED
    add_acls(admin, [allow(Operation.READ, "w-source")])
    (made,) = ada.call(view("w-view", "w-source"), 7).topics
    assert made.error_code == ErrorCode.NONE
    assert (made.configs, made.topic_config_error_code) == ([], DENIED), "its settings are not for everybody"


def test_who_restores_a_topic_from_the_object_store_must_be_an_administrator(
    admin: KnownClient, ada: KnownClient
) -> None:
    """It would show messages of a topic that the caller may not read, under a name of its own."""
    add_acls(admin, [allow(Operation.CREATE, "r-restored")])
    config = CreatableTopicConfig(name="forebay.remote.restore", value="00" * 16)
    topic = CreatableTopic(name="r-restored", num_partitions=-1, replication_factor=-1, configs=[config])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    assert ada.call(request, 7).topics[0].error_code == DENIED
    (answer,) = admin.call(request, 7).topics
    assert answer.error_code == ErrorCode.INVALID_CONFIG, "this broker has no object store"


def name_dead_letter_topics(group: str, *topics: str) -> IncrementalAlterConfigsRequest:
    configs = [
        AlterableConfig(name="errors.deadletterqueue.topic.name", config_operation=0, value=topic)
        for topic in topics
    ]
    group_configs = AlterConfigsResource(resource_type=32, resource_name=group, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[group_configs])


def test_who_names_a_dead_letter_topic_must_be_allowed_to_write_to_it(
    admin: KnownClient, ada: KnownClient
) -> None:
    make(admin, "dlq.d")
    add_acls(admin, [allow(Operation.ALTER_CONFIGS, "d-group", G)])
    request = name_dead_letter_topics("d-group", "dlq.d")
    assert ada.call(request, 1).responses[0].error_code == DENIED
    add_acls(admin, [allow(Operation.WRITE, "dlq.d")])
    assert ada.call(request, 1).responses[0].error_code == ErrorCode.NONE
    twice = name_dead_letter_topics("d-group", "dlq.d", "dlq.other")
    assert ada.call(twice, 1).responses[0].error_code == DENIED


def test_who_names_a_dead_letter_topic_that_brokers_create_must_be_allowed_to_create_it(
    admin: KnownClient, ada: KnownClient
) -> None:
    add_acls(admin, [allow(Operation.ALTER_CONFIGS, "n-group", G), allow(Operation.WRITE, "dlq.new")])
    request = name_dead_letter_topics("n-group", "dlq.new")
    assert ada.call(request, 1).responses[0].error_code == DENIED
    add_acls(admin, [allow(Operation.CREATE, "dlq.new")])
    assert ada.call(request, 1).responses[0].error_code == ErrorCode.NONE


def test_a_view_whose_source_is_gone_is_not_shown_among_all_topics(
    guarded: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    """Its name would be shown to those who may describe everything else."""
    orphan = ViewImage(name="orphan", view_id=b"o" * 16, source_id=b"g" * 16)
    loop = guarded.on_loop(lambda node: node.loop)
    change = guarded.on_loop(lambda node: node.metadata.change(lambda _: [ViewPut(view=orphan)]))
    image = asyncio.run_coroutine_threadsafe(change, loop).result(DEADLINE_SECONDS)
    assert "orphan" in image.views
    make(admin, "seen")
    add_acls(admin, [allow(Operation.DESCRIBE, "*"), deny(Operation.DESCRIBE, "orphan")])
    every = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000)
    names = {topic.name for topic in ada.call(every, 0).topics}
    delete_acl(admin, allow(Operation.DESCRIBE, "*"))
    assert "seen" in names and "orphan" not in names


# -- the store ---------------------------------------------------------------------------------------------


def test_rules_outlive_the_broker(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("restarted")
    rules = [allow(Operation.READ, "t"), deny(Operation.WRITE, "t"), allow(Operation.READ, "gr/ü*p", G)]
    with local_broker(data, ACCESS) as broker, KnownClient(broker) as admin:
        add_acls(admin, rules)
        add_acls(admin, rules[:1])  # a second time, which is no error
        gone = delete_acl(admin, rules[1]).filter_results
        assert [len(result.matching_acls) for result in gone] == [1]
        assert stored_acls(broker) == {rules[0], rules[2]}
    with local_broker(data, ACCESS) as broker, KnownClient(broker, "User:ada") as ada:
        assert stored_acls(broker) == {rules[0], rules[2]}
        (topic,) = ada.call(fetch("t"), FETCH).responses
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
