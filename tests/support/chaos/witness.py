"""Reads what is in the logs when all is quiet, as the last entries of a history (`history.py`)."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from support.chaos.history import Content, History, Place
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin, confluent_consumer, know

_BEING_ELECTED = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


def witness(bootstrap: str, places: Iterable[Place], history: History) -> None:
    """Fill in what is stored and what is visible. No transaction may be left open by then."""
    places = list(places)
    ends = end_offsets(bootstrap, places, IsolationLevel.READ_UNCOMMITTED)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while end_offsets(bootstrap, places, IsolationLevel.READ_COMMITTED) != ends:
        assert time.monotonic() < deadline, "a transaction is left open"
        time.sleep(0.05)
    history.stored = read_everything(bootstrap, places, "read_uncommitted")
    history.visible = read_everything(bootstrap, places, "read_committed")


def end_offsets(bootstrap: str, places: Iterable[Place], isolation: IsolationLevel) -> dict[Place, int]:
    """Asked again where a partition is just being given back to the broker that should lead it."""
    ends: dict[Place, int] = {}
    left = {TopicPartition(*place): OffsetSpec.latest() for place in places}
    # Kept until every future is settled: a client that is collected early takes its answers with it.
    admin = confluent_admin(bootstrap)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while left:
        for place, future in admin.list_offsets(left, isolation_level=isolation).items():
            try:
                ends[place.topic, place.partition] = future.result(DEADLINE_SECONDS).offset
                del left[place]
            except KafkaException as problem:
                if problem.args[0].code() not in _BEING_ELECTED or time.monotonic() > deadline:
                    raise
    return ends


def read_everything(bootstrap: str, places: Iterable[Place], isolation_level: str) -> Content:
    """From the first offset to the end."""
    content: Content = {place: {} for place in places}
    left = set(content)
    consumer = confluent_consumer(
        bootstrap, isolation_level=isolation_level, enable_partition_eof=True, fetch_wait_max_ms=20
    )
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        know(consumer, {topic for topic, _ in content})
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in content])
        while left:
            assert time.monotonic() < deadline, f"the end of {left} was not reached"
            for message in consumer.consume(1_000, 0.02):
                place, error = (message.topic() or "", message.partition() or 0), message.error()
                if error is None:
                    content[place][message.offset() or 0] = message.value() or b""
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
    finally:
        consumer.close()
    return content
