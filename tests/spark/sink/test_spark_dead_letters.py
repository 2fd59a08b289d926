"""Rows that the sink refuses, and values that from_avro cannot decode: letters in the same transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from forebay.errors import ConfigError
from forebay.spark import from_avro
from forebay.spark.dead_letters import dead_letters, together
from forebay.spark.schemas import codecs
from forebay.spark.schemas.decoding import Decoding
from forebay.spark.schemas.registry import AVRO, Registry, Schema
from forebay.spark.sink.options import write_options
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import forebay
from support.spark.schema_registry import SchemaRegistry, running_registry
from support.spark.topics import Sent, contents, make, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark shares its cores with whatever else runs

COLUMNS = (
    "key STRING, value STRING, topic STRING, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
GOOD = [("a", "1", "sd-one", 0, None), ("b", "2", "sd-two", None, [("h", b"x")])]
BAD = [
    ("c", "3", None, 0, None),
    ("d", "4", "sd-one", 7, [("h", b"x")]),
    ("e", "5", "sd-two", -1, None),
    ("f", None, "sd-one", 0, [("h", b"x"), (None, b"y")]),
    ("g", "7", "sd-one", 9, [None]),
]


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as running:
        yield running


def save(rows: DataFrame, bootstrap: str, **options: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "delivery": "exactly-once", **options}
    rows.coalesce(1).write.format("forebay").options(**options).mode("append").save()


def test_rows_that_cannot_be_written_are_dead_letters(spark: SparkSession, broker: BrokerProcess) -> None:
    bootstrap = broker.bootstrap
    make(bootstrap, sd_one=1, sd_two=1, sd_letters=1)
    rows = spark.createDataFrame([*GOOD, *BAD], COLUMNS)
    with pytest.raises(PySparkException):
        save(rows, bootstrap)
    for _ in range(2):  # the second time nothing is written
        save(rows, bootstrap, deadLetters="sd-letters", jobId="sd-job")
    assert [one.key for topic in ("sd-one", "sd-two") for one in contents(bootstrap, topic)] == [b"a", b"b"]
    letters = contents(bootstrap, "sd-letters")
    assert [(one.key, one.value) for one in letters] == [
        (bad[0].encode(), None if bad[1] is None else bad[1].encode()) for bad in BAD
    ]
    about = [dict(one.headers) for one in letters]
    assert [one["__dlq.errors.message"] for one in about] == [
        b"the row has no topic",
        b"the row asks for partition 7 of sd-one, which has 1",
        b"the row asks for partition -1 of sd-two, which has 1",
        b"a header is null or has a null key",
        b"a header is null or has a null key",
    ]
    assert [one["__dlq.errors.topic"] for one in about] == [b"", b"sd-one", b"sd-two", b"sd-one", b"sd-one"]
    assert [one.get("h") for one in about] == [None, b"x", None, b"x", None]
    listed = forebay("dead-letter", "list", "sd-letters", "--json", bootstrap=bootstrap)
    assert listed.code == 0, listed.err


def test_rows_for_one_topic_may_all_be_dead_letters(spark: SparkSession, broker: BrokerProcess) -> None:
    make(broker.bootstrap, sd_only=1, sd_only_letters=1)
    rows = spark.createDataFrame([("1", 5), ("2", 6)], "value STRING, partition INT")
    for _ in range(2):
        save(rows, broker.bootstrap, topic="sd-only", deadLetters="sd-only-letters", jobId="sd-only-job")
    assert contents(broker.bootstrap, "sd-only") == []
    assert [one.value for one in contents(broker.bootstrap, "sd-only-letters")] == [b"1", b"2"]


def test_dead_letters_go_to_another_topic() -> None:
    for name in ("x", " "):
        with pytest.raises(ConfigError, match="name a topic other than the one that is written to"):
            write_options({"kafka.bootstrap.servers": "h:1", "topic": "x", "deadLetters": name})


def test_values_that_cannot_be_decoded_go_with_the_others(
    spark: SparkSession, broker: BrokerProcess, registry: SchemaRegistry, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap
    make(bootstrap, sd_orders=1, sd_out=1, sd_misfits=1)
    fields = [{"name": "id", "type": "int"}]
    schema = Schema(AVRO, json.dumps({"type": "record", "name": "Order", "fields": fields}))
    number = Registry(registry.address).register("sd-orders-value", schema)
    write = codecs.writer(Decoding(schema=schema, schema_id=number))
    send(bootstrap, "sd-orders", [Sent(write({"id": 1}), b"a"), Sent(b"bad", b"b"), Sent(None, b"c")])
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": "sd-orders", "startingOffsets": "earliest"}
    rows = spark.readStream.format("forebay").options(**source).load()
    order = from_avro(
        "value", registry=registry.address, subject="sd-orders-value", mode="PERMISSIVE", corrupt="why"
    )
    decoded = rows.withColumn("order", order)
    letters = dead_letters(decoded.where("order.why IS NOT NULL"), decoded["order.why"])
    good = decoded.where("order.why IS NULL").selectExpr("key", "to_json(order) AS value")
    both = together(good, letters, topic="sd-out", letters_topic="sd-misfits")
    query = (
        both.writeStream.format("forebay")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [(one.key, one.value) for one in contents(bootstrap, "sd-out")] == [
        (b"a", b'{"id":1}'),
        (b"c", None),
    ]
    (letter,) = contents(bootstrap, "sd-misfits")
    assert (letter.key, letter.value) == (b"b", b"bad")
    assert b"five bytes of a schema registry" in (dict(letter.headers)["__dlq.errors.message"] or b"")


def test_a_reason_needs_a_name_of_its_own_and_a_mode_that_goes_on(registry: SchemaRegistry) -> None:
    fields = [{"name": "why", "type": "string"}]
    schema = Schema(AVRO, json.dumps({"type": "record", "name": "Why", "fields": fields}))
    Registry(registry.address).register("sd-why", schema)
    with pytest.raises(ConfigError, match="corrupt=x needs mode=PERMISSIVE"):
        from_avro("value", registry=registry.address, subject="sd-why", corrupt="x")
    with pytest.raises(ConfigError, match="corrupt=why is a field of the schema"):
        from_avro("value", registry=registry.address, subject="sd-why", mode="PERMISSIVE", corrupt="why")
