"""Every option of a read: what it means, and what is said when it makes no sense."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ConfigError
from forebay.spark.sink.options import write_options
from forebay.spark.source.offset_ranges import EARLIEST, LATEST, TopicPartition
from forebay.spark.source.options import (
    FETCH_BYTES,
    FETCH_BYTES_MAX,
    ReadOptions,
    batch_options,
    include_headers,
    stream_options,
)
from forebay.transport.security import security

WRITE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
LEAST = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def batch(**options: str) -> ReadOptions:
    return batch_options(LEAST | {name.replace("_", "."): value for name, value in options.items()})


def stream(**options: str) -> ReadOptions:
    return stream_options(LEAST | {name.replace("_", "."): value for name, value in options.items()})


def test_a_batch_reads_everything_and_a_stream_what_is_new() -> None:
    assert (batch().starting.everywhere, batch().ending.everywhere) == (EARLIEST, LATEST)
    assert stream().starting.everywhere == LATEST
    assert batch().fetching.fail_on_data_loss
    assert not batch().fetching.read_committed
    assert not batch().include_headers


def test_names_are_not_case_sensitive() -> None:
    given = {"KAFKA.bootstrap.SERVERS": "a:1", "Subscribe": "orders", "INCLUDEHEADERS": "True"}
    assert batch_options(given).include_headers
    assert include_headers(given)


def test_topics_are_named_matched_or_given_by_partition() -> None:
    servers = {"kafka.bootstrap.servers": "a:1"}
    assert batch(subscribe=" a, b ,a").subscription.topics == ("a", "b")
    assert batch_options(servers | {"subscribePattern": "web-.*"}).subscription.pattern == "web-.*"
    assigned = batch_options(servers | {"assign": '{"a": [1, 0], "b": [3]}'}).subscription
    assert assigned.partitions == (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 3))


def test_offsets_are_words_or_json() -> None:
    assert stream(startingOffsets="Earliest").starting.everywhere == EARLIEST
    given = batch(startingOffsets='{"orders": {"0": 23, "1": -2}}').starting
    assert dict(given.by_partition) == {
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): EARLIEST,
    }
    assert not given.is_timestamp
    assert batch(endingOffsets='{"orders": {"0": -1}}').ending.by_partition[0][1] == LATEST


def test_a_timestamp_for_all_wins_over_timestamps_and_these_over_offsets() -> None:
    each = '{"orders": {"0": 5}}'
    both = batch(startingOffsetsByTimestamp=each, startingOffsets="earliest").starting
    assert both.is_timestamp and both.by_partition == ((TopicPartition("orders", 0), 5),)
    every = batch(startingTimestamp="7", startingOffsetsByTimestamp=each).starting
    assert every.is_timestamp and every.everywhere == 7
    assert batch(endingTimestamp="8").ending.everywhere == 8
    assert batch(endingOffsetsByTimestamp=each).ending.is_timestamp
    assert batch(startingTimestamp="7", startingOffsetsByTimestampStrategy="latest").latest_if_unmatched


def test_limits_of_tasks_and_batches() -> None:
    given = stream(
        minPartitions="9",
        maxRecordsPerPartition="100",
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2m",
    )
    assert (given.tasks_min, given.records_per_task_max) == (9, 100)
    admission = given.admission
    assert (admission.rows_max, admission.rows_min, admission.delay_ms_max) == (1000, 10, 120_000)
    assert stream().admission.delay_ms_max == 900_000
    # As in Spark's source, what only streams have is ignored in a batch.
    assert batch(maxOffsetsPerTrigger="5").admission.rows_max == 5


@pytest.mark.parametrize(("text", "delay_ms"), [("500ms", 500), ("3s", 3000), ("1h", 3_600_000), ("7", 7)])
def test_delays_have_units(text: str, delay_ms: int) -> None:
    assert stream(maxTriggerDelay=text).admission.delay_ms_max == delay_ms


def test_offsets_are_committed_when_there_is_a_group() -> None:
    assert stream().commit_group == ""
    assert stream(kafka_group_id="watchers").commit_group == "watchers"
    assert stream(kafka_group_id="watchers", commitOffsets="false").commit_group == ""


def test_what_workers_are_told() -> None:
    given = batch(
        failOnDataLoss="false",
        groupIdPrefix="mine",
        **{
            "kafka.isolation.level": "read_committed",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.fetch.max.bytes": "2000",
            "kafka.check.crcs": "false",
            "kafka.session.timeout.ms": "1",
        },
    ).fetching
    assert given.read_committed and not given.fail_on_data_loss and not given.check_crcs
    assert given.bytes_max == 1000
    assert batch().fetching.bytes_max == FETCH_BYTES
    assert batch(kafka_fetch_max_bytes="9999999999").fetching.bytes_max == FETCH_BYTES_MAX
    assert given.connection["kafka.client.id"] == "mine"
    assert "kafka.session.timeout.ms" not in given.connection


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"startingOfsets": "earliest"}, "startingofsets"),
        ({"kafka.bogus": "1"}, "kafka.bogus"),
        ({"path": "orders"}, "path"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "commitOffsets"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer"),
        ({"fetchOffset.numRetries": "3"}, "kafka.default.api.timeout.ms"),
        ({"kafka.sasl.login.class": "x"}, "kafka.sasl.login.class"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"subscribe": " , "}, "subscribe"),
        ({"subscribePattern": ".*"}, "subscribe and subscribePattern"),
        ({"assign": '{"a": [0]}'}, "subscribe and assign"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets"),
        ({"startingOffsets": '{"orders": {"0": "x"}}'}, "startingOffsets"),
        ({"startingOffsets": '{"orders": [0]}'}, "startingOffsets"),
        ({"startingOffsets": "{"}, "startingOffsets"),
        ({"startingOffsets": "first"}, "startingOffsets"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "startingOffsetsByTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "startingOffsetsByTimestampStrategy"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition"),
        ({"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "11"}, "minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay"),
        ({"includeHeaders": "yes"}, "includeHeaders"),
        ({"failOnDataLoss": "1"}, "failOnDataLoss"),
        ({"commitOffsets": "true"}, "kafka.group.id"),
        ({"kafka.isolation.level": "serializable"}, "kafka.isolation.level"),
    ],
)
def test_what_makes_no_sense_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")):
        batch_options(LEAST | options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        stream(**{name: "1"})


@pytest.mark.parametrize("pattern", ["", "web-("])
def test_a_pattern_is_a_regular_expression(pattern: str) -> None:
    with pytest.raises(ConfigError, match="subscribePattern"):
        batch_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": pattern})


def test_one_way_of_naming_topics_is_needed() -> None:
    with pytest.raises(ConfigError, match="none of them"):
        batch_options({"kafka.bootstrap.servers": "a:1"})


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"},
        {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "JKS"},
    ],
)
def test_security_that_cannot_be_had_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="not supported"):
        security(options, "kafka.")


def test_a_private_key_is_not_shown() -> None:
    given = security({"kafka.security.protocol": "ssl", "kafka.ssl.key.password": "hush"}, "kafka.")
    assert given.protocol == "SSL"
    assert "hush" not in repr(given)


def test_a_certificate_that_is_missing_is_named() -> None:
    given = security(
        {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/nowhere.pem"}, "kafka."
    )
    with pytest.raises(ConfigError, match=r"kafka\.ssl"):
        given.context()


# -- the table for those who come from Spark's connector -----------------------------------------------------

GUIDE = Path(__file__).parents[3] / "docs" / "spark.md"
SAMPLES = {
    "assign": '{"a": [0]}',
    "startingoffsetsbytimestamp": '{"a": {"0": 1}}',
    "endingoffsetsbytimestamp": '{"a": {"0": 1}}',
    "startingoffsets": "earliest",
    "endingoffsets": "latest",
    "startingoffsetsbytimestampstrategy": "latest",
    "failondataloss": "false",
    "includeheaders": "true",
    "kafka.check.crcs": "false",
    "kafka.isolation.level": "read_committed",
    "kafka.compression.type": "lz4",
    "kafka.security.protocol": "PLAINTEXT",
}
OF_STREAMS = {"maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"}
OF_WRITES = {"topic"}


def told() -> list[tuple[str, str]]:
    """Each option of the table, and what the table says of it."""
    section = GUIDE.read_text(encoding="utf-8").partition("## Coming from Spark's Kafka connector")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return [(name, verdict) for names, verdict in cells for name in re.findall("`([^`]+)`", names)]


@pytest.mark.parametrize(("option", "verdict"), told())
def test_the_table_says_what_becomes_of_an_option_of_sparks_connector(
    option: str, verdict: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = option.lower()
    least = {
        name_: value for name_, value in LEAST.items() if name_ != "subscribe" or "subscribe" not in name
    }
    if name == "assign":
        del least["subscribe"]
    given = {**least, option: SAMPLES.get(name, "1")}
    read = stream_options if name in OF_STREAMS else batch_options
    if verdict.startswith("refused"):
        for parse in (batch_options, write_options):
            with pytest.raises(ConfigError, match=f"option {name}"):
                parse(given if parse is batch_options else {**WRITE, option: "1"})
        return
    if name in OF_WRITES:
        write_options({**WRITE, option: "1"})
    else:
        read(given)
    is_for_both = name in OF_WRITES or "kafka.batch" in name or "compression" in name or "max.request" in name
    if verdict.startswith("no effect"):
        assert [record.getMessage() for record in caplog.records] == [f"without effect here: {name}"]
    elif not is_for_both:
        assert not caplog.records
