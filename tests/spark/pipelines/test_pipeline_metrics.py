"""How far pipelines are behind, in messages and seconds, and the page that Prometheus reads."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.cli.client import CommandError
from forebay.cli.pipeline.engine import Engine
from forebay.cli.pipeline.metrics_page import Watched, bound, page
from forebay.spark.pipelines import Brokers, Job
from forebay.spark.pipelines.lag import Lag, lag_of
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import forebay
from support.spark.topics import NINE_MS, Sent, make, send

NOW_S = NINE_MS / 1000 + 100


@pytest.fixture(scope="module")
def brokers(broker: BrokerProcess) -> Brokers:
    """Two partitions with five messages each, a second apart."""
    make(broker.bootstrap, lagging=2)
    times = [(partition, n) for partition in range(2) for n in range(5)]
    messages = [Sent(b"x", partition=at, timestamp_ms=NINE_MS + 1000 * (n + at)) for at, n in times]
    send(broker.bootstrap, "lagging", messages)
    return Brokers(bootstrap=broker.bootstrap)


def source(first: int, second: int) -> dict[str, Any]:
    ends = {"lagging": {"0": first, "1": second}, "topic:ids": {"lagging": "x"}}
    return {"endOffset": json.dumps(ends), "latestOffset": None}


@pytest.mark.parametrize(
    ("first", "second", "lag"),
    [
        (5, 5, Lag(0, 0.0)),
        (3, 5, Lag(2, 97.0)),
        (5, 1, Lag(4, 98.0)),
        (4, 0, Lag(6, 99.0)),
        (0, 0, Lag(10, 100.0)),
    ],
)
def test_the_lag_is_what_no_batch_has_and_the_age_of_the_first_of_it(
    brokers: Brokers, first: int, second: int, lag: Lag
) -> None:
    assert lag_of(brokers, [source(first, second)], NOW_S) == lag


def test_what_reads_no_topic_has_no_lag(brokers: Brokers) -> None:
    assert lag_of(brokers, [], NOW_S) is None
    assert lag_of(brokers, [{"endOffset": '{"0": 5}'}, {"endOffset": None}], NOW_S) is None


def running(*ends: int, **more: Any) -> Job:
    about = {"batchId": 0, "numInputRows": 5, "processedRowsPerSecond": 1.0}
    batch = {**about, "sources": [source(*ends)], **more}
    query: Any = SimpleNamespace(isActive=True, recentProgress=[batch], exception=lambda: None)
    job = Job("a job", query, ends=False)
    job.advance()
    return job


def test_lost_offsets_are_counted_and_the_rows_that_stand_for_them_are_none(brokers: Brokers) -> None:
    job = running(5, 5, observedMetrics={"forebay_lost lagging": {"rows": 70, "stretches": 2}})
    assert job.counts() == {"rows": 3, "batches": 1, "lost": 70}
    text = page([Watched("sql to b", job, 0)], brokers, NOW_S)
    assert 'forebay_pipeline_lost_total{step="sql to b"} 70' in text.splitlines()


PAGE = """\
# HELP forebay_pipeline_up 1 while the step works, 0 while it waits to be started again.
# TYPE forebay_pipeline_up gauge
forebay_pipeline_up{step="archive \\"a\\""} 1
forebay_pipeline_up{step="sql to b"} 0
# HELP forebay_pipeline_restarts_total How often the step was started again.
# TYPE forebay_pipeline_restarts_total counter
forebay_pipeline_restarts_total{step="archive \\"a\\""} 0
forebay_pipeline_restarts_total{step="sql to b"} 3
# HELP forebay_pipeline_batches_total Batches with rows, since the step was started last.
# TYPE forebay_pipeline_batches_total counter
forebay_pipeline_batches_total{step="archive \\"a\\""} 1
# HELP forebay_pipeline_rows_total Messages that were read, since the step was started last.
# TYPE forebay_pipeline_rows_total counter
forebay_pipeline_rows_total{step="archive \\"a\\""} 5
# HELP forebay_pipeline_lag_messages Messages in the topics that no batch has yet.
# TYPE forebay_pipeline_lag_messages gauge
forebay_pipeline_lag_messages{step="archive \\"a\\""} 2
# HELP forebay_pipeline_lag_seconds The age of the first of them.
# TYPE forebay_pipeline_lag_seconds gauge
forebay_pipeline_lag_seconds{step="archive \\"a\\""} 97
"""


def test_the_page_has_every_step(brokers: Brokers) -> None:
    steps = [Watched('archive "a"', running(3, 5), 0), Watched("sql to b", None, 3)]
    assert page(steps, brokers, NOW_S) == PAGE


def test_brokers_that_do_not_answer_leave_the_counts() -> None:
    away = Brokers(bootstrap="127.0.0.1:1", options={"kafka.default.api.timeout.ms": "100"})
    shown = page([Watched("a", running(3, 5), 0)], away, NOW_S)
    assert "rows_total" in shown
    assert "lag" not in shown


def test_the_page_is_served_until_the_run_ends() -> None:
    with bound("0") as server:
        assert server is not None
        server.start(lambda: "a page\n")
        address = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
            assert answer.read() == b"a page\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/other", timeout=60)
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=60)
    with bound(None) as nobody:
        assert nobody is None


def test_an_address_that_cannot_be_is_told_before_spark_is_started(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "session", lambda *_, quick: pytest.fail("Spark was started"))
    arguments = ("pipeline", "archive", "lagging", "--to", str(tmp_path / "lake"), "--metrics")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = forebay(*arguments, str(port), bootstrap=brokers.bootstrap)
        assert done.err == f"forebay: --metrics {port}: address already in use: name another port\n"
    with pytest.raises(CommandError, match="neither PORT nor HOST:PORT"), bound("a port"):
        pass
