"""Requests with many elements: answered whole and in order, in slices between which others are served."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.broker import large_answers
from forebay.broker.net import dispatch
from forebay.broker.net.dispatch import Endpoint
from forebay.broker.net.large_requests import LargeRequests
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.scheduling.slices import Place, Room
from forebay.broker.yielding.core_shortage import CoreShortage
from forebay.core.large_requests import answer_parts
from forebay.errors import ErrorCode
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from forebay.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from forebay.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from forebay.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from forebay.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from forebay.wire.messages.describe_groups import DescribeGroupsRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.access.principals import ACCESS, KnownClient
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import FETCH, WireClient, batch, create, fetch, read_all
from support.waiting import Patience, readable

OLD, NEW = 9, 13
"""Versions of Metadata: only the newer one can say that the request as a whole is wrong."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path, {**ACCESS, "auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.fixture
def admin(broker: LocalBroker) -> Iterator[KnownClient]:
    with KnownClient(broker) as client:
        yield client


@pytest.fixture
def ada(broker: LocalBroker) -> Iterator[KnownClient]:
    """A client of a principal that nothing is allowed."""
    with KnownClient(broker, "User:ada") as client:
        yield client


@pytest.fixture
def many_topics(admin: KnownClient) -> list[str]:
    names = [f"topic-{number}" for number in range(120)]
    wanted = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    made = admin.call(CreateTopicsRequest(topics=wanted, timeout_ms=30_000), 7)
    assert not any(topic.error_code for topic in made.topics)
    return names


def named(count: int) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=f"t{number}") for number in range(count)],
        allow_auto_topic_creation=False,
    )


def test_topics_are_described_in_the_order_in_which_they_were_named(admin: KnownClient) -> None:
    create(admin, "t7", 3)
    create(admin, "t49999")
    answer = admin.call(named(50_000), NEW)
    assert [topic.name for topic in answer.topics] == [f"t{number}" for number in range(50_000)]
    found = [topic for topic in answer.topics if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [(topic.name, len(topic.partitions)) for topic in found] == [("t7", 3), ("t49999", 1)]
    assert [each.node_id for each in answer.brokers] == [1], "once, however many pieces there were"


def test_who_may_see_nothing_is_told_so_of_every_topic(ada: KnownClient) -> None:
    answer = ada.call(named(3_000), OLD)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert len(answer.topics) == 3_000
    groups = [f"g{number}" for number in range(3_000)]
    described = ada.call(DescribeGroupsRequest(groups=groups), 5).groups
    assert [group.group_id for group in described] == groups
    assert {group.error_code for group in described} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_others_are_served_while_a_large_request_is_handled(ada: KnownClient, admin: KnownClient) -> None:
    ada.post(named(100_000), NEW)
    for _ in range(10):
        assert admin.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
    assert not readable([ada.socket], 0), "it was answered before the others"
    assert len(ada.read().topics) == 100_000


def test_a_user_who_had_much_where_cores_are_short_rests_before_the_next_and_holds_nothing_meanwhile(
    broker: LocalBroker, ada: KnownClient, admin: KnownClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KnownClient(broker, "User:bob") as bob, monkeypatch.context() as short:
        short.setattr(CoreShortage, "part", 0.9)
        for client in (admin, ada):
            client.call(named(20_000), NEW)  # which take much more than the credit of a second
        rests = broker.on_loop(lambda node: node._large_requests.debts.rests)
        assert list(rests._until_s) == ["User:ada"]
        rests._until_s["User:ada"] = float("inf")
        ada.post(named(99_000), NEW)
        short.setattr(CoreShortage, "part", 0.0)  # the others would rest after each of two thousand slices
        for client in (bob, admin):  # each of whom needs all the room that one client may have
            assert len(client.call(named(99_000), NEW).topics) == 99_000
        assert not readable([ada.socket], 0), "it was answered while its user rests"
        broker.on_loop(lambda _: rests.clear())
        assert len(ada.read().topics) == 99_000


def test_requests_behind_a_large_one_are_answered_behind_it(admin: KnownClient) -> None:
    admin.socket.sendall(
        b"".join(
            [
                admin.frame(named(20_000), NEW),
                admin.frame(ApiVersionsRequest(), 3),
                admin.frame(named(1_000), OLD),
                admin.frame(ApiVersionsRequest(), 3),
            ]
        )
    )
    answers = [admin.read() for _ in range(4)]
    kinds = [MetadataResponse, ApiVersionsResponse] * 2
    assert [type(answer) for answer in answers] == kinds
    assert [len(answer.topics) for answer in answers[::2]] == [20_000, 1_000]


def test_a_request_with_too_many_elements_is_refused_with_what_to_do(
    ada: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert ada.call(named(100_001), NEW).error_code == ErrorCode.INVALID_REQUEST
        assert ada.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE, "the connection goes on"
        ada.post(named(100_001), OLD)
        assert ada.is_closed(), "older versions have no place for the error"
    reasons = [str(record.__dict__.get("reason", "")) for record in caplog.records]
    assert sum("raise forebay.request.elements.max" in reason for reason in reasons) == 2


def test_the_most_elements_are_a_setting(tmp_path: Path) -> None:
    settings = {"forebay.request.elements.max": "10000"}
    with local_broker(tmp_path, settings) as broker, KnownClient(broker) as client:
        assert len(client.call(named(10_000), NEW).topics) == 10_000
        assert client.call(named(10_001), NEW).error_code == ErrorCode.INVALID_REQUEST


def test_what_cannot_be_handled_in_pieces_may_have_fewer_elements(admin: KnownClient) -> None:
    create(admin, "t", 2)
    assert len(admin.call(fetch("t", partitions=range(19_999)), FETCH).responses[0].partitions) == 19_999
    assert admin.call(fetch("t", partitions=range(20_000)), FETCH).error_code == ErrorCode.INVALID_REQUEST


def test_clients_that_go_away_leave_nothing_behind(broker: LocalBroker, admin: KnownClient) -> None:
    for _ in range(4):
        with KnownClient(broker, "User:ada") as leaving:
            leaving.post(named(60_000), NEW)
    assert len(admin.call(named(60_000), NEW).topics) == 60_000
    patience = Patience("their requests are given up")
    while broker.on_loop(lambda node: node._large_requests._room._total):
        patience.check()


def for_partitions(count: int, acks: int) -> ProduceRequest:
    """A message for each of many partitions."""
    records = memoryview(batch(b"x"))
    data = [PartitionProduceData(index=index, records=records) for index in range(count)]
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


@pytest.mark.parametrize("acks", [-1, 1])
def test_messages_for_many_partitions_are_all_answered(admin: KnownClient, acks: int) -> None:
    create(admin, "t", 2)
    (topic,) = admin.call(for_partitions(2_402, acks), 9).responses
    assert [each.index for each in topic.partition_responses] == list(range(2_402))
    codes = [each.error_code for each in topic.partition_responses]
    assert codes == [ErrorCode.NONE] * 2 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2_400
    assert [read_all(admin, "t", partition) for partition in (0, 1)] == [[(0, b"x")]] * 2


def test_messages_for_many_partitions_without_an_answer_are_written(
    admin: KnownClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "AT_ONCE_ELEMENTS_MAX", 100)
    create(admin, "t", 300)
    admin.post(for_partitions(300, acks=0), 9)
    assert admin.call(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE
    assert read_all(admin, "t", 299) == [(0, b"x")]


def test_a_fetch_of_many_partitions_is_answered_as_a_whole(admin: KnownClient) -> None:
    create(admin, "t", 2)
    admin.call(for_partitions(2_402, 1), 9)
    admin.post(fetch("t", partitions=range(2_402), max_wait_ms=60_000, min_bytes=1 << 20), FETCH)
    admin.post(ApiVersionsRequest(), 3)
    (topic,) = admin.read().responses
    assert [bool(each.records) for each in topic.partitions[:3]] == [True, True, False]
    assert len(topic.partitions) == 2_402
    assert isinstance(admin.read(), ApiVersionsResponse)


def test_settings_of_a_resource_that_is_named_twice_are_not_altered_wherever_it_stands(
    admin: KnownClient,
) -> None:
    create(admin, "twice")
    create(admin, "once")
    names = ["twice", *(f"n{number}" for number in range(2_500)), "twice", "once"]
    resources = [AlterConfigsResource(resource_type=2, resource_name=name) for name in names]
    answer = admin.call(AlterConfigsRequest(resources=resources, validate_only=True), 2)
    codes: dict[str, set[int]] = {}
    for each in answer.responses:
        codes.setdefault(each.resource_name, set()).add(each.error_code)
    assert codes["twice"] == {ErrorCode.INVALID_REQUEST} and codes["once"] == {ErrorCode.NONE}
    assert len(answer.responses) == len(names)


def test_a_resource_that_is_asked_for_often_is_described_once(admin: KnownClient) -> None:
    create(admin, "t")
    wanted = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
    other = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
    answer = admin.call(DescribeConfigsRequest(resources=[wanted, other] * 5_000), 4)
    assert [len(result.configs) > 1 for result in answer.results] == [True, False]


def test_offsets_of_many_partitions_are_committed_and_found(admin: KnownClient) -> None:
    create(admin, "t", 600)
    admin.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in range(600)
    ]
    commit = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=offsets)]
    )
    (topic,) = admin.call(commit, 9).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE] * 600
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(600)))]
    (group,) = admin.call(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)]), 9
    ).groups
    assert [each.committed_offset for each in group.topics[0].partitions] == list(range(600))


def test_offsets_of_a_topic_with_many_partitions_are_listed_as_one_topic(admin: KnownClient) -> None:
    create(admin, "t", 600)
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(600)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=wanted)])
    (topic,) = admin.call(request, 7).topics
    assert [(each.partition_index, each.offset) for each in topic.partitions] == [
        (index, 0) for index in range(600)
    ]


def test_partitions_of_a_transaction_are_added_all_or_none(admin: KnownClient) -> None:
    create(admin, "t", 2)
    topics = [AddPartitionsToTxnTopic(name="t", partitions=list(range(19_999)))]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_topics=topics
    )
    (topic,) = admin.call(request, 3).results_by_topic_v3_and_below
    codes = [each.partition_error_code for each in topic.results_by_partition]
    assert codes[:2] == [ErrorCode.OPERATION_NOT_ATTEMPTED] * 2
    assert codes[2:] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 19_997


def test_large_fetches_that_wait_for_messages_make_room_for_other_large_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are answered with what there is. Else all that is large would wait for as long as they do."""
    monkeypatch.setattr(dispatch, "AT_ONCE_ELEMENTS_MAX", 100)
    partitions = range(200)
    with (
        local_broker(tmp_path, {"forebay.request.elements.max": "10000"}) as broker,
        WireClient(broker.bootstrap) as client,
        contextlib.ExitStack() as stack,
    ):
        create(client, "t", len(partitions))
        sources = ["127.0.0.2", "127.0.0.3"] * 6
        waiting = [stack.enter_context(WireClient(broker.bootstrap, source=source)) for source in sources]
        for each in waiting:
            each.post(fetch("t", partitions=partitions, max_wait_ms=600_000), FETCH)
        room = broker.node._large_requests._room
        patience = Patience("all of the room is taken")
        while room._total < 20_000:
            patience.check()
        assert len(client.call(named(9_000), OLD).topics) == 9_000
        assert readable([each.socket for each in waiting], 60), "with nothing, before its time"


def test_large_requests_of_brokers_do_not_wait_for_those_of_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may wait for them: a message is acknowledged when replicas have fetched it."""
    monkeypatch.setattr(dispatch, "AT_ONCE_ELEMENTS_MAX", 100)
    partitions = range(200)
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", len(partitions))

        room = broker.node._large_requests._room

        async def take_all() -> list[Place]:
            return [await room.take(who, 100_000, 100_000) for who in ("ada", "bob")]

        places = asyncio.run_coroutine_threadsafe(take_all(), broker.node.loop).result()
        client.post(named(5_000), OLD)
        assert client.is_silent()
        with WireClient(broker.bootstrap) as other:
            other.socket.sendall(
                other.frame(fetch("t", partitions=partitions), FETCH, client_id="forebay-broker-2")
            )
            other.socket.settimeout(10)
            try:
                answered = len(other.read().responses[0].partitions)
            finally:
                for place in places:
                    broker.node.loop.call_soon_threadsafe(place.give_back)
            assert answered == len(partitions)
        assert len(client.read().topics) == 5_000


async def test_what_waits_for_others_takes_no_room_meanwhile() -> None:
    room = Room(asyncio.get_running_loop())
    places = [await room.take(who, 10, 10) for who in ("ada", "bob")]
    third = asyncio.ensure_future(room.take("cleo", 10, 10))
    await asyncio.sleep(0)
    assert not third.done()
    with places[0].waiting(None):
        place = await third
    places[0].give_back()
    for each in (places[1], place):
        each.give_back()
    assert (room._total, room._taken) == (0, {})


# -- all topics ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, OLD, NEW])
def test_all_topics_of_a_cluster_that_has_many_are_described_some_at_a_time(
    broker: LocalBroker,
    admin: KnownClient,
    many_topics: list[str],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    handled: list[int] = []
    serve = LargeRequests._handled

    def note(large: LargeRequests, endpoint: Endpoint, context: RequestContext, *rest: Any) -> Any:
        handled.append(len(context.part.names))
        return serve(large, endpoint, context, *rest)

    monkeypatch.setattr(LargeRequests, "_handled", note)
    answer = admin.call(MetadataRequest(topics=[] if version == 0 else None), version)
    assert sorted(topic.name for topic in answer.topics) == sorted(many_topics)
    assert all(len(topic.partitions) == 2 and not topic.error_code for topic in answer.topics)
    assert len(answer.brokers) == 1
    assert handled == [50, 50, 20]
    patience = Patience("what was answered takes no room any more")
    while broker.on_loop(lambda node: node._large_requests._room._total + node.server.memory.used_bytes):
        patience.check()


def test_who_may_see_no_topic_is_shown_none_of_many(broker: LocalBroker, many_topics: list[str]) -> None:
    with KnownClient(broker, "User:eve") as eve:
        assert many_topics and eve.call(MetadataRequest(topics=None), NEW).topics == []


def test_a_topic_that_is_deleted_meanwhile_is_left_out(
    broker: LocalBroker, admin: KnownClient, many_topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answer_parts.topic_parts
    monkeypatch.setattr(large_answers, "topic_parts", lambda sizes: found([*sizes, ("gone", 1)]))
    answer = admin.call(MetadataRequest(topics=None), NEW)
    assert sorted(topic.name for topic in answer.topics) == sorted(many_topics)
