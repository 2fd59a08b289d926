"""A view of a topic that gets fewer partitions: closed ones are read to their end, and a group goes on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from support.brokers.broker_process import StartBroker
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin, confluent_consumer, create_topic
from support.waiting import Patience

BEFORE, AFTER = 4, 2
Place = tuple[int, int]
"""A partition and an offset."""


def send(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    """Each to the partition that a client has chosen which still knows four of them."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(topic, b'{"id": %d}' % number, partition=number // 2 % BEFORE)
    assert producer.flush(DEADLINE_SECONDS) == 0


def is_even(value: bytes) -> bool:
    return int(value.split(b":")[1].rstrip(b"}")) % 2 == 0


def read(member: confluent_kafka.Consumer, found: dict[Place, bytes], count: int) -> None:
    """Until there are that many messages in all; none comes twice."""
    patience = Patience(f"{count} messages")
    while len(found) < count:
        patience.check(sorted(found.values()))
        message: Any = member.poll(0.1)
        if message is not None and message.error() is None:
            place = (message.partition(), message.offset())
            assert place not in found
            found[place] = message.value()
            member.commit(message=message, asynchronous=False)


def count_of(consumer: confluent_kafka.Consumer, topic: str) -> int:
    return len(consumer.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions)


def stored(bootstrap: str, topic: str) -> dict[Place, bytes]:
    """The even numbers of the source, where they are."""
    found: dict[Place, bytes] = {}
    with closing(confluent_consumer(bootstrap, enable_partition_eof=True)) as consumer:
        count = count_of(consumer, topic)
        consumer.assign([TopicPartition(topic, index, 0) for index in range(count)])
        patience = Patience("the ends of all partitions")
        while count:
            patience.check(found)
            message: Any = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                count -= 1
            elif is_even(message.value()):
                found[message.partition(), message.offset()] = message.value()
    return found


def test_a_group_on_a_view_goes_on_while_partitions_are_closed_and_go(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker("forebay.fold.grace.ms=0", "log.retention.check.interval.ms=200")
    bootstrap, view = broker.bootstrap, f"{topic}-view"
    create_topic(bootstrap, topic, BEFORE)
    admin = confluent_admin(bootstrap)
    query = {"forebay.view.source": topic, "forebay.view.where": "value.id % 2 = 0"}
    new = NewTopic(view, num_partitions=-1, replication_factor=-1, config=query)
    admin.create_topics([new])[view].result(DEADLINE_SECONDS)
    send(bootstrap, topic, range(80))
    found: dict[Place, bytes] = {}
    member = confluent_consumer(
        bootstrap, group_id="crew", auto_offset_reset="earliest", topic_metadata_refresh_interval_ms=500
    )
    with closing(member):
        member.subscribe([view])
        read(member, found, 40)
        admin.create_partitions([NewPartitions(topic, AFTER)])[topic].result(DEADLINE_SECONDS)
        send(bootstrap, topic, range(80, 120))
        read(member, found, 60)
        assert {partition for partition, _ in found} == set(range(BEFORE))
        assert found == stored(bootstrap, topic), "at the offsets of the source"
        patience = Patience("the closed partitions are gone")
        while (left := count_of(member, view)) > AFTER:
            patience.check(left)
            places = [TopicPartition(topic, index, -1) for index in range(AFTER, left)]
            for future in admin.delete_records(places).values():
                future.exception(DEADLINE_SECONDS)  # it may have gone meanwhile
            member.poll(0.1)
        kept = {place: value for place, value in found.items() if place[0] < AFTER}
        send(bootstrap, topic, range(120, 160))
        read(member, found, 80)
        later = {place: value for place, value in found.items() if place[0] < AFTER}
        assert len(later) == len(kept) + 20, "what is sent for partitions that are gone is in the others"
        assert later == stored(bootstrap, topic)
