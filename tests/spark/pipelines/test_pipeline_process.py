"""`forebay pipeline` as a user runs it: a killed driver, a file with every step, Ctrl-C, a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import command
from support.spark.archives import seen_by_anyone
from support.spark.cluster import SparkCluster, running_cluster
from support.spark.pipeline_process import kill, quick, running
from support.spark.topics import NINE_MS, Sent, contents, make, send

pytestmark = pytest.mark.timeout(420)  # Spark shares its cores with whatever else runs

DEADLINE_SECONDS = 300
TRIGGER_SECONDS = 1.0
STEPS = """
conf: {spark.sql.shuffle.partitions: 2}
steps:
  - archive: {topic: run-orders, to: lake, once: true}
  - compact: {archive: lake}
  - replay: {archive: lake, to: run-again}
  - sql:
      query: SELECT user AS key, amount FROM stream('run-again') WHERE amount >= 5
      to: run-large
      once: true
      checkpoint: checkpoint
  - stats: {source: ./lake, report: report.html}
  - archive: {topic: run-large, to: large, every: 1s}
"""


def orders(first: int, count: int) -> list[Sent]:
    return [
        Sent(
            json.dumps({"user": f"u{n % 4}", "amount": n % 10}).encode(), b"u%d" % (n % 4), n % 2, NINE_MS + n
        )
        for n in range(first, first + count)
    ]


def wait_for_files(lake: Path, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(list(lake.glob("date=*/hour=*/*.parquet"))) < count:
        assert time.monotonic() < deadline, f"no {count} files in {lake}"
        time.sleep(0.02)


@pytest.mark.chaos  # a minute; tests/chaos kills drivers of archives, too
def test_a_killed_archive_is_taken_up_by_a_file_with_every_step(
    broker: BrokerProcess, tmp_path: Path, jvm_options: str
) -> None:
    """Killed in the middle of a batch, then stopped there by Ctrl-C for all its processes; then a file whose
    last step runs until Ctrl-C."""
    make(broker.bootstrap, run_orders=2, run_again=2, run_large=1)
    send(broker.bootstrap, "run-orders", orders(0, 400))
    lake = tmp_path / "lake"
    arguments = ["archive", "run-orders", "--to", "lake", "--every", "100ms", "--batch-records", "20"]
    started = partial(running, bootstrap=broker.bootstrap, cwd=tmp_path, jvm_options=jvm_options)
    with started(*arguments) as killed:
        wait_for_files(lake, 5)
        kill(killed)
    assert 0 < len(seen_by_anyone(lake)) < 400
    with started(*arguments[:4], "--once", "--batch-records", "20") as interrupted:
        wait_for_files(lake, 8)
        os.killpg(interrupted.pid, signal.SIGINT)  # as a terminal does it
        output, _ = interrupted.communicate(timeout=DEADLINE_SECONDS)
    first, *lines = (tmp_path / "stderr").read_text().splitlines()
    assert (interrupted.returncode, output, first) == (130, "", "archive run-orders: starts"), lines
    assert [line for line in lines if not line.startswith("archive of run-orders: batch ")] == [
        "archive run-orders: stopped before its end; the same command goes on from here"
    ]
    assert 0 < len(seen_by_anyone(lake)) < 400

    (tmp_path / "steps.yml").write_text(STEPS)
    with started("run", "steps.yml", "--json") as stopped:
        wait_for_rows(tmp_path / "large", 200, stopped)
        # Stopped in the middle of a batch it would rightly say that none has ended.
        wait_for_batches(tmp_path / "large", 1)
        stopped.send_signal(signal.SIGINT)
        output, _ = stopped.communicate(timeout=DEADLINE_SECONDS)
    told = (tmp_path / "stderr").read_text()
    assert stopped.returncode == 0, told
    archive, compact, replay, query, stats, large = json.loads(output)
    assert 0 < archive["rows"] < 400
    assert replay["rows"] == query["rows"] == stats["messages"] == 400
    assert (compact["new_files"], large["rows"]) == (1, 200)
    assert stats["duplicates"] == 400 - 20
    assert seen_by_anyone(lake) == [
        (one.partition, one.offset) for one in contents(broker.bootstrap, "run-orders")
    ]
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert "replay of" in told
    assert "WARN" not in told
    assert "Traceback" not in told


def wait_for_rows(lake: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(seen_by_anyone(lake)) < count:
        assert time.monotonic() < deadline, f"no {count} messages in {lake}"
        assert process.poll() is None, (lake.parent / "stderr").read_text()
        time.sleep(0.1)


def wait_for_batches(lake: Path, count: int) -> None:
    """Until Spark counts so many batches as done, and has begun to look for the next."""
    commits = lake / "_forebay" / "checkpoint" / "commits"
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (commits / str(count - 1)).exists():
        assert time.monotonic() < deadline, f"no {count} batches in {lake}"
        time.sleep(0.1)
    time.sleep(5 * TRIGGER_SECONDS)


@pytest.fixture
def cluster(tmp_path: Path, jvm_options: str) -> Iterator[SparkCluster]:
    with running_cluster(tmp_path, jvm_options) as started:
        yield started


@pytest.mark.compat  # starts a cluster of Spark, with a Python of its own
def test_executors_without_forebay_get_what_they_need(
    broker: BrokerProcess, cluster: SparkCluster, tmp_path: Path, jvm_options: str
) -> None:
    """A master and two workers; the executors' Python has neither Forebay nor its dependencies."""
    probe = [str(cluster.python), "-c", "import pyarrow, pandas, numpy; import forebay"]
    without = subprocess.run(probe, capture_output=True, text=True, timeout=120, check=False)
    assert "No module named 'forebay'" in without.stderr, without.stderr

    make(broker.bootstrap, run_shipped=2, run_shipped_again=2)
    send(broker.bootstrap, "run-shipped", orders(0, 100), "zstd")
    (tmp_path / "steps.yml").write_text(
        f"""
        master: {cluster.master}
        conf:
          spark.driver.host: 127.0.0.1
          spark.executor.memory: 512m
          spark.executor.extraJavaOptions: {json.dumps(jvm_options)}
          spark.sql.shuffle.partitions: 2
        steps:
          - archive: {{topic: run-shipped, to: lake, once: true}}
          - replay: {{archive: lake, to: run-shipped-again}}
        """
    )
    done = subprocess.run(
        command("pipeline", "run", "steps.yml", "-b", broker.bootstrap, "--json", *quick(jvm_options)),
        env=cluster.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [summary["rows"] for summary in json.loads(done.stdout)] == [100, 100]
    assert len(contents(broker.bootstrap, "run-shipped-again")) == 100
    workers = {path.parts[-4] for path in tmp_path.glob("work-*/app-*/*/stderr")}
    assert workers == {"work-0", "work-1"}, "both had an executor"
