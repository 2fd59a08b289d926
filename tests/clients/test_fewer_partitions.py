"""A topic goes from 12 to 4 partitions while real clients produce and consume: nobody notices.

No message is lost or doubled, each producer's messages for a partition keep their order, and what closed
partitions held is read to the end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.kafka_clients import (
    DEADLINE_SECONDS,
    confluent_admin,
    confluent_consumer,
    create_topic,
)
from support.clients.shrinking import GroupReader, stored, until
from support.clients.steady_producers import (
    PRODUCERS,
    ConfluentIdempotent,
    ConfluentTransactional,
    SteadyProducer,
)

# kafka-python drops sockets of connections that a broker which was killed has refused.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

BEFORE, AFTER = 12, 4
ENOUGH = 3 * BEFORE
"""Messages after which a producer has been everywhere several times."""


def fold(bootstrap: str, topic: str, count: int = AFTER) -> None:
    admin = confluent_admin(bootstrap)
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(DEADLINE_SECONDS)


def count_of(bootstrap: str, topic: str) -> int:
    """As consumers see it: producers on librdkafka see partitions for ever."""
    with closing(confluent_consumer(bootstrap)) as consumer:
        return len(consumer.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions)


def ends(bootstrap: str, topic: str, partitions: range) -> dict[int, int]:
    """Also behind transactions that are open."""
    with closing(confluent_consumer(bootstrap, isolation_level="read_uncommitted")) as consumer:
        return {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=DEADLINE_SECONDS)[1]
            for index in partitions
        }


@contextmanager
def producing(bootstrap: str, topic: str, *kinds: type[SteadyProducer]) -> Iterator[list[SteadyProducer]]:
    try:
        with ExitStack() as stack:
            yield [stack.enter_context(closing(kind(bootstrap, topic, BEFORE))) for kind in kinds]
    finally:
        gc.collect()  # now, while the warnings about it are off


def check(
    producers: list[SteadyProducer], found: dict[int, list[bytes]], *, sent_again: bool = False
) -> list[bytes]:
    """Every message is where it belongs, in order; returns all of them.

    `sent_again`: the broker was away for a while, and producers without numbers may have doubled some.
    """
    expected: list[bytes] = []
    for producer in producers:
        name = producer.name.encode()
        for partition in range(BEFORE):
            prefix = b"%s:%d:" % (name, partition)
            home = found[partition % AFTER]
            path = home if partition < AFTER else found.get(partition, []) + home
            values = [value for value in path if value.startswith(prefix)]
            if sent_again and not producer.exactly_once:
                values = list(dict.fromkeys(values))
            numbers = [int(value.rpartition(b":")[2]) for value in values]
            assert numbers == list(range(len(numbers))), f"{producer.name} in {partition}: {numbers}"
            assert len(numbers) >= producer.acknowledged[partition], (
                f"{producer.name} lost some in {partition}"
            )
            expected += values
    if not sent_again:
        assert sorted(expected) == sorted(value for values in found.values() for value in values)
    return expected


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_producers_and_groups_go_on(start_broker: StartBroker, topic: str, protocol: str) -> None:
    broker = start_broker()
    create_topic(broker.bootstrap, topic, BEFORE)
    with (
        producing(broker.bootstrap, topic, *PRODUCERS) as producers,
        closing(GroupReader(broker.bootstrap, topic, f"{topic}-group", protocol)) as one,
        closing(GroupReader(broker.bootstrap, topic, f"{topic}-group", protocol)) as other,
    ):
        for producer in producers:
            producer.reach(ENOUGH)
        fold(broker.bootstrap, topic)
        closed = ends(broker.bootstrap, topic, range(AFTER, BEFORE))
        for producer in producers:
            producer.reach(ENOUGH)
        for producer in producers:
            producer.finish()
        found = stored(broker.bootstrap, topic, range(BEFORE))
        expected = check(producers, found)
        after = ends(broker.bootstrap, topic, range(AFTER, BEFORE))
        # The ends of transactions that were open at the fold are all that came after it.
        grown = {index: after[index] - closed[index] for index in closed}
        assert all(count <= 2 for count in grown.values()), grown
        until(lambda: len({*one.values, *other.values}) >= len(expected))
        assert {*one.values, *other.values} == {*expected}


def test_a_kill_in_the_middle(start_broker: StartBroker, topic: str) -> None:
    broker: BrokerProcess = start_broker()
    create_topic(broker.bootstrap, topic, BEFORE)
    with producing(broker.bootstrap, topic, *PRODUCERS) as producers:
        for producer in producers:
            producer.reach(ENOUGH)
        fold(broker.bootstrap, topic)
        for _ in range(2):
            broker.kill()
            broker.start()
            for producer in producers:
                producer.reach(ENOUGH)
        for producer in producers:
            producer.finish()
        check(producers, stored(broker.bootstrap, topic, range(BEFORE)), sent_again=True)


def test_a_producer_that_never_learns_the_new_count(start_broker: StartBroker, topic: str) -> None:
    """librdkafka goes on sending to partitions that are gone, also in transactions and after a restart."""
    broker: BrokerProcess = start_broker("forebay.fold.grace.ms=0", "log.retention.check.interval.ms=200")
    create_topic(broker.bootstrap, topic, BEFORE)
    with producing(broker.bootstrap, topic, ConfluentIdempotent, ConfluentTransactional) as producers:
        for producer in producers:
            producer.reach(ENOUGH)
        fold(broker.bootstrap, topic)
        for producer in producers:
            producer.reach(ENOUGH)
        old = stored(broker.bootstrap, topic, range(AFTER, BEFORE))
        admin = confluent_admin(broker.bootstrap)
        until(lambda: delete_closed(admin, broker.bootstrap, topic))
        for producer in producers:
            producer.reach(ENOUGH)
        broker.kill()
        broker.start()
        for producer in producers:
            producer.reach(ENOUGH)
        for producer in producers:
            producer.finish()
        assert count_of(broker.bootstrap, topic) == AFTER
        check(producers, {**old, **stored(broker.bootstrap, topic, range(AFTER))}, sent_again=True)


def delete_closed(admin: confluent_kafka.admin.AdminClient, bootstrap: str, topic: str) -> bool:
    """Delete what the closed partitions hold, as retention would; whether they are gone."""
    left = count_of(bootstrap, topic)
    if left > AFTER:
        places = [TopicPartition(topic, index, -1) for index in range(AFTER, left)]
        for future in admin.delete_records(places).values():
            try:
                future.result(DEADLINE_SECONDS)
            except confluent_kafka.KafkaException:
                continue  # it has gone meanwhile
    return count_of(bootstrap, topic) == AFTER
