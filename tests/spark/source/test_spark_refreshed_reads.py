"""Batch reads that are used again: the offsets of their first action, or those of every action."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient, NewPartitions

from forebay.errors import ConfigError
from forebay.spark import lookup
from forebay.spark.source import batch_reader as reading_batches
from forebay.spark.source.batch_reader import Share
from forebay.spark.source.data_loss import DataLoss
from forebay.spark.source.offset_ranges import TopicPartition
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient
from support.spark.reading import add, batch_reader, make_topic, value, values
from support.spark.topics import NINE_MS, Sent, contents, make, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as connected:
        yield connected


def all_values(*counts: int, first: int = 0) -> list[bytes]:
    return sorted(value(at, n) for at, count in enumerate(counts) for n in range(first, count))


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(60)


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([At(topic, 0, offset)]).values():
        future.result(60)


def test_a_plan_is_what_was_there_and_with_refreshed_offsets_what_is(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    """Spark asks for the plan once, and runs its tasks in every action."""
    make_topic(broker.bootstrap, topic, 5, 0)
    fixed = batch_reader(broker.bootstrap, subscribe=topic)
    fresh = batch_reader(broker.bootstrap, subscribe=topic, refreshOffsets="true")
    tasks, fresh_tasks = fixed.partitions(), fresh.partitions()
    add(client, topic, 0, 3, first=5)
    add(client, topic, 1, 2)
    assert values(fixed, tasks) == all_values(5)
    assert values(fresh, fresh_tasks) == all_values(8, 2)
    grow(broker.bootstrap, topic, 4)
    add(client, topic, 3, 1)
    assert values(fresh, fresh_tasks) == sorted([*all_values(8, 2), value(3, 0)])


def test_a_batch_read_in_a_stream_is_refreshed_unless_it_says_no(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 5, 5)
    choices: list[dict[str, Any]] = [{}, {"minPartitions": 6}, {"refreshOffsets": "false"}]
    readers = [batch_reader(broker.bootstrap, subscribe=topic, **options) for options in choices]
    tasks = [reader.partitions() for reader in readers]
    add(client, topic, 0, 2, first=5)
    with patch.object(reading_batches, "_in_stream", return_value=True):
        found = [values(reader, planned) for reader, planned in zip(readers, tasks, strict=True)]
    assert found == [all_values(7, 5), all_values(7, 5), all_values(5, 5)]


def test_an_old_dataframe_reads_on_after_retention_or_says_what_to_do(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 10)
    fixed = batch_reader(broker.bootstrap, subscribe=topic)
    fresh = batch_reader(broker.bootstrap, subscribe=topic, refreshOffsets="true")
    tasks, fresh_tasks = fixed.partitions(), fresh.partitions()
    delete_before(broker.bootstrap, topic, 4)
    assert values(fresh, fresh_tasks) == all_values(10, first=4)
    with pytest.raises(DataLoss, match=r"load\(\) it again, or set refreshOffsets=true"):
        values(fixed, tasks)


def test_offsets_that_are_given_hold_with_refreshed_ones(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 5, 5)
    ending = f'{{"{topic}": {{"0": 4, "1": -1}}}}'
    reader = batch_reader(broker.bootstrap, subscribe=topic, endingOffsets=ending, refreshOffsets="true")
    tasks = reader.partitions()
    add(client, topic, 0, 2, first=5)
    add(client, topic, 1, 2, first=5)
    assert values(reader, tasks) == all_values(4, 7)
    narrow = batch_reader(broker.bootstrap, subscribe=topic, partitions="1", refreshOffsets="true")
    assert values(narrow) == [value(1, n) for n in range(7)]


def test_an_empty_topic_has_a_task_that_sees_what_came(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    """Spark makes one task, without a plan."""
    make_topic(broker.bootstrap, topic, 0)
    reader = batch_reader(broker.bootstrap, subscribe=topic)
    assert reader.partitions() == []
    add(client, topic, 0, 2)
    assert values(reader, [None]) == []
    with patch.object(reading_batches, "_in_stream", return_value=True):
        assert values(reader, [None]) == all_values(2)


def test_shares_are_all_partitions_each_once_whoever_looks_when() -> None:
    for count in (1, 3, 7):
        shares = [Share(n, count) for n in range(count)]
        for topic in ("a", "b"):
            for partition in range(20):
                assert sum(share.includes(TopicPartition(topic, partition)) for share in shares) == 1


def test_what_contradicts_refreshed_offsets_is_said(broker: BrokerProcess) -> None:
    with pytest.raises(ConfigError, match="leave out minPartitions"):
        batch_reader(broker.bootstrap, subscribe="a", refreshOffsets="true", minPartitions=4)


# -- with Spark ----------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_a_stream_sees_new_keys_of_the_topics_that_it_is_joined_with(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """A plain read and a lookup as the static side, in two micro-batches of one query."""
    bootstrap = broker.bootstrap
    make(bootstrap, refreshed_orders=1, refreshed_users=2, refreshed_out=1)
    options: dict[str, Any] = {"kafka.bootstrap.servers": bootstrap}
    users = spark.read.format("forebay").options(**options, subscribe="refreshed-users").load()
    names = lookup(spark, "refreshed-users", bootstrap=bootstrap)
    fresh = spark.read.format("forebay").options(
        **options, subscribe="refreshed-users", refreshOffsets="true"
    )
    frame = fresh.load()

    def user(key: bytes, name: bytes | None, second: int) -> Sent:
        return Sent(name, key, timestamp_ms=NINE_MS + second * 1000)

    send(bootstrap, "refreshed-users", [user(b"u1", b"ann", 1), user(b"u2", b"bob", 2)])
    send(bootstrap, "refreshed-orders", [Sent(b"first", b"u1"), Sent(b"second", b"u3")])
    assert (users.count(), frame.count()) == (2, 2)

    stream = spark.readStream.format("forebay").options(
        **options, subscribe="refreshed-orders", startingOffsets="earliest", maxOffsetsPerTrigger="2"
    )
    orders = stream.load().selectExpr("key AS user", "value AS thing")
    seen = users.groupBy("key").count().withColumnRenamed("key", "seen")
    joined = orders.join(names, orders.user == names.key).join(seen, orders.user == seen.seen)
    result = joined.selectExpr(
        "concat(CAST(thing AS STRING), ':', CAST(value AS STRING), ':', CAST(count AS STRING)) AS value"
    )
    query = (
        result.writeStream.format("forebay")
        .options(**options, topic="refreshed-out", checkpointLocation=str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        later = [user(b"u1", b"anna", 3), user(b"u3", b"cid", 4), user(b"u2", None, 5)]
        send(bootstrap, "refreshed-users", [each._replace(partition=1) for each in later])
        orders_later = [Sent(b"third", b"u1"), Sent(b"fourth", b"u3"), Sent(b"fifth", b"u2")]
        send(bootstrap, "refreshed-orders", orders_later)
        query.processAllAvailable()
    finally:
        query.stop()
    found = sorted(str(each.value, "utf-8") for each in contents(bootstrap, "refreshed-out") if each.value)
    assert found == ["first:ann:1", "fourth:cid:1", "third:anna:2"]
    assert sorted((bytes(row.key), bytes(row.value)) for row in names.collect()) == [
        (b"u1", b"anna"),
        (b"u3", b"cid"),
    ]
    assert (users.count(), frame.count()) == (2, 5)
