"""What clients see that may do a part of what they ask for, and when rules change under open connections."""

from __future__ import annotations

import time

import pytest

from forebay.core.acls.bindings import (
    CLUSTER_NAME,
    Operation,
)
from forebay.core.acls.operations import ON_TOPIC
from forebay.errors import ErrorCode
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from forebay.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from forebay.wire.messages.describe_cluster import DescribeClusterRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.list_groups import ListGroupsRequest
from forebay.wire.messages.list_transactions import ListTransactionsRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.produce import ProduceRequest
from forebay.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.access.principals import ADMIN, KnownClient, add_acls
from support.access.rules import DENIED, MEMBER, C, G, X, allow, make, topic_id
from support.brokers.local_broker import LocalBroker
from support.clients.wire_client import FETCH, PRODUCE, batch, create_topic, fetch, produce, values_of
from support.waiting import Patience

# -- a part of a request -----------------------------------------------------------------------------------


def test_one_topic_of_a_request_is_written_and_one_is_not(
    guarded: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    make(admin, "p-yes", "p-no")
    add_acls(admin, [allow(Operation.WRITE, "p-yes")])
    both = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[produce(name, batch(b"v")).topic_data[0] for name in ("p-no", "p-yes")],
    )
    answer = ada.call(both, PRODUCE)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {"p-no": DENIED, "p-yes": ErrorCode.NONE}
    ends = guarded.on_loop(lambda node: {p.topic: p.log.end_offset for p in node.partitions.all()})
    assert (ends["p-no"], ends["p-yes"]) == (0, 1)


@pytest.mark.parametrize("allowed", [(), ("q-yes",)])
def test_a_producer_without_acknowledgements_learns_of_it_by_the_end_of_its_connection(
    admin: KnownClient, ada: KnownClient, allowed: tuple[str, ...]
) -> None:
    for name in ("q-yes", "q-no"):
        admin.call(create_topic(name), 7)
    add_acls(admin, [allow(Operation.WRITE, name) for name in allowed])
    both = ProduceRequest(
        acks=0,
        timeout_ms=10_000,
        topic_data=[produce(name, batch(b"v")).topic_data[0] for name in (*allowed, "q-no")],
    )
    ada.post(both, PRODUCE)
    assert ada.is_closed()


def test_one_topic_of_a_fetch_is_read_and_one_is_not(admin: KnownClient, ada: KnownClient) -> None:
    make(admin, "f-yes", "f-no")
    for name in ("f-yes", "f-no"):
        admin.call(produce(name, batch(b"v"), acks=-1), PRODUCE)
    add_acls(admin, [allow(Operation.READ, "f-yes")])
    request = fetch("f-yes")
    request.topics.append(fetch("f-no").topics[0])
    answer = ada.call(request, FETCH)
    found = {topic.topic: topic.partitions[0] for topic in answer.responses}
    assert values_of(found["f-yes"].records) == [(0, b"v")]
    assert (found["f-no"].error_code, values_of(found["f-no"].records)) == (DENIED, [])


def test_offsets_are_committed_for_the_topics_that_may_be_read(admin: KnownClient, ada: KnownClient) -> None:
    make(admin, "c-yes", "c-no")
    add_acls(admin, [allow(Operation.READ, "c-yes"), allow(Operation.READ, "c-group", G)])
    request = OffsetCommitRequest(
        group_id="c-group",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
                ],
            )
            for name in ("c-no", "c-yes")
        ],
    )
    patience = Patience("the coordinator is there")
    while True:
        answer = ada.call(request, 8)
        codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
        if codes["c-yes"] == ErrorCode.NONE:
            break
        patience.check(codes)
        admin.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["c-group"]), 4)
    assert codes["c-no"] == DENIED


def test_a_transaction_gets_no_partition_when_one_may_not_be_written(
    admin: KnownClient, ada: KnownClient
) -> None:
    make(admin, "x-yes", "x-no")
    add_acls(admin, [allow(Operation.WRITE, "x-yes"), allow(Operation.WRITE, "x-id", X)])
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x-id",
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("x-yes", "x-no")
        ],
    )
    answer = ada.call(request, 3)
    codes = {
        topic.name: topic.results_by_partition[0].partition_error_code
        for topic in answer.results_by_topic_v3_and_below
    }
    assert codes == {"x-yes": ErrorCode.OPERATION_NOT_ATTEMPTED, "x-no": DENIED}


def test_a_family_of_transactions_needs_a_right_to_all_of_it(admin: KnownClient, ada: KnownClient) -> None:
    add_acls(admin, [allow(Operation.WRITE, "job-1", X), allow(Operation.WRITE, "job-", X)])
    request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="job-1", forget=["job-"])
    assert ada.call(request, 3).affected == -1, "rules for job-1 and for job- are not for all that begin so"


def test_an_idempotent_producer_needs_some_topic(admin: KnownClient, ada: KnownClient) -> None:
    ada.log_in("User:fresh")
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert ada.call(asked, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    add_acls(admin, [allow(Operation.WRITE, "anything", principal="User:fresh")])
    assert ada.call(asked, 4).error_code == ErrorCode.NONE
    ada.log_in("User:fresh-2")
    rule = allow(Operation.IDEMPOTENT_WRITE, CLUSTER_NAME, C, principal="User:fresh-2")
    add_acls(admin, [rule])
    assert ada.call(asked, 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (0, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_coordinators_are_found_key_by_key(
    admin: KnownClient, ada: KnownClient, key_type: int, code: ErrorCode
) -> None:
    add_acls(admin, [allow(Operation.DESCRIBE, "k-yes", kind) for kind in (G, X)])
    keys = ["k-no", "k-yes"] if key_type < 2 else ["g:AAAAAAAAAAAAAAAAAAAAAA:0"]
    asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
    found = {each.key: each.error_code for each in ada.call(asked, 6).coordinators}
    assert found[keys[0]] == code
    assert found.get("k-yes") != code
    assert ada.call(FindCoordinatorRequest(key="k-no", key_type=min(key_type, 1)), 3).error_code in (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


def test_a_client_id_makes_nobody_a_broker(admin: KnownClient, ada: KnownClient) -> None:
    make(admin, "b-topic")
    add_acls(admin, [allow(Operation.WRITE, "b-topic")])
    later_ms = int(time.time() * 1000) + 48 * 3600 * 1000
    request = produce("b-topic", batch(b"v", timestamp=later_ms), acks=-1)

    def code() -> int:
        """As a broker that moves messages, whose times need not be in bounds."""
        ada.socket.sendall(ada.frame(request, PRODUCE, "forebay-broker-1.1.1"))
        (topic,) = ada.read().responses
        return int(topic.partition_responses[0].error_code)

    assert code() == ErrorCode.INVALID_TIMESTAMP
    ada.log_in(ADMIN)
    assert code() == ErrorCode.NONE, "who may act as a broker is one by its client id"


# -- what is left out --------------------------------------------------------------------------------------


def test_metadata_shows_what_may_be_described(
    guarded: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    make(admin, "m-yes", "m-no")
    add_acls(admin, [allow(Operation.DESCRIBE, "m-yes")])
    shown = ada.call(MetadataRequest(topics=None, include_topic_authorized_operations=True), 12)
    names = {topic.name: topic.topic_authorized_operations for topic in shown.topics}
    assert names["m-yes"] == 1 << Operation.DESCRIBE
    assert "m-no" not in names and shown.brokers
    everything = admin.call(MetadataRequest(topics=None, include_topic_authorized_operations=True), 12)
    assert {t.name: t.topic_authorized_operations for t in everything.topics}["m-no"] == ON_TOPIC
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name="m-no"), MetadataRequestTopic(name="m-never")],
        allow_auto_topic_creation=False,
    )
    denied = ada.call(asked, 12).topics
    assert [(topic.name, topic.error_code, topic.partitions) for topic in denied] == [
        ("m-no", DENIED, []),
        ("m-never", DENIED, []),
    ], "whether a topic exists is not told"
    hidden = topic_id(guarded, "m-no")
    (by_id,) = ada.call(MetadataRequest(topics=[MetadataRequestTopic(topic_id=hidden, name=None)]), 12).topics
    assert (by_id.name, by_id.error_code) == (None, DENIED)
    assert {topic.name for topic in ada.call(MetadataRequest(topics=[]), 0).topics} == set(names)
    old = ada.call(MetadataRequest(topics=[MetadataRequestTopic(name="m-no")]), 0)
    assert [(topic.name, topic.error_code) for topic in old.topics] == [("m-no", DENIED)]


def test_an_id_beside_a_name_decides_which_topic_is_shown(
    guarded: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    make(admin, "m-mine", "m-hidden")
    add_acls(admin, [allow(Operation.DESCRIBE, "m-mine"), allow(Operation.DESCRIBE, "m-other")])

    def asked(beside: bytes, name: str | None) -> tuple[int, str | None]:
        topics = [MetadataRequestTopic(topic_id=beside, name=name)]
        (answer,) = ada.call(MetadataRequest(topics=topics), 12).topics
        return answer.error_code, answer.name

    for name in ("m-hidden", "m-mine", "m-other", "", None):
        assert asked(topic_id(guarded, "m-mine"), name) == (ErrorCode.NONE, "m-mine")
        assert asked(topic_id(guarded, "m-hidden"), name) == (DENIED, None)
        assert asked(bytes(15) + b"\x07", name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert "m-other" not in guarded.on_loop(lambda node: node.image.topics)


def test_a_topic_is_not_created_by_who_may_only_look_for_it(
    guarded: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    add_acls(admin, [allow(Operation.DESCRIBE, "n-no"), allow(Operation.DESCRIBE, "n-yes")])
    add_acls(admin, [allow(Operation.CREATE, "n-yes")])
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("n-no", "n-yes")])
    found = {topic.name: topic.error_code for topic in ada.call(asked, 9).topics}
    assert found == {"n-no": DENIED, "n-yes": ErrorCode.NONE}
    assert "n-no" not in guarded.on_loop(lambda node: node.image.topics)


def test_lists_leave_out_what_may_not_be_seen(admin: KnownClient, ada: KnownClient) -> None:
    add_acls(admin, [allow(Operation.DESCRIBE, "l-yes", G), allow(Operation.DESCRIBE, "l-yes", X)])
    for name in ("l-yes", "l-no"):
        patience = Patience("the coordinators take requests")
        member = ShareGroupHeartbeatRequest(
            group_id=name, member_id=MEMBER, member_epoch=0, subscribed_topic_names=["nothing"]
        )
        begun = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
        while admin.call(member, 1).error_code or admin.call(begun, 4).error_code:
            admin.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]), 4)
            admin.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
            patience.check()
    groups = {group.group_id for group in ada.call(ListGroupsRequest(), 5).groups}
    assert "l-yes" in groups and "l-no" not in groups
    ids = {each.transactional_id for each in ada.call(ListTransactionsRequest(), 1).transaction_states}
    assert "l-yes" in ids and "l-no" not in ids
    assert {"l-yes", "l-no"} <= {group.group_id for group in admin.call(ListGroupsRequest(), 5).groups}


def test_operations_on_the_cluster_are_told_to_who_may_describe_it(
    admin: KnownClient, ada: KnownClient
) -> None:
    ada.log_in("User:op")
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert ada.call(asked, 1).cluster_authorized_operations == 0
    add_acls(admin, [allow(Operation.ALTER, CLUSTER_NAME, C, principal="User:op")])
    assert ada.call(asked, 1).cluster_authorized_operations == (
        1 << Operation.ALTER | 1 << Operation.DESCRIBE
    )
    assert ada.call(asked, 1).brokers, "everybody may see the brokers"


def test_a_pattern_matches_only_what_may_be_described(
    guarded: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    make(admin, "r-yes", "r-no")
    add_acls(admin, [allow(Operation.READ, "r-yes"), allow(Operation.READ, "r-group", G)])

    def joins(pattern: str) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id="r-group",
            member_id=MEMBER,
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_regex=pattern,
            topic_partitions=[],
        )
        answer: ConsumerGroupHeartbeatResponse = ada.call(request, 1)
        return answer

    def assigned(pattern: str) -> set[bytes]:
        patience = Patience("the coordinator takes the member")
        while (joined := joins(pattern)).error_code:
            assert joined.error_code != DENIED
            admin.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["r-group"]), 4)
            patience.check(joined)
        assert joined.assignment is not None
        return {each.topic_id for each in joined.assignment.topic_partitions}

    assert joins("r-(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert assigned("r-.*") == {topic_id(guarded, "r-yes")}
    add_acls(admin, [allow(Operation.DESCRIBE, "r-no")])
    assert assigned("r-.*") == {topic_id(guarded, "r-yes"), topic_id(guarded, "r-no")}
