"""Share sessions as clients see them: epochs, partitions that come and go, connections that end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.errors import ErrorCode
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.share_member import (
    LAST,
    RELEASE,
    ShareMember,
    ack,
    configure,
    held,
    join,
    parts,
)
from support.clients.wire_client import WireClient, append, batch, create


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def other(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def topic_id(client: WireClient, topic: str) -> bytes:
    """A topic with two partitions, whose share group has the name of the topic."""
    made = create(client, topic, 2)
    configure(client, topic)
    join(client, topic, topic)
    return made


def test_a_session_is_opened_used_and_closed(client: WireClient, topic: str, topic_id: bytes) -> None:
    append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    assert [(each.offset, each.value, each.deliveries) for each in member.take()] == [
        (0, b"a", 1),
        (1, b"b", 1),
    ]
    assert member.acknowledge(ack(0, 1)) == ErrorCode.NONE
    assert member.close().error_code == ErrorCode.NONE
    assert member.close().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_epochs_are_counted_by_both_requests(client: WireClient, topic: str, topic_id: bytes) -> None:
    append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    member.fetch(wait_ms=1)
    due = member.epoch
    for wrong in (due + 1, due - 1, 2**31 - 1):
        assert member.fetch(epoch=wrong).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert member.acknowledge(ack(0), epoch=wrong) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(ack(0), epoch=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(ack(0)) == ErrorCode.NONE  # nothing of the refused requests has counted
    assert parts(member.fetch(acks={0: [ack(1)]}, wait_ms=0))[0].acknowledge_error_code == ErrorCode.NONE


def test_without_a_session_there_is_nothing_to_go_on_with(
    client: WireClient, topic: str, topic_id: bytes
) -> None:
    member = ShareMember(client, topic, topic_id)
    for epoch in (1, LAST):
        assert member.fetch(epoch=epoch).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.acknowledge(ack(0), epoch=epoch) == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_request_that_opens_a_session_acknowledges_nothing(
    client: WireClient, topic: str, topic_id: bytes
) -> None:
    member = ShareMember(client, topic, topic_id)
    assert member.fetch(epoch=0, acks={0: [ack(0)]}).error_code == ErrorCode.INVALID_REQUEST
    assert member.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("member_id", ["", "x" * 37])
def test_a_member_id_has_1_to_36_characters(
    client: WireClient, topic: str, topic_id: bytes, member_id: str
) -> None:
    member = ShareMember(client, topic, topic_id)
    member.member = member_id
    assert member.fetch().error_code == ErrorCode.INVALID_REQUEST
    assert member.acknowledge(ack(0), epoch=1) == ErrorCode.INVALID_REQUEST


def test_a_request_without_a_group_is_refused(client: WireClient, topic: str, topic_id: bytes) -> None:
    member = ShareMember(client, topic, topic_id)
    request = member.fetch_request()
    request.group_id = None
    assert client.call(request, 2).error_code == ErrorCode.INVALID_REQUEST


def test_partitions_are_answered_when_they_are_new_or_have_something(
    client: WireClient, topic: str, topic_id: bytes
) -> None:
    member = ShareMember(client, topic, topic_id, partitions=(0, 1))
    assert list(parts(member.fetch(wait_ms=1))) == [0, 1]
    assert parts(member.fetch(wait_ms=1)) == {}
    append(client, topic, batch(b"x"), partition=1)
    assert list(parts(member.fetch())) == [1]


def test_a_partition_can_be_forgotten_and_added_again(
    client: WireClient, topic: str, topic_id: bytes
) -> None:
    member = ShareMember(client, topic, topic_id, partitions=(0, 1))
    member.fetch(wait_ms=1)
    append(client, topic, batch(b"x"), partition=1)
    assert parts(member.fetch(forget=[1], wait_ms=1)) == {}
    assert [each.value for each in held(member.fetch(partitions=[1]))] == [b"x"]


def test_a_partition_that_is_forgotten_with_its_last_acknowledgements_is_answered_once(
    client: WireClient, topic: str, topic_id: bytes
) -> None:
    append(client, topic, batch(b"x"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    answer = parts(member.fetch(acks={0: [ack(0)]}, forget=[0], wait_ms=0))
    assert answer[0].acknowledge_error_code == ErrorCode.NONE
    append(client, topic, batch(b"y"))
    assert parts(member.fetch(wait_ms=1)) == {}


def test_a_partition_that_comes_with_acknowledgements_belongs_to_the_session(
    client: WireClient, topic: str, topic_id: bytes
) -> None:
    append(client, topic, batch(b"x"))
    member = ShareMember(client, topic, topic_id)
    member.take()
    member.fetch(acks={0: [ack(0)]}, forget=[0], wait_ms=0)
    append(client, topic, batch(b"y"))
    refused = member.fetch(acks={0: [ack(7)]}, wait_ms=0)
    assert parts(refused)[0].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert [each.value for each in held(refused) or member.take()] == [b"y"]


def test_the_last_request_releases_at_once(
    client: WireClient, other: WireClient, topic: str, topic_id: bytes
) -> None:
    append(client, topic, batch(b"a", b"b"))
    first, second = (ShareMember(each, topic, topic_id) for each in (client, other))
    first.take()
    second.post_fetch()
    assert other.is_silent()
    answer = first.fetch(epoch=LAST, acks={0: [ack(0)]}, wait_ms=0)
    assert parts(answer)[0].acknowledge_error_code == ErrorCode.NONE
    assert [(each.offset, each.deliveries) for each in held(other.read())] == [(1, 2)]


def test_the_last_request_can_be_an_acknowledgement(
    client: WireClient, other: WireClient, topic: str, topic_id: bytes
) -> None:
    append(client, topic, batch(b"a", b"b"))
    first, second = (ShareMember(each, topic, topic_id) for each in (client, other))
    first.take()
    assert first.acknowledge(ack(0), epoch=LAST) == ErrorCode.NONE
    assert [(each.offset, each.deliveries) for each in second.take()] == [(1, 2)]


def test_the_end_of_a_connection_releases_at_once(
    broker: BrokerProcess, other: WireClient, topic: str, topic_id: bytes
) -> None:
    append(other, topic, batch(b"a"))
    second = ShareMember(other, topic, topic_id)
    with WireClient(broker.bootstrap) as dying:
        ShareMember(dying, topic, topic_id).take()
        second.post_fetch()
        assert other.is_silent()
    assert [(each.offset, each.deliveries) for each in held(other.read())] == [(0, 2)]


def test_a_member_that_comes_back_keeps_what_it_holds(
    broker: BrokerProcess, client: WireClient, other: WireClient, topic: str, topic_id: bytes
) -> None:
    append(client, topic, batch(b"a", b"b"))
    with WireClient(broker.bootstrap) as lost:
        before = ShareMember(lost, topic, topic_id)
        before.take()
        after = ShareMember(client, topic, topic_id, member=before.member)
        assert after.take(wait_ms=0) == []
    # The old connection has ended; that releases nothing, because the session is that of the new one.
    assert ShareMember(other, topic, topic_id).take(wait_ms=0) == []
    assert after.acknowledge(ack(0, 1)) == ErrorCode.NONE


def test_a_session_can_go_on_on_another_connection(
    broker: BrokerProcess, client: WireClient, other: WireClient, topic: str, topic_id: bytes
) -> None:
    append(client, topic, batch(b"a", b"b"))
    with WireClient(broker.bootstrap) as lost:
        member = ShareMember(lost, topic, topic_id)
        member.take()
        member.client = client
        assert member.acknowledge(ack(0)) == ErrorCode.NONE
    assert ShareMember(other, topic, topic_id).take(wait_ms=0) == []
    assert member.acknowledge(ack(1)) == ErrorCode.NONE


def test_a_fetch_whose_session_was_replaced_takes_nothing(
    broker: BrokerProcess, client: WireClient, other: WireClient, topic: str, topic_id: bytes
) -> None:
    """It waits on a connection on which the member may not listen any more."""
    with WireClient(broker.bootstrap) as old:
        before = ShareMember(old, topic, topic_id)
        before.fetch(wait_ms=1)
        before.post_fetch()
        assert old.is_silent()
        after = ShareMember(client, topic, topic_id, member=before.member)
        after.fetch(wait_ms=1)
        append(other, topic, batch(b"x"))
        assert [each.value for each in after.take()] == [b"x"]
        assert held(old.read()) == []


def test_a_fetch_whose_session_has_ended_takes_nothing(
    broker: BrokerProcess, client: WireClient, other: WireClient, topic: str, topic_id: bytes
) -> None:
    append(client, topic, batch(b"x"))
    with WireClient(broker.bootstrap) as waiting:
        member = ShareMember(waiting, topic, topic_id)
        member.take()
        member.post_fetch()
        assert waiting.is_silent()
        member.client = client
        member.close()
        assert [(each.value, each.deliveries) for each in ShareMember(other, topic, topic_id).take()] == [
            (b"x", 2)
        ]
        assert held(waiting.read()) == []


def test_a_broker_has_room_for_so_many_sessions(start_broker: StartBroker, topic: str) -> None:
    running = start_broker("group.share.max.share.sessions=2", "group.share.max.size=2")
    with WireClient(running.bootstrap) as client:
        topic_id = create(client, topic)
        join(client, topic, topic)
        members = [ShareMember(client, topic, topic_id) for _ in range(3)]
        answers = [member.fetch(wait_ms=10) for member in members]
        full = ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert [each.error_code for each in answers] == [ErrorCode.NONE, ErrorCode.NONE, full]
        members[0].close()
        assert members[2].fetch(epoch=0, wait_ms=10).error_code == ErrorCode.NONE


def test_a_session_has_room_for_so_many_partitions(start_broker: StartBroker, topic: str) -> None:
    """Also for those that do not exist: each request looks at all of them."""
    broker = start_broker("group.share.max.session.partitions=3")
    with WireClient(broker.bootstrap) as client:
        topic_id = create(client, topic, 3)
        configure(client, topic)
        join(client, topic, topic)
        append(client, topic, batch(b"a"))
        refused = ShareMember(client, topic, topic_id, partitions=range(4)).fetch(wait_ms=0)
        assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert "group.share.max.session.partitions" in refused.error_message
        member = ShareMember(client, topic, topic_id, partitions=range(3))
        assert [each.value for each in member.take()] == [b"a"]
        grown = member.fetch(wait_ms=0, partitions=[3], epoch=member.epoch)
        assert grown.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert member.acknowledge(ack(0)) == ErrorCode.NONE, "the session goes on"


def test_version_1_has_sessions_too(client: WireClient, topic: str, topic_id: bytes) -> None:
    append(client, topic, batch(b"a", b"b"))
    member = ShareMember(client, topic, topic_id)
    assert [each.offset for each in held(member.fetch(version=1))] == [0, 1]
    assert member.acknowledge(ack(0), version=1) == ErrorCode.NONE
    again = member.fetch(version=1, acks={0: [ack(1, 1, RELEASE)]})
    assert parts(again)[0].acknowledge_error_code == ErrorCode.NONE
