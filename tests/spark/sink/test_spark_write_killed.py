"""kill -9 of drivers and of Python workers in the middle of exactly-once streams: every row is there once."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from forebay.spark.sink.transactions.batch_decisions import open_ids
from forebay.spark.wire.connections import Cluster as Brokers
from forebay.testing import Broker
from support.chaos.witness import read_everything
from support.clients.wire_client import WireClient, create
from support.spark import driver as spark_driver
from support.spark import hanging_driver
from support.spark.processes import is_running, kill_9, kill_all_of, workers
from support.spark.reading import make_topic
from support.spark.writing import Query, committed, wait_until_closed
from support.waiting import Patience

PARTITIONS = 2
ROWS = 3_000
"""Ten micro-batches, in each of which both tasks have rows."""
WORKER_KILLS = 4
CHANCE = random.Random(os.environ.get("SPARK_KILL_SEED", "6"))
DEADLINE_S = 240.0

# Starting Spark takes seconds, and on a busy machine many; the deadlines above say more precisely what hangs.
pytestmark = pytest.mark.timeout(2 * DEADLINE_S)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(process=True) as running:
        yield running.bootstrap_servers


@pytest.fixture
def topics(bootstrap: str, topic: str) -> tuple[str, str]:
    """One with numbered rows, and an empty one."""
    # The rows are dated years ago, which retention would notice.
    make_topic(bootstrap, f"{topic}-in", *[ROWS // PARTITIONS] * PARTITIONS, retention_ms="-1")
    with WireClient(bootstrap) as client:
        create(client, f"{topic}-out", PARTITIONS)
    return f"{topic}-in", f"{topic}-out"


def check_copied_once(bootstrap: str, topics: tuple[str, str]) -> None:
    source, sink = topics
    wait_until_closed(bootstrap, sink, PARTITIONS)
    places = [(sink, n) for n in range(PARTITIONS)]
    seen = read_everything(bootstrap, places, "read_committed")
    assert sorted(value for log in seen.values() for value in log.values()) == committed(bootstrap, source)


def wait_for_more_rows(bootstrap: str, sink: str, running: Callable[[], bool]) -> None:
    """Until another micro-batch is committed, and a little into the next one; or until it is over."""
    before, deadline = len(committed(bootstrap, sink)), time.monotonic() + DEADLINE_S
    while len(committed(bootstrap, sink)) == before and running():
        assert time.monotonic() < deadline, f"no more than {before} rows were copied"
        time.sleep(0.2)  # looking reads all rows, which keeps a core from Spark
    time.sleep(CHANCE.uniform(0, 0.5))


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.chaos)])
def test_drivers_that_are_killed_leave_each_row_once(
    spark: SparkSession,
    bootstrap: str,
    topics: tuple[str, str],
    tmp_path: Path,
    jvm_options: str,
    kills: int,
) -> None:
    """The last driver, which is not killed, is the session of the tests."""
    checkpoint = str(tmp_path / "checkpoint")
    command = [sys.executable, spark_driver.__file__, bootstrap, *topics, checkpoint, jvm_options]
    for kill in range(kills):
        # A session of its own: the JVM dies with the driver, as a machine dies as a whole.
        with (tmp_path / f"driver-{kill}.log").open("wb") as log:
            driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for_more_rows(bootstrap, topics[1], partial(is_running, driver))
            said = (tmp_path / f"driver-{kill}.log").read_text()
            assert is_running(driver) or driver.returncode == 0, said[-3000:]
        finally:
            kill_all_of(driver)
    query = spark_driver.copy(spark, bootstrap, *topics, checkpoint)
    assert query.awaitTermination(int(DEADLINE_S)), "the stream did not come to its end"
    check_copied_once(bootstrap, topics)


def test_a_driver_that_is_killed_before_it_decides_holds_readers_up_for_a_moment_only(
    bootstrap: str, topics: tuple[str, str], tmp_path: Path, jvm_options: str
) -> None:
    """While it lives its transactions outlive their timeout, and end after it when it is dead."""
    sink, timeout_ms = topics[1], 10_000
    command = [sys.executable, hanging_driver.__file__, bootstrap, sink, str(timeout_ms), jvm_options]
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        with Brokers(bootstrap) as brokers:
            wait_until_open(brokers, 2, partial(is_running, driver))
            other = Query(bootstrap, sink, [[[b"x"]]], transaction_timeout_ms=timeout_ms)
            other.run().prepare(0)  # which nobody renews
            wait_until_open(brokers, 3, partial(is_running, driver))
            patience = Patience("what nobody renews times out", DEADLINE_S)
            while any(other.name in each for each in open_ids(brokers)):
                patience.check()
                time.sleep(0.1)
            assert len(open_ids(brokers)) == 2, (tmp_path / "driver.log").read_text()[-3000:]
            other.close()
    finally:
        kill_all_of(driver)
    wait_until_closed(bootstrap, sink, PARTITIONS)
    assert committed(bootstrap, sink) == []


def wait_until_open(brokers: Brokers, count: int, running: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(open_ids(brokers)) < count:
        assert running() and time.monotonic() < deadline, "the driver writes"
        time.sleep(0.1)


def test_workers_that_are_killed_leave_each_row_once(
    spark: SparkSession, bootstrap: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    kills, finished = 0, False
    while not finished:
        query = spark_driver.copy(spark, bootstrap, *topics, str(tmp_path / "checkpoint"))
        while kills < WORKER_KILLS and query.isActive:
            wait_for_more_rows(bootstrap, topics[1], partial(getattr, query, "isActive"))
            if victims := workers(os.getpid()):
                kill_9(CHANCE.choice(victims))
                kills += 1
        # In local mode a task is not tried again: the query fails, and is started anew.
        with contextlib.suppress(StreamingQueryException):
            finished = bool(query.awaitTermination(int(DEADLINE_S)))
            assert finished, "the stream did not come to its end"
    assert kills
    check_copied_once(bootstrap, topics)
