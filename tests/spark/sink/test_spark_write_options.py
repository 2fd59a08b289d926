"""What is wrong with a write is said when it is planned, by name."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from forebay.errors import ConfigError
from forebay.spark.sink.batch_writer import plan
from forebay.spark.sink.options import Columns, columns, write_options
from forebay.wire.compression import Codec

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def schema_of(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def test_options_have_the_meaning_and_defaults_of_a_producer() -> None:
    plain = write_options(SERVERS)
    assert (plain.topic, plain.exactly_once, plain.limits.codec) == (None, False, Codec.NONE)
    chosen = write_options(
        {
            **SERVERS,
            "Topic": "orders",
            "delivery": "Exactly-Once",
            "jobId": "nightly",
            "kafka.compression.type": "zstd",
            "kafka.batch.size": "16384",
            "kafka.max.request.size": "65536",
            "kafka.transaction.timeout.ms": "5000",
            "kafka.linger.ms": "5",
            "checkpointLocation": "/tmp/x",
        }
    )
    assert (chosen.topic, chosen.exactly_once, chosen.job_id) == ("orders", True, "nightly")
    assert (chosen.limits.codec, chosen.limits.batch_bytes, chosen.limits.request_bytes) == (4, 16384, 65536)
    assert chosen.transaction_timeout_ms == 5000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({**SERVERS, "topics": "a"}, "option topics is not known"),
        ({**SERVERS, "kafka.lingr.ms": "1"}, "option kafka.lingr.ms is not known"),
        ({**SERVERS, "topic": " "}, "option topic is empty"),
        ({**SERVERS, "path": "x"}, "option path cannot be used"),
        ({**SERVERS, "delivery": "twice"}, "give at-least-once or exactly-once"),
        ({**SERVERS, "jobId": "a"}, "needs delivery=exactly-once"),
        ({**SERVERS, "delivery": "exactly-once", "jobId": "a\n"}, "printable"),
        ({**SERVERS, "kafka.acks": "1"}, "kafka.acks=1"),
        ({**SERVERS, "kafka.enable.idempotence": "false"}, "always writes idempotently"),
        ({**SERVERS, "kafka.compression.type": "brotli"}, "give one of none, gzip, snappy, lz4, zstd"),
        ({**SERVERS, "kafka.batch.size": "0"}, "kafka.batch.size=0"),
        ({**SERVERS, "kafka.batch.size": "999999999"}, "is the most"),
        ({**SERVERS, "kafka.transactional.id": "a"}, "use delivery=exactly-once"),
        ({**SERVERS, "kafka.sasl.login.class": "x"}, "is not known"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        write_options(options)


def test_columns_are_found_by_name_and_others_left_out(spark: SparkSession) -> None:
    headers = "headers array<struct<key: string, value: binary>>"
    schema = schema_of(f"offset long, Value string, key binary, {headers}, partition int")
    assert columns(schema, "orders") == Columns(value=1, key=2, headers=3, partition=4)


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("key string", "no column value among key"),
        ("value int", "column value is int: it must be string or binary"),
        ("value string, key long", "column key is bigint"),
        ("value string, partition string", "column partition is string: it must be int"),
        ("value string, headers map<string, string>", "column headers is map"),
        ("value string, timestamp string", "column timestamp is string"),
        ("value string, VALUE string", "two columns value"),
        ("value string", "option topic, or a column topic"),
    ],
)
def test_a_wrong_column_is_named(spark: SparkSession, ddl: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        columns(schema_of(ddl), None)


def test_a_topic_is_not_overwritten(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"write with \.mode\(\"append\"\)"):
        plan(schema_of("value string, topic string"), SERVERS, overwrite=True)
