"""`forebay pipeline run` with several endless steps, one of which fails; and what its JVM holds on to."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.request
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.brokers.broker_process import BrokerProcess
from support.spark.archives import seen_by_anyone
from support.spark.pipeline_process import running
from support.spark.processes import descendants
from support.spark.topics import Sent, make, send
from support.waiting import Patience

pytestmark = pytest.mark.timeout(420)  # Spark shares its cores with whatever else runs

DEADLINE_SECONDS = 300
STEPS = """
conf: {spark.sql.shuffle.partitions: 2}
steps:
  - archive: {topic: sup-steady, to: steady, every: 1s}
  - archive: {topic: sup-fragile, to: fragile, every: 1s}
    restart: {when: on-failure, times: 1, backoff: 1s}
"""


def make_anew(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([topic]).values():
        future.result(60)
    make(bootstrap, **{topic.replace("-", "_"): 1})


def wait_for_rows(lakes: list[Path], count: int) -> None:
    patience = Patience(f"{count} messages in {lakes}", DEADLINE_SECONDS)
    while any(len(seen_by_anyone(lake)) < count for lake in lakes):
        patience.check()
        time.sleep(0.1)


def wait_for_metrics(port: int, *topics: str) -> None:
    """Until Spark has told of the batches."""
    patience = Patience("a page for Prometheus", DEADLINE_SECONDS)
    wanted = [f'forebay_pipeline_rows_total{{step="archive {topic}"}} 5\n' for topic in topics]
    wanted += [f'forebay_pipeline_lag_messages{{step="archive {topic}"}} 0\n' for topic in topics]
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            page = answer.read().decode()
        if all(line in page for line in wanted):
            return
        patience.check(page)
        time.sleep(0.2)


def stdout_of(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/fd/1").readlink()
    except OSError:
        return None  # a worker that has ended


def test_a_later_step_that_fails_is_started_again_and_then_ends_the_run(
    broker: BrokerProcess, tmp_path: Path, jvm_options: str
) -> None:
    make(broker.bootstrap, sup_steady=1, sup_fragile=1)
    for topic in ("sup-steady", "sup-fragile"):
        send(broker.bootstrap, topic, [Sent(b"%d" % n) for n in range(5)])
    (tmp_path / "steps.yml").write_text(STEPS)
    started = partial(running, bootstrap=broker.bootstrap, cwd=tmp_path, jvm_options=jvm_options)
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    with started("run", "steps.yml", "--json", "--metrics", str(port)) as process:
        wait_for_rows([tmp_path / "steady", tmp_path / "fragile"], 5)
        wait_for_metrics(port, "sup-steady", "sup-fragile")
        others = list(filter(None, map(stdout_of, descendants(process.pid))))
        assert others, "a JVM and its workers"
        assert stdout_of(process.pid) not in others, "who reads the command's output would wait for them, too"
        make_anew(broker.bootstrap, "sup-fragile")
        process.communicate(timeout=DEADLINE_SECONDS)
    *_, again, starts, last = [
        line for line in (tmp_path / "stderr").read_text().splitlines() if ": batch " not in line
    ]
    reason = "archive sup-fragile: archive of sup-fragile failed: "  # gone, or made anew
    assert again.startswith(reason)
    assert again.endswith("; starts again in 1 s (1 of 1)")
    assert starts == "archive sup-fragile: starts again"
    assert last.startswith("forebay: archive sup-fragile: ") and "give the new topic a directory" in last
    assert last.endswith("(after 1 restart)")
    assert process.returncode == 1

    (tmp_path / "steps.yml").write_text(STEPS.replace("to: fragile,", "to: anew, on-data-loss: skip,"))
    send(broker.bootstrap, "sup-fragile", [Sent(b"%d" % n) for n in range(2)])
    with started("run", "steps.yml", "--json") as process:
        wait_for_rows([tmp_path / "anew"], 2)
        for _ in range(2):
            os.killpg(process.pid, signal.SIGTERM)  # as systemd does it: the JVM gets it, too
        summaries, _ = process.communicate(timeout=DEADLINE_SECONDS)
    steady, anew = json.loads(summaries)
    assert (steady["archive"], anew["archive"]) == (str(tmp_path / "steady"), str(tmp_path / "anew"))
    told = (tmp_path / "stderr").read_text()
    assert process.returncode == 0, told
    assert told.endswith("stopping\n")


def test_a_column_that_is_not_there_is_one_line(
    broker: BrokerProcess, tmp_path: Path, jvm_options: str
) -> None:
    make(broker.bootstrap, sup_columns=1)
    query = "SELECT nothing FROM stream('sup-columns', schema => 'id INT')"
    arguments = ("sql", query, "--to", "sup-columns", "--once", "--checkpoint", "checkpoint")
    started = partial(running, bootstrap=broker.bootstrap, cwd=tmp_path, jvm_options=jvm_options)
    with started(*arguments) as process:
        process.communicate(timeout=DEADLINE_SECONDS)
    starts, problem = (tmp_path / "stderr").read_text().splitlines()
    assert starts == "sql to sup-columns: starts"
    assert problem.startswith("forebay: the query cannot be run: [UNRESOLVED_COLUMN")
    assert "a stream has the fields of its values, which --schema TOPIC='id INT' names" in problem
    assert process.returncode == 1
