"""Spark's streams and jobs in the console: by what they commit, and by the metrics of a running pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from forebay.cli.pipeline.metrics_page import bound
from forebay.client import Admin, Producer, Record
from forebay.console.pages.groups.pipelines import parse_steps
from forebay.spark.sink.transactions.batch_decisions import Ledger
from forebay.spark.sink.transactions.participants import Decision, group_of, pieces_of
from forebay.spark.source.offset_lookup import commit_offsets
from forebay.spark.source.offset_ranges import TopicPartition
from forebay.spark.wire.connections import Cluster
from forebay.testing import Broker
from support.console.browser import needs_browser, opened_page, picture
from support.console.running_console import RunningConsole, running_console
from support.waiting import Patience

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE_OF_METRICS = """\
# HELP forebay_pipeline_up 1 while the step works, 0 while it waits to be started again.
# TYPE forebay_pipeline_up gauge
forebay_pipeline_up{step="archive orders"} 1
forebay_pipeline_up{step="sql \\"totals\\""} 0
forebay_pipeline_rows_total{step="archive orders"} 1200
forebay_pipeline_lag_messages{step="archive orders"} 7
"""


@pytest.fixture(scope="module")
def spark(broker: Broker) -> Iterator[Cluster]:
    """As the driver of a query has it, without a JVM."""
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=2)
        admin.create_topic("totals", partitions=1)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(20):
            producer.send_record(Record(topic="orders", partition=number % 2, value=b"%d" % number))
    with Cluster(broker.bootstrap_servers, {}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def console(broker: Broker, spark: Cluster) -> Iterator[RunningConsole]:
    with bound("127.0.0.1:0") as metrics:
        assert metrics is not None
        metrics.start(lambda: PAGE_OF_METRICS)
        pages = (f"127.0.0.1:{metrics.server_port}", "127.0.0.1:1")
        with running_console(broker.bootstrap_servers, pipelines=pages) as started:
            yield started


def finish(spark: Cluster, *offsets: int) -> None:
    """What a stream does at the end of a batch."""
    commit_offsets(spark, "totals-job", {TopicPartition("orders", at): to for at, to in enumerate(offsets)})


def decide(spark: Cluster, name: str, batch: int) -> None:
    """What an exactly-once sink does at the end of a batch."""
    ledger = Ledger(spark, name)
    identity, _ = ledger._take_over()
    decision = Decision(batch_id=batch, topics=("totals",), participants=())
    ledger.record(identity, decision, pieces_of(decision.text()), ())


def test_a_stream_is_shown_by_the_offsets_that_it_commits(spark: Cluster, console: RunningConsole) -> None:
    finish(spark, 4, 3)
    patience = Patience("the console sees the stream")
    while not (rows := console.get("local/pipelines")["readers"]["rows"]):
        patience.check()
    assert [(row["name"], row["topics"], row["lag"]) for row in rows] == [("totals-job", ["orders"], 13)]
    assert rows[0]["moved"] is None, "it was not seen to go on yet"
    finish(spark, 10, 10)
    while console.get("local/pipelines")["readers"]["rows"][0]["lag"]:
        patience.check()
    (row,) = console.get("local/pipelines")["readers"]["rows"]
    assert row["moved"] is not None
    assert any(console.get("local/history?series=read:totals-job")["read:totals-job"])


def test_an_exactly_once_writer_is_shown_by_its_last_batch_and_is_no_group(
    spark: Cluster, console: RunningConsole
) -> None:
    decide(spark, "daily", 6)
    decide(spark, "daily", 7)
    patience = Patience("the console sees the writer")
    while [row["batch"] for row in console.get("local/pipelines")["writers"]] != [7]:
        patience.check()
    rows = console.get("local/pipelines")["writers"]
    assert [(row["name"], row["topics"]) for row in rows] == [("daily", ["totals"])]
    groups = [row["name"] for row in console.get("local/groups")["rows"]]
    assert group_of("daily") not in groups, "the number of a batch is no place in a log"
    decide(spark, "daily", 9)
    while console.get("local/pipelines")["writers"][0]["batch"] != 9:
        patience.check()
    assert console.get("local/pipelines")["writers"][0]["moved"] is not None
    assert console.get("local/pipelines?search=nothing")["writers"] == []


def test_steps_of_a_run_are_read_from_its_metrics_and_one_that_is_silent_is_named(
    console: RunningConsole,
) -> None:
    archive, totals, silent = console.get("local/pipelines")["steps"]
    assert (archive["step"], archive["up"], archive["rows_total"]) == ("archive orders", 1, 1200)
    assert (totals["step"], totals["up"]) == ('sql "totals"', 0)
    assert silent["step"] is None
    assert "127.0.0.1:1/metrics does not answer" in silent["problem"]


def test_lines_that_are_no_figures_of_steps_are_passed_over() -> None:
    assert parse_steps('up 1\nforebay_pipeline_up{step="a\\\\b"} 1\n# nothing\n') == {"a\\b": {"up": 1.0}}


@needs_browser
def test_a_person_sees_streams_writers_and_steps(
    browser: Browser, spark: Cluster, console: RunningConsole
) -> None:
    finish(spark, 9, 10)
    decide(spark, "daily", 11)
    with opened_page(browser, console.at("pipelines")) as page:
        page.get_by_role("link", name="totals-job").wait_for()
        page.get_by_text("archive orders").wait_for()
        page.get_by_text("daily", exact=True).wait_for()
        page.get_by_text("127.0.0.1:1/metrics does not answer").wait_for()
        picture(page, "pipelines")
