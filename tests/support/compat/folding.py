"""Fewer partitions as programs in other languages live through them: is everything where it belongs?"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from forebay.client import Admin
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin, confluent_consumer

Stored = dict[int, dict[int, str]]
"""Of each partition: the committed messages by their offsets."""


def set_partitions(bootstrap: str, topic: str, count: int) -> None:
    admin = confluent_admin(bootstrap)
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(DEADLINE_SECONDS)


def stored(bootstrap: str, topic: str, partitions: Iterable[int]) -> Stored:
    found: Stored = {index: {} for index in partitions}
    consumer = confluent_consumer(
        bootstrap, enable_partition_eof=True, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    with closing(consumer):
        consumer.assign([TopicPartition(topic, index, 0) for index in found])
        left = set(found)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while left:
            assert time.monotonic() < deadline, f"the end of {left} was not reached"
            message: Any = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is None:
                found[message.partition()][message.offset()] = message.value().decode()
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    return found


def is_read(bootstrap: str, topic: str, group: str, wanted: Stored) -> bool:
    """Whether the group has committed that it has read all of these."""
    with Admin(bootstrap) as admin:
        committed = admin.committed(group)
    return all(
        committed.get((topic, index), 0) > max(messages) for index, messages in wanted.items() if messages
    )


def delete_closed(bootstrap: str, topic: str, first: int) -> bool:
    """Delete what the partitions from this one on hold, as retention would; whether they are gone."""
    with closing(confluent_consumer(bootstrap)) as consumer:
        count = len(consumer.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions)
    places = [TopicPartition(topic, index, -1) for index in range(first, count)]
    if places:
        admin = confluent_admin(bootstrap)  # what it was asked ends with it
        for future in admin.delete_records(places).values():
            try:
                future.result(DEADLINE_SECONDS)
            except confluent_kafka.KafkaException:
                continue  # it has gone meanwhile
    return not places


def check(
    acknowledged: Mapping[str, Mapping[str, int]], found: Stored, count: int, *, reconnected: bool = False
) -> None:
    """Every message of every producer is there once and in order, in the partitions that it belongs to.

    A producer's messages for a place, which is a partition or a key, are in a partition that was closed, and
    then in that modulo `count`. `reconnected`: producers may have learned the new count with messages for the
    old one in hand, so that newer ones have overtaken them.
    """
    expected: list[str] = []
    for producer, places in acknowledged.items():
        for place, number in places.items():
            prefix = f"{producer}:{place}:"
            # Closed partitions have the higher numbers, and the older messages.
            at = {
                index: [value for _, value in sorted(found[index].items()) if value.startswith(prefix)]
                for index in sorted(found, reverse=True)
            }
            homes = [index for index, values in at.items() if values]
            values = [value for index in homes for value in at[index]]
            numbers = [int(value.rpartition(":")[2]) for value in values]
            if reconnected:
                numbers.sort()
            assert numbers == list(range(len(numbers))), f"{prefix} in {homes}: {numbers}"
            assert len(numbers) >= number, f"{producer} lost some of {place}: {len(numbers)} of {number}"
            assert len({index % count for index in homes}) == 1, f"{prefix} is in {homes}"
            assert len(homes) == 1 or (len(homes) == 2 and homes[1] < count), f"{prefix} is in {homes}"
            expected += values
    everything = [value for messages in found.values() for value in messages.values()]
    assert sorted(expected) == sorted(everything)


def check_complete(acknowledged: Mapping[str, Mapping[str, int]], found: Stored) -> None:
    """Every message of every producer is there once, and within each partition in order."""
    expected: list[str] = []
    for producer, places in acknowledged.items():
        for place, number in places.items():
            prefix = f"{producer}:{place}:"
            numbers: list[int] = []
            for index, messages in found.items():
                values = [value for _, value in sorted(messages.items()) if value.startswith(prefix)]
                here = [int(value.rpartition(":")[2]) for value in values]
                assert here == sorted(here), f"{prefix} in {index}: {here}"
                numbers += here
                expected += values
            assert sorted(numbers) == list(range(len(numbers))), f"{prefix}: {sorted(numbers)}"
            assert len(numbers) >= number, f"{producer} lost some of {place}: {len(numbers)} of {number}"
    everything = [value for messages in found.values() for value in messages.values()]
    assert sorted(expected) == sorted(everything)
