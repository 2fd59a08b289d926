"""A log that has lost what a share group had got: the group is given what has the offsets now."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from forebay.errors import ErrorCode
from forebay.wire.batch import split
from forebay.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.share_member import Held, ShareMember, ack, configure, join
from support.clients.wire_client import WireClient, append, batch, create
from support.waiting import Patience

NOT_SYNCED = ("forebay.flush.policy=interval", "log.flush.interval.ms=3600000")


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def lose_power(broker: BrokerProcess, topic: str, from_offset: int) -> None:
    """What the disk was not made to keep is gone, and the machine starts anew."""
    broker.kill()
    (file,) = (broker.data / f"{topic}-0").glob("*.log")
    headers = split(memoryview(file.read_bytes()))
    os.truncate(file, next(position for position, header in headers if header.base_offset == from_offset))
    (broker.data / "boot-id").write_text("the boot before")


def send(client: WireClient, topic: str, *values: bytes) -> list[int]:
    return [append(client, topic, batch(value)).base_offset for value in values]


def got(member: ShareMember, count: int) -> list[bytes | None]:
    found: list[Held] = []
    while len(found) < count:
        found += member.take()
    return [each.value for each in found]


def test_messages_that_have_the_offsets_of_lost_ones_are_delivered(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker(*NOT_SYNCED)
    with WireClient(broker.bootstrap) as client:
        topic_id = create(client, topic)
        configure(client, topic)
        join(client, topic, topic)
        send(client, topic, *(b"old%d" % number for number in range(10)))
        member = ShareMember(client, topic, topic_id)
        assert len(got(member, 10)) == 10
        assert member.acknowledge(ack(0, 2), ack(4, 9)) == ErrorCode.NONE
    lose_power(broker, topic, 6)
    broker.restart()
    new = [b"new%d" % number for number in range(6)]
    with WireClient(broker.bootstrap) as client:
        assert send(client, topic, *new) == [6, 7, 8, 9, 10, 11], "before the state is loaded"
        member = ShareMember(client, topic, topic_id)
        assert got(member, 7) == [b"old3", *new], "and nothing else that was accepted"
        assert member.acknowledge(ack(3), ack(6, 8)) == ErrorCode.NONE
    broker.restart()
    with WireClient(broker.bootstrap) as client:
        assert got(ShareMember(client, topic, topic_id), 3) == new[3:]
    assert "messages that a share group had got are lost" in broker.log()


def test_they_are_delivered_also_if_the_group_comes_back_leaders_later(
    start_broker: StartBroker, topic: str
) -> None:
    """By then the log is longer than it was before, and ends behind all that the group had got."""
    broker = start_broker(*NOT_SYNCED)
    with WireClient(broker.bootstrap) as client:
        topic_id = create(client, topic)
        configure(client, topic)
        join(client, topic, topic)
        send(client, topic, *(b"old%d" % number for number in range(10)))
        member = ShareMember(client, topic, topic_id)
        assert len(got(member, 10)) == 10
        assert member.acknowledge(ack(0, 2), ack(4, 9)) == ErrorCode.NONE
    lose_power(broker, topic, 6)
    new = [b"new%d" % number for number in range(8)]
    for some in (new[:3], new[3:6], new[6:]):
        broker.restart()
        with WireClient(broker.bootstrap) as client:
            send(client, topic, *some)
    broker.restart()
    with WireClient(broker.bootstrap) as client:
        assert got(ShareMember(client, topic, topic_id), 9) == [b"old3", *new]


def test_an_offset_that_an_administrator_has_chosen_is_no_loss(client: WireClient, topic: str) -> None:
    """Though it lies behind where the log ended when the broker began to lead."""
    topic_id = create(client, topic)
    configure(client, topic)
    send(client, topic, b"a", b"b", b"c")
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)
    wanted = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])
    client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[topic]), 6)
    patience = Patience("the group's coordinator answers")
    while (
        answer := client.call(AlterShareGroupOffsetsRequest(group_id=topic, topics=[wanted]), 0)
    ).error_code:
        patience.check(answer)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    join(client, topic, topic)
    assert got(ShareMember(client, topic, topic_id), 1) == [b"c"]
