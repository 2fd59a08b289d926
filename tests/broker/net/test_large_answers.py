"""Answers that are large although their requests are small: made in parts, and whole for the client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forebay.broker.handlers import list_groups, list_transactions, metadata
from forebay.broker.net.dispatch import Endpoint
from forebay.broker.net.large_requests import LargeRequests
from forebay.broker.net.request_context import RequestContext
from forebay.core.acls.bindings import AclBinding, Operation, PatternType, Permission, ResourceType
from forebay.core.large_requests.answer_parts import TopicsPart, listed_parts, topic_parts
from forebay.errors import ErrorCode
from forebay.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
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
from support.access.principals import ACCESS, KnownClient, add_acls
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import create
from support.waiting import Patience

METADATA, LIST_GROUPS, LIST_TRANSACTIONS = 12, 5, 1
WIDE = 1_700
"""Partitions of a topic: more than three parts."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    settings = {**ACCESS, "auto.create.topics.enable": "false", "forebay.open.before.ready.max": "1"}
    with local_broker(tmp_path_factory.mktemp("answers"), settings) as broker:
        with KnownClient(broker) as admin:
            create(admin, "wide", WIDE)
            create(admin, "small", 3)
        yield broker


@pytest.fixture
def admin(broker: LocalBroker) -> Iterator[KnownClient]:
    with KnownClient(broker) as client:
        yield client


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The parts that handlers were given."""
    parts: list[Any] = []
    serve = LargeRequests._handled

    def note(large: LargeRequests, endpoint: Endpoint, context: RequestContext, *rest: Any) -> Any:
        parts.append(context.part)
        return serve(large, endpoint, context, *rest)

    monkeypatch.setattr(LargeRequests, "_handled", note)
    return parts


@pytest.mark.parametrize("names", [None, ["wide", "small"], ["none", "small", "wide"]])
def test_a_topic_with_many_partitions_is_described_some_of_them_at_a_time(
    admin: KnownClient, handled: list[Any], names: list[str] | None
) -> None:
    asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    answer = admin.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), METADATA)
    found = {
        topic.name: [each.partition_index for each in topic.partitions]
        for topic in answer.topics
        if not topic.is_internal
    }
    whole = {"wide": list(range(WIDE)), "small": [0, 1, 2]}
    assert found == (whole if names is None else {name: whole.get(name, []) for name in names})
    assert len(answer.brokers) == 1
    cut = [part.partitions for part in handled if part is not None and part.partitions != slice(None)]
    assert cut == [slice(0, 500), slice(500, 1000), slice(1000, 1500), slice(1500, None)]


def test_topics_that_are_small_are_described_at_once(admin: KnownClient, handled: list[Any]) -> None:
    asked = [MetadataRequestTopic(name="small")]
    answer = admin.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), METADATA)
    assert [len(topic.partitions) for topic in answer.topics] == [3]
    assert handled == []


def test_parts_have_so_many_topics_and_partitions_and_leave_none_out() -> None:
    sizes = [(f"t{number}", number % 7 + 1) for number in range(400)]
    sizes.insert(100, ("wide", 1_001))
    parts = list(topic_parts(sizes))
    assert [name for part in parts for name in part.names or () if part.partitions.start in (None, 0)] == [
        name for name, _ in sizes
    ]
    known = dict(sizes)
    assert all(len(part.names or ()) <= 50 for part in parts)
    assert all(
        sum(known[name] for name in part.names or ()) <= 500 for part in parts if part.names != ["wide"]
    )
    assert TopicsPart(["wide"], slice(1000, None)) in parts
    assert [len(part.names) for part in listed_parts(0, ["x"] * 600, 10)] == [250, 250, 100]
    assert [len(part.names) for part in listed_parts(0, ["x"] * 600, 400)] == [400, 200]


# -- lists of groups and transactions --------------------------------------------------------------------


def commit(client: KnownClient, group_id: str) -> None:
    wanted = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="small", partitions=[wanted])],
    )
    patience = Patience("the coordinator answers")
    while client.call(request, 9).topics[0].partitions[0].error_code:
        patience.check()


def test_many_groups_are_listed_some_at_a_time_and_each_of_them_once(
    broker: LocalBroker, admin: KnownClient, handled: list[Any]
) -> None:
    admin.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
    names = [f"group-{number}" for number in range(1_100)]
    for name in names:
        commit(admin, name)
    answer = admin.call(ListGroupsRequest(), LIST_GROUPS)
    assert answer.error_code == ErrorCode.NONE
    assert sorted(group.group_id for group in answer.groups) == sorted(names)
    assert len(handled) > 4 and max(len(part.names) for part in handled) <= 250
    assert admin.call(ListGroupsRequest(states_filter=["dead"]), LIST_GROUPS).groups == []
    rule = AclBinding(
        ResourceType.GROUP,
        PatternType.LITERAL,
        "group-77",
        "User:bea",
        "*",
        Operation.DESCRIBE,
        Permission.ALLOW,
    )
    add_acls(admin, [rule])
    with KnownClient(broker, "User:bea") as bea:
        assert [group.group_id for group in bea.call(ListGroupsRequest(), LIST_GROUPS).groups] == ["group-77"]


def test_many_transactions_are_listed_some_at_a_time_and_each_of_them_once(
    admin: KnownClient, handled: list[Any]
) -> None:
    admin.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 6)
    names = [f"txn-{number}" for number in range(300)]
    patience = Patience("the coordinator answers")
    for name in names:
        wanted = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        while admin.call(wanted, 4).error_code:
            patience.check()
    answer = admin.call(ListTransactionsRequest(state_filters=["Empty", "odd", "even"]), LIST_TRANSACTIONS)
    assert sorted(each.transactional_id for each in answer.transaction_states) == sorted(names)
    assert answer.unknown_state_filters == ["odd", "even"], "once, however many parts there were"
    assert len(handled) >= 2


# -- who may see nothing ---------------------------------------------------------------------------------


def test_nothing_is_made_for_who_may_see_nothing(
    broker: LocalBroker, admin: KnownClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much there is: the request has 23 bytes."""
    made: list[Any] = []

    def note(*args: Any) -> Any:
        made.append(args)
        raise AssertionError("nobody may see it")

    with KnownClient(broker, "User:eve") as eve:
        assert (
            eve.call(MetadataRequest(topics=None), METADATA).topics == []
        )  # its handler is bound from now on
        monkeypatch.setattr(metadata, "_partition", note)
        monkeypatch.setattr(list_groups, "ListGroupsResponse", note)
        monkeypatch.setattr(list_transactions, "ListTransactionsResponse", note)
        for version in (0, METADATA):
            every = MetadataRequest(topics=[] if version == 0 else None)
            answer = eve.call(every, version)
            assert answer.topics == [] and len(answer.brokers) == 1
        assert eve.call(ListGroupsRequest(), LIST_GROUPS).groups == []
        filters = ListTransactionsRequest(state_filters=["odd"])
        listed = eve.call(filters, LIST_TRANSACTIONS)
        assert (listed.transaction_states, listed.unknown_state_filters) == ([], ["odd"])
        described = eve.call(DescribeTopicPartitionsRequest(topics=[]), 0)
        assert (described.topics, described.next_cursor) == ([], None)
    assert made == []
