"""`forebay pipeline` as a user runs it: a file with every step, a killed driver, Ctrl-C, a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from broker_process import BrokerProcess
from forebay_command import command, environment
from spark_cluster import SparkCluster, running_cluster
from spark_topics import NINE_MS, Sent, contents, make, send

pytestmark = pytest.mark.timeout(420)  # Spark shares its cores with whatever else runs

DEADLINE_SECONDS = 300
# A driver that lives for seconds needs no compiler of the second tier.
QUICK = (
    "--conf",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "--master",
    "local[2]",
)

STEPS = """
conf: {spark.sql.shuffle.partitions: 2}
steps:
  - archive: {topic: run-orders, to: lake, once: true, group: run-archiver}
  - compact: {archive: lake}
  - replay: {archive: lake, to: run-again}
  - sql:
      query: SELECT user AS key, amount FROM stream('run-again') WHERE amount >= 5
      to: run-large
      once: true
      checkpoint: checkpoint
  - stats: {source: ./lake, report: report.html}
"""


def orders(first: int, count: int) -> list[Sent]:
    return [
        Sent(
            json.dumps({"user": f"u{n % 4}", "amount": n % 10}).encode(), b"u%d" % (n % 4), n % 2, NINE_MS + n
        )
        for n in range(first, first + count)
    ]


def pipeline(*arguments: str, bootstrap: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("pipeline", *arguments, *QUICK),
        env=environment(bootstrap),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def archived(lake: Path) -> list[tuple[int, int]]:
    rows = ds.dataset(lake, format="parquet", partitioning="hive").to_table(["partition", "offset"])
    return sorted(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))


def test_a_file_with_every_step(broker: BrokerProcess, tmp_path: Path) -> None:
    make(broker.bootstrap, run_orders=2, run_again=2, run_large=1)
    send(broker.bootstrap, "run-orders", orders(0, 100))
    (tmp_path / "steps.yml").write_text(STEPS)
    done = pipeline("run", "steps.yml", "--json", bootstrap=broker.bootstrap, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    archive, compact, replay, query, stats = json.loads(done.stdout)
    assert archive["rows"] == replay["rows"] == query["rows"] == stats["messages"] == 100
    assert compact["new_files"] == 1
    assert "archive of run-orders: batch 0, 100 rows" in done.stderr
    assert "WARN" not in done.stderr
    assert len(contents(broker.bootstrap, "run-large")) == 50
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_a_failure_is_one_line(broker: BrokerProcess, tmp_path: Path) -> None:
    done = pipeline("stats", "nowhere", bootstrap=broker.bootstrap, cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines == ["stats of nowhere ...", f"forebay: {lines[-1].removeprefix('forebay: ')}"]
    assert "there is no topic nowhere: `forebay topic create nowhere` makes it" in lines[-1]


@contextlib.contextmanager
def running(*arguments: str, bootstrap: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """In a process group of its own, so that `kill` can take the JVM too."""
    process = subprocess.Popen(
        command("pipeline", *arguments, *QUICK),
        env=environment(bootstrap),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(process)
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for_files(lake: Path, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(list(lake.glob("date=*/hour=*/*.parquet"))) < count:
        assert time.monotonic() < deadline, f"no {count} files in {lake}"
        time.sleep(0.02)


def test_an_archive_is_whole_over_a_killed_driver_and_ctrl_c(broker: BrokerProcess, tmp_path: Path) -> None:
    """Killed in the middle of a batch; then stopped as a user stops it."""
    make(broker.bootstrap, run_killed=2)
    send(broker.bootstrap, "run-killed", orders(0, 400))
    lake = tmp_path / "lake"
    arguments = ["archive", "run-killed", "--to", "lake", "--every", "1s", "--json"]
    with running(*arguments, "--batch-records", "20", bootstrap=broker.bootstrap, cwd=tmp_path) as killed:
        wait_for_files(lake, 5)
        kill(killed)
    assert 0 < len(archived(lake)) < 400

    send(broker.bootstrap, "run-killed", orders(400, 10))
    wanted = [(one.partition, one.offset) for one in contents(broker.bootstrap, "run-killed")]
    with running(*arguments, bootstrap=broker.bootstrap, cwd=tmp_path) as stopped:
        wait_until_archived(lake, wanted)
        stopped.send_signal(signal.SIGINT)
        output, _ = stopped.communicate(timeout=DEADLINE_SECONDS)
    assert stopped.returncode == 0
    assert json.loads(output)["pipeline"] == "archive of run-killed"
    assert archived(lake) == wanted


def wait_until_archived(lake: Path, wanted: list[tuple[int, int]]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: list[tuple[int, int]] = []
    while found != wanted:
        assert time.monotonic() < deadline, f"{len(found)} of {len(wanted)}"
        with contextlib.suppress(FileNotFoundError):  # what the killed one had begun is removed
            found = archived(lake)
            assert len(found) == len(set(found)), "a message is there twice"
        time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with running_cluster(tmp_path) as started:
        yield started


def test_executors_without_forebay_get_what_they_need(
    broker: BrokerProcess, cluster: SparkCluster, tmp_path: Path
) -> None:
    """A master and two workers; the executors' Python has neither Forebay nor its dependencies."""
    probe = [str(cluster.python), "-c", "import pyarrow, pandas, numpy; import forebay"]
    without = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    assert "No module named 'forebay'" in without.stderr, without.stderr

    make(broker.bootstrap, run_shipped=2, run_shipped_again=2)
    send(broker.bootstrap, "run-shipped", orders(0, 100), "zstd")
    (tmp_path / "steps.yml").write_text(
        f"""
        master: {cluster.master}
        conf: {{spark.driver.host: 127.0.0.1, spark.executor.memory: 512m, spark.sql.shuffle.partitions: 2}}
        steps:
          - archive: {{topic: run-shipped, to: lake, once: true}}
          - compact: {{archive: lake}}
          - replay: {{archive: lake, to: run-shipped-again}}
        """
    )
    done = subprocess.run(
        command("pipeline", "run", "steps.yml", "-b", broker.bootstrap, "--json"),
        env=cluster.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [summary.get("rows", summary.get("new_files")) for summary in json.loads(done.stdout)] == [
        100,
        1,
        100,
    ]
    assert len(contents(broker.bootstrap, "run-shipped-again")) == 100
    workers = {path.parts[-4] for path in tmp_path.glob("work-*/app-*/*/stderr")}
    assert workers == {"work-0", "work-1"}, "both had an executor"
