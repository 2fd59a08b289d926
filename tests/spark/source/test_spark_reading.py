"""What is read, by the readers themselves against a real broker: Spark is not needed to tell."""

from __future__ import annotations

import contextlib
import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from forebay.broker.node import Node
from forebay.client import Admin, Producer
from forebay.errors import ConfigError, ErrorCode, KafkaError
from forebay.spark import between
from forebay.spark.arrow.schema import spark_schema
from forebay.spark.source.data_loss import DataLoss
from forebay.spark.source.offset_ranges import OffsetRange, TopicPartition
from forebay.wire.batch import assemble, build_batch, read_header
from forebay.wire.compression import Codec
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.brokers.local_broker import local_broker
from support.clients.wire_client import WireClient, append, create
from support.spark.reading import (
    NOON_MS,
    add,
    batch_reader,
    delete_records,
    make_topic,
    moment,
    plan,
    record,
    rows,
    run,
    stream_reader,
    value,
    values,
)


class ChangedMyMind(Exception):
    pass


def test_rows_have_all_columns(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2)
    assert rows(batch_reader(broker.bootstrap, subscribe=topic)) == [
        {
            "key": record(0, n).key,
            "value": value(0, n),
            "topic": topic,
            "partition": 0,
            "offset": n,
            "timestamp": moment(n),
            "timestampType": 0,
        }
        for n in range(2)
    ]


def test_many_partitions_empty_ones_among_them(broker: BrokerProcess, topic: str) -> None:
    counts = (700, 0, 1, 0, 30, 600, 2, 0)
    make_topic(broker.bootstrap, topic, *counts)
    reader = batch_reader(broker.bootstrap, subscribe=topic)
    assert values(reader) == sorted(value(p, n) for p, count in enumerate(counts) for n in range(count))
    assert [task.at.partition for task in plan(reader)] == [0, 2, 4, 5, 6]


def test_an_empty_topic_has_no_rows(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 0, 0)
    assert rows(batch_reader(broker.bootstrap, subscribe=topic)) == []


@pytest.mark.parametrize("codec", list(Codec))
def test_all_compressions(broker: BrokerProcess, topic: str, codec: Codec) -> None:
    make_topic(broker.bootstrap, topic, 0)
    with WireClient(broker.bootstrap) as client:
        add(client, topic, 0, 600, codec=codec)
    assert values(batch_reader(broker.bootstrap, subscribe=topic)) == sorted(value(0, n) for n in range(600))


def test_small_fetches_come_to_the_same(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2500)
    reader = batch_reader(broker.bootstrap, subscribe=topic, kafka_max_partition_fetch_bytes=20_000)
    table = run(reader, reader.partitions())
    assert table is not None
    assert table.column("offset").to_pylist() == list(range(2500))
    assert table.column("value").num_chunks > 3


def test_a_read_that_is_given_up_leaves_the_next_one_unharmed(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2500)
    reader = batch_reader(broker.bootstrap, subscribe=topic, kafka_max_partition_fetch_bytes=20_000)
    (task,) = reader.partitions()
    begun = reader.read(task)
    next(begun)
    begun.close()  # type: ignore[attr-defined]
    assert len(values(reader)) == 2500


def test_two_reads_by_turns(broker: BrokerProcess, topic: str) -> None:
    """Spark does not do this, but whoever does gets the right records all the same."""
    make_topic(broker.bootstrap, topic, 1500, 1500)
    reader = batch_reader(broker.bootstrap, subscribe=topic, kafka_max_partition_fetch_bytes=20_000)
    found: list[list[bytes]] = [[], []]
    for batches in itertools.zip_longest(*(reader.read(task) for task in reader.partitions())):
        for seen, batch in zip(found, batches, strict=True):
            seen += batch.column("value").to_pylist() if batch is not None else []
    assert found == [[value(partition, n) for n in range(1500)] for partition in range(2)]


def test_headers_when_they_are_asked_for(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 0)
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, b"with", headers=[("a", b"1"), ("a", None)])
        producer.send(topic, None, key=b"without")
    assert "headers" not in rows(batch_reader(broker.bootstrap, subscribe=topic))[0]
    found = rows(batch_reader(broker.bootstrap, subscribe=topic, includeHeaders="true"))
    assert [(row["key"], row["value"], row["headers"]) for row in found] == [
        (None, b"with", [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]),
        (b"without", None, None),
    ]


def test_times_given_by_the_broker(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, message_timestamp_type="LogAppendTime")
    (row,) = rows(batch_reader(broker.bootstrap, subscribe=topic))
    assert row["timestampType"] == 1
    assert row["timestamp"] > moment(86_400)


# -- which topics ------------------------------------------------------------------------------------------


def test_topics_by_pattern_and_by_partition(broker: BrokerProcess, topic: str) -> None:
    for name in ("one", "two", "too"):
        make_topic(broker.bootstrap, f"{topic}.{name}", 1, 2)
    matching = batch_reader(broker.bootstrap, subscribePattern=f"{topic}[.]t.o")
    assert {task.at.topic for task in plan(matching)} == {f"{topic}.two", f"{topic}.too"}
    assigned = json.dumps({f"{topic}.one": [1], f"{topic}.two": [0]})
    assert values(batch_reader(broker.bootstrap, assign=assigned)) == [b"0/0", b"1/0", b"1/1"]
    assert values(batch_reader(broker.bootstrap, subscribe=f"{topic}.one,{topic}.two")) == sorted(
        2 * [b"0/0", b"1/0", b"1/1"]
    )
    assert plan(batch_reader(broker.bootstrap, subscribePattern=f"{topic}[.]no")) == []


@pytest.mark.parametrize("option", ["subscribe", "assign"])
def test_a_topic_that_does_not_exist_is_named(broker: BrokerProcess, topic: str, option: str) -> None:
    given = topic if option == "subscribe" else json.dumps({topic: [0]})
    options: dict[str, Any] = {option: given, "kafka_default_api_timeout_ms": 200}
    reader = batch_reader(broker.bootstrap, **options)
    with pytest.raises(KafkaError, match=topic):
        reader.partitions()


# -- from where to where -----------------------------------------------------------------------------------


def test_offsets_and_times_as_edges(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 10, 10)

    def planned(**options: Any) -> list[tuple[int, int]]:
        found = plan(batch_reader(broker.bootstrap, subscribe=topic, **options))
        return [(task.start, task.end) for task in found]

    def each(first: int, second: int) -> str:
        return json.dumps({topic: {"0": first, "1": second}})

    assert planned() == [(0, 10), (0, 10)]
    assert planned(startingOffsets=each(3, -2), endingOffsets=each(8, -1)) == [(3, 8), (0, 10)]
    assert planned(startingTimestamp=NOON_MS + 3500) == [(4, 10), (4, 10)]
    assert planned(startingOffsetsByTimestamp=each(NOON_MS + 1000, NOON_MS)) == [(1, 10), (0, 10)]
    assert planned(endingTimestamp=NOON_MS + 2000) == [(0, 2), (0, 2)]
    assert planned(endingOffsetsByTimestamp=each(NOON_MS + 4000, NOON_MS * 2)) == [(0, 4), (0, 10)]
    # Nothing is as young as that: an error, or the end.
    late = NOON_MS + 3_600_000
    with pytest.raises(KafkaError, match="startingTimestamp"):
        planned(startingTimestamp=late)
    assert planned(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(ConfigError, match=f"missing {topic}-1"):
        planned(startingOffsets=json.dumps({topic: {"0": 1}}))


def test_tasks_are_as_many_as_wanted(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 100, 20)
    reader = batch_reader(broker.bootstrap, subscribe=topic, minPartitions=6)
    assert [task.size for task in plan(reader)] == [20, 20, 20, 20, 20, 20]
    assert len(values(reader)) == 120
    few = plan(batch_reader(broker.bootstrap, subscribe=topic, maxRecordsPerPartition=30))
    assert [task.size for task in few] == [25, 25, 25, 25, 20]


def test_a_header_without_a_key_holds_nobody_up(broker: BrokerProcess, topic: str) -> None:
    """No client of today writes one, and Java's cannot read it. A broker stores what is in a batch."""
    make_topic(broker.bootstrap, topic, 1)
    whole = read_header(bytes(build_batch([record(0, 0)])))
    batch = assemble(whole, b"\x14\x00\x00\x00\x01\x02v\x02\x01\x02x")
    with WireClient(broker.bootstrap) as client:
        assert append(client, topic, bytes(batch)).error_code == 0
        add(client, topic, 0, 1, first=2)
    found = rows(batch_reader(broker.bootstrap, subscribe=topic, includeHeaders="true"))
    assert [row["value"] for row in found] == [b"0/0", b"v", b"0/2"]
    assert [row["headers"] for row in found] == [None, [{"key": "", "value": b"x"}], None]


# -- a part of a topic -------------------------------------------------------------------------------------


def test_options_narrow_what_is_read(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 10, 10, 10)

    def narrowed(**bounds: Any) -> tuple[list[OffsetRange], list[bytes]]:
        options: dict[str, Any] = {**between({"subscribe": topic}, **bounds)}
        reader = batch_reader(broker.bootstrap, **options)
        return plan(reader), values(reader)

    def at(partition: int, start: int, end: int) -> OffsetRange:
        return OffsetRange(TopicPartition(topic, partition), start, end)

    assert narrowed(partitions=[1], min_offset=3, max_offset=4) == ([at(1, 3, 5)], [b"1/3", b"1/4"])
    assert narrowed(partitions={0, 2}, min_offset=9)[0] == [at(0, 9, 10), at(2, 9, 10)]
    planned, found = narrowed(partitions=[0], min_time=moment(7), max_time=moment(8))
    assert (planned, found) == ([at(0, 7, 10)], [b"0/7", b"0/8"])
    assert narrowed(min_time=moment(60)) == ([], [])
    assert len(narrowed()[1]) == 30


def test_a_part_of_a_part_is_narrower() -> None:
    once = between({"subscribe": "t", "MINOFFSET": 4}, partitions=[1, 2, 3], max_offset=9)
    assert once == {"subscribe": "t", "MINOFFSET": "4", "partitions": "1,2,3", "maxOffset": "9"}
    twice = between(once, partitions=[2, 3, 4], min_offset=2, max_offset=20)
    assert twice == {"subscribe": "t", "MINOFFSET": "4", "partitions": "2,3", "maxOffset": "9"}
    assert between(once, min_offset=6)["MINOFFSET"] == "6"
    half = timedelta(microseconds=500)
    times = between({}, min_time=moment(1) - half, max_time=moment(2) + half)
    assert times == {"minTimestamp": str(NOON_MS + 1000), "maxTimestamp": str(NOON_MS + 2000)}
    long_ago = datetime(1960, 1, 1, tzinfo=UTC)
    assert between({}, min_time=long_ago) == {}, "a message without a timestamp is of 1969"
    assert between(times, min_time=long_ago, min_offset=-1) == times
    with pytest.raises(ConfigError, match="empty"):
        between(once, partitions=[])
    with pytest.raises(ConfigError, match="none of the partitions"):
        between(once, partitions=[7])
    with pytest.raises(ConfigError, match="nothing"):
        between(once, max_offset=-1)


@pytest.mark.parametrize(
    ("option", "text"),
    [("partitions", "0,x"), ("minOffset", "-1"), ("maxTimestamp", "noon"), ("partitions", "")],
)
def test_a_bound_that_is_no_number_is_refused(option: str, text: str) -> None:
    wrong: dict[str, Any] = {option: text}
    with pytest.raises(ConfigError, match=option):
        batch_reader("127.0.0.1:1", subscribe="t", **wrong)
    with pytest.raises(ConfigError, match=option):
        stream_reader("127.0.0.1:1", subscribe="t", **{option: "1"})


# -- columns -----------------------------------------------------------------------------------------------


def test_a_schema_chooses_columns(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1)
    whole = spark_schema(headers=False)
    schema = StructType([whole["offset"], whole["value"]])
    assert rows(batch_reader(broker.bootstrap, schema, subscribe=topic)) == [{"offset": 0, "value": b"0/0"}]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (StructField("body", StringType()), "body"),
        (StructField("value", StringType()), "cast"),
        (StructField("partition", LongType()), "partition is int"),
        (spark_schema(headers=True)["headers"], "includeHeaders"),
    ],
)
def test_a_schema_that_a_topic_does_not_have(column: StructField, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        batch_reader("127.0.0.1:1", StructType([column]), subscribe="any")


# -- transactions ------------------------------------------------------------------------------------------


def test_aborted_messages_are_never_seen_by_who_reads_committed_ones(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 0)
    with Producer(broker.bootstrap, delivery="exactly-once") as producer:
        for n in (0, 2):
            with producer.transaction():
                producer.send(topic, b"%d" % n)
            with contextlib.suppress(ChangedMyMind), producer.transaction():
                producer.send(topic, b"%d" % (n + 1))
                producer.flush()
                raise ChangedMyMind
    committed = batch_reader(broker.bootstrap, subscribe=topic, kafka_isolation_level="read_committed")
    assert values(committed) == [b"0", b"2"]
    assert values(batch_reader(broker.bootstrap, subscribe=topic)) == [b"0", b"1", b"2", b"3"]


# -- what is lost ------------------------------------------------------------------------------------------


def test_lost_offsets_fail_or_are_passed_over(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1200)
    careful = batch_reader(broker.bootstrap, subscribe=topic)
    tasks = careful.partitions()
    delete_records(broker.bootstrap, topic, 0, 1100)
    with pytest.raises(DataLoss, match=f"offset 0 of {topic}-0 is out of range.*starts at 1100"):
        run(careful, tasks)
    careless = batch_reader(broker.bootstrap, subscribe=topic, failOnDataLoss="false")
    assert values(careless, tasks) == sorted(value(0, n) for n in range(1100, 1200))


def test_a_topic_deleted_between_planning_and_reading(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 10)
    options: dict[str, Any] = {"subscribe": topic, "kafka_default_api_timeout_ms": 300}
    careful = batch_reader(broker.bootstrap, **options)
    tasks = careful.partitions()
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic(topic)
    with pytest.raises(DataLoss, match="offsets 0 to 10"):
        run(careful, tasks)
    assert values(batch_reader(broker.bootstrap, failOnDataLoss="false", **options), tasks) == []
    # Made anew: its messages have the offsets that were planned, and are others.
    with WireClient(broker.bootstrap) as client:
        create(client, topic)
        add(client, topic, 0, 14)
    with pytest.raises(DataLoss, match=r"offsets 0 to 10 .*UNKNOWN_TOPIC_ID"):
        run(careful, tasks)
    assert values(batch_reader(broker.bootstrap, failOnDataLoss="false", **options), tasks) == []


def test_what_cannot_be_read_yet_is_not_lost(tmp_path: Path, topic: str) -> None:
    """A leader that was just elected, and whose followers have not said yet what is committed."""
    with local_broker(tmp_path) as local:
        make_topic(local.bootstrap, topic, 10)
        careless = batch_reader(
            local.bootstrap, subscribe=topic, failOnDataLoss="false", kafka_default_api_timeout_ms=300
        )
        tasks = careless.partitions()
        state: list[tuple[int, int]] = []

        def doubt(broker: Node) -> None:
            partition = broker.partitions.get(topic, 0)
            assert partition.leadership is not None
            state.append((partition.high_watermark, partition.leadership.start_offset))
            partition.high_watermark, partition.leadership.start_offset = 4, 10

        def know(broker: Node) -> None:
            partition = broker.partitions.get(topic, 0)
            assert partition.leadership is not None
            partition.high_watermark, partition.leadership.start_offset = state.pop()

        local.on_loop(doubt)
        with pytest.raises(KafkaError) as caught:
            run(careless, tasks)
        assert caught.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
        local.on_loop(know)
        assert len(values(careless, tasks)) == 10


def test_an_end_beyond_the_log(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 10)
    ends = json.dumps({topic: {"0": 99}})
    with pytest.raises(DataLoss, match="endingOffsets says 99"):
        batch_reader(broker.bootstrap, subscribe=topic, endingOffsets=ends).partitions()
    careless = batch_reader(broker.bootstrap, subscribe=topic, endingOffsets=ends, failOnDataLoss="false")
    assert [task.end for task in plan(careless)] == [10]


def test_a_broker_that_restarts_in_the_middle(start_broker: StartBroker, topic: str, tmp_path: Path) -> None:
    broker = start_broker()
    make_topic(broker.bootstrap, topic, 2500)
    reader = batch_reader(broker.bootstrap, subscribe=topic, kafka_max_partition_fetch_bytes=20_000)
    (task,) = reader.partitions()
    found: list[bytes] = []
    for n, batch in enumerate(reader.read(task)):
        found += batch.column("value").to_pylist()
        if n == 1:
            broker.kill()
            broker.restart()
    assert found == [value(0, n) for n in range(2500)]
