"""What groups do for the programs in them, with real clients: assignments, offsets, administration."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions

from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from forebay.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from support.brokers.broker_process import BrokerProcess
from support.chaos.membership import generation_of
from support.clients.group_member import Member, poll_until
from support.clients.kafka_clients import (
    CLIENTS,
    DEADLINE_SECONDS,
    Message,
    confluent_admin,
    confluent_consumer,
    create_topic,
    kafka_python,
)
from support.clients.wire_client import WireClient

Members = Callable[..., Member]


@pytest.fixture
def members(broker: BrokerProcess) -> Iterator[Members]:
    """`members(topic, setting=...)`: members of a group with the name of the topic."""
    with contextlib.ExitStack() as stack:

        def join(topic: str, **settings: Any) -> Member:
            member = Member(broker.bootstrap, topic, **settings)
            stack.callback(member.consumer.close)
            return member

        yield join


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_are_shared(broker: BrokerProcess, topic: str, members: Members, strategy: str) -> None:
    create_topic(broker.bootstrap, topic, 6)
    crowd = [members(topic, partition_assignment_strategy=strategy) for _ in range(3)]
    poll_until(lambda: [len(member.owns) for member in crowd] == [2, 2, 2], *crowd)
    assert set().union(*(member.numbers for member in crowd)) == set(range(6))


def test_a_cooperative_member_keeps_what_it_can(broker: BrokerProcess, topic: str, members: Members) -> None:
    create_topic(broker.bootstrap, topic, 4)
    first = members(topic, partition_assignment_strategy="cooperative-sticky")
    poll_until(lambda: len(first.owns) == 4, first)
    second = members(topic, partition_assignment_strategy="cooperative-sticky")
    poll_until(lambda: len(second.owns) == 2, first, second)
    assert first.taken == [second.numbers]
    assert first.numbers | second.numbers == set(range(4))


def test_a_static_member_comes_back_to_its_own(broker: BrokerProcess, topic: str, members: Members) -> None:
    create_topic(broker.bootstrap, topic, 4)
    stays, goes = members(topic, group_instance_id="a"), members(topic, group_instance_id="b")
    poll_until(lambda: len(stays.owns) == len(goes.owns) == 2, stays, goes)
    generation, had = generation_of(stays.consumer), goes.numbers
    goes.consumer.close()
    back = members(topic, group_instance_id="b")
    poll_until(lambda: len(back.owns) == 2, stays, back)
    assert back.numbers == had
    assert generation_of(stays.consumer) == generation_of(back.consumer) == generation


def test_of_two_with_one_instance_id_the_first_is_fenced(
    broker: BrokerProcess, topic: str, members: Members
) -> None:
    create_topic(broker.bootstrap, topic)
    first = members(topic, group_instance_id="only")
    poll_until(lambda: len(first.owns) == 1, first)
    second = members(topic, group_instance_id="only")
    poll_until(lambda: len(second.owns) == 1, second)
    errors: list[Any] = []

    def fenced() -> bool:
        try:
            message = first.consumer.poll(0.02)
        except KafkaException as problem:
            errors.append(problem.args[0].code())
            return True
        error = None if message is None else message.error()
        if error is not None:
            errors.append(error.code())
        return bool(errors)

    poll_until(fenced, second)
    assert set(errors) <= {KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL}


def test_added_partitions_are_assigned(broker: BrokerProcess, topic: str, members: Members) -> None:
    create_topic(broker.bootstrap, topic, 2)
    crowd = [members(topic), members(topic)]
    poll_until(lambda: all(len(member.owns) == 1 for member in crowd), *crowd)
    admin = confluent_admin(broker.bootstrap)
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(DEADLINE_SECONDS)
    poll_until(lambda: all(len(member.owns) == 3 for member in crowd), *crowd)


def test_topics_that_match_a_pattern_are_assigned_as_they_come(
    broker: BrokerProcess, topic: str, members: Members
) -> None:
    create_topic(broker.bootstrap, f"{topic}-a", 1)
    member = members(f"^{topic}-.*")
    poll_until(lambda: member.owns == {(f"{topic}-a", 0)}, member)
    create_topic(broker.bootstrap, f"{topic}-b", 2)
    poll_until(lambda: len(member.owns) == 3, member)
    admin = confluent_admin(broker.bootstrap)
    admin.delete_topics([f"{topic}-a"])[f"{topic}-a"].result(DEADLINE_SECONDS)
    poll_until(lambda: member.owns == {(f"{topic}-b", 0), (f"{topic}-b", 1)}, member)


def test_a_group_goes_on_where_it_was_after_kill_9(fresh_broker: BrokerProcess, topic: str) -> None:
    broker = fresh_broker
    create_topic(broker.bootstrap, topic)
    values = [b"%d" % n for n in range(20)]
    CLIENTS[0].produce(broker.bootstrap, topic, [Message(value) for value in values])
    read: list[bytes] = []
    for end in (7, 13, 20):
        member = Member(broker.bootstrap, topic)
        try:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while len(read) < end:
                assert time.monotonic() < deadline, read
                message = member.consumer.poll(0.1)
                if message is not None and message.error() is None:
                    read.append(message.value() or b"")
                    member.consumer.commit(message=message, asynchronous=False)
        finally:
            member.consumer.close()
        broker.kill()
        broker.restart()
    assert read == values


# -- offsets and administration, with each client ------------------------------------------------------


@pytest.fixture
def group(broker: BrokerProcess, topic: str) -> str:
    """A group without members that has committed 3 of 10 in one partition, and 4 in the other."""
    create_topic(broker.bootstrap, topic, 2)
    messages = [Message(b"%d" % n, partition=n % 2) for n in range(20)]
    CLIENTS[0].produce(broker.bootstrap, topic, messages)
    commit(broker.bootstrap, topic, 3, 4)
    return topic


def commit(bootstrap: str, group: str, *offsets: int) -> None:
    consumer = confluent_consumer(bootstrap, group_id=group)
    try:
        places = [TopicPartition(group, number, offset) for number, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str) -> list[int]:
    """By partition; -1001 where nothing is committed."""
    consumer = confluent_consumer(bootstrap, group_id=group)
    try:
        places = [TopicPartition(group, number) for number in range(2)]
        return [place.offset for place in consumer.committed(places, DEADLINE_SECONDS)]
    finally:
        consumer.close()


def test_administration_by_confluent(broker: BrokerProcess, group: str) -> None:
    admin = confluent_admin(broker.bootstrap)
    listed = admin.list_consumer_groups().result(DEADLINE_SECONDS).valid
    assert group in {each.group_id for each in listed}
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_SECONDS)
    assert sorted((place.partition, place.offset) for place in found.topic_partitions) == [(0, 3), (1, 4)]
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(group, 1, 9)])
    admin.alter_consumer_group_offsets([wanted])[group].result(DEADLINE_SECONDS)
    assert committed(broker.bootstrap, group) == [3, 9]
    admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    assert committed(broker.bootstrap, group) == [-1001, -1001]


def test_administration_by_kafka_python(broker: BrokerProcess, group: str) -> None:
    place = kafka_python.TopicPartition
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        assert group in {each["group_id"] for each in admin.list_groups()}
        assert admin.describe_groups([group])[group]["group_state"] == "Empty"
        found = admin.list_group_offsets(group)[group]
        assert {each.partition: offset.offset for each, offset in found.items()} == {0: 3, 1: 4}
        metadata = kafka_python.structs.OffsetAndMetadata
        admin.alter_group_offsets(group, {place(group, 0): metadata(8, "moved", -1)})
        assert committed(broker.bootstrap, group) == [8, 4]
        admin.delete_group_offsets(group, [place(group, 1)])
        assert committed(broker.bootstrap, group) == [8, -1001]
        admin.delete_groups([group])
        assert group not in {each["group_id"] for each in admin.list_groups()}
    finally:
        admin.close()


def test_administration_by_aiokafka(broker: BrokerProcess, group: str) -> None:
    async def look() -> tuple[Any, Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            return await admin.list_consumer_groups(), await admin.list_consumer_group_offsets(group)
        finally:
            await admin.close()

    groups, offsets = asyncio.run(look())
    assert group in {each[0] for each in groups}
    assert {place.partition: found.offset for place, found in offsets.items()} == {0: 3, 1: 4}


def test_a_commit_of_a_member_that_was_left_behind_is_refused(
    broker: BrokerProcess, topic: str, members: Members
) -> None:
    """Its partitions belong to another generation, in which others may read them."""
    create_topic(broker.bootstrap, topic, 2)
    old = members(topic, session_timeout_ms=1_000, max_poll_interval_ms=1_000, heartbeat_interval_ms=100)
    poll_until(lambda: len(old.owns) == 2, old)
    new = members(topic)
    # It never polls again, and is given up for it.
    poll_until(lambda: len(new.owns) == 2, new)
    with pytest.raises(KafkaException) as refused:
        old.consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    assert refused.value.args[0].code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
    assert committed(broker.bootstrap, topic) == [-1001, -1001]
    # librdkafka may hang in close() when it has not yet told of what was lost.
    poll_until(lambda: bool(old.taken), old)


def test_ten_thousand_groups_are_there_after_a_restart(fresh_broker: BrokerProcess, topic: str) -> None:
    count = 10_000
    create_topic(fresh_broker.bootstrap, topic)
    # A client asks for its coordinator, which makes the topic for it.
    commit(fresh_broker.bootstrap, topic, 0)
    with contextlib.ExitStack() as stack:
        # A connection has one commit at a time.
        clients = [stack.enter_context(WireClient(fresh_broker.bootstrap)) for _ in range(50)]
        for start in range(0, count, len(clients)):
            for number, client in enumerate(clients, start):
                client.post(commit_request(topic, number), 8)
            for client in clients:
                assert client.read().topics[0].partitions[0].error_code == 0
    fresh_broker.kill()
    fresh_broker.restart()
    asked = [OffsetFetchRequestGroup(group_id=f"group-{n}", topics=None) for n in range(0, count, 97)]
    deadline = time.monotonic() + DEADLINE_SECONDS
    with WireClient(fresh_broker.bootstrap) as client:
        while True:
            client.post(OffsetFetchRequest(groups=asked), 8)
            groups = client.read().groups
            if not any(group.error_code for group in groups):
                break
            assert time.monotonic() < deadline, "the groups are still being loaded"
            time.sleep(0.05)
    found = {group.group_id: group.topics[0].partitions[0].committed_offset for group in groups}
    assert found == {f"group-{n}": n for n in range(0, count, 97)}


def commit_request(topic: str, number: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
    return OffsetCommitRequest(
        group_id=f"group-{number}",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
