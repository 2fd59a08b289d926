"""examples/: most in the session of the tests, a declarative pipeline by Spark's own command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from forebay.cli.pipeline.commands import pipeline
from forebay.cli.pipeline.steps_file import load, steps_of
from forebay.spark.pipelines import Brokers, Job
from forebay.spark.session import DRIVER_OPTIONS
from support.brokers.broker_process import BrokerProcess
from support.spark.topics import Sent, contents, make, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(420)  # Spark shares its cores with whatever else runs

EXAMPLES = Path(__file__).parents[3] / "examples"
DEADLINE_SECONDS = 300


def test_log_aggregation(
    spark: SparkSession,
    fresh_broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It compares its results with what its servers sent by itself."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import log_aggregation

    monkeypatch.chdir(tmp_path)
    log_aggregation.produce_all(fresh_broker.bootstrap)
    run_steps_of("log_aggregation.yml", spark, fresh_broker.bootstrap)
    log_aggregation.show(tmp_path / "lake")
    assert "every count agrees" in capsys.readouterr().out


def run_steps_of(file: str, spark: SparkSession, bootstrap: str) -> None:
    brokers = Brokers(bootstrap=bootstrap)
    for step in steps_of(pipeline, load(EXAMPLES / file), click.Context(pipeline)):
        step.check(brokers)
        assert step.plan(brokers).rights
        job = step.start(spark, brokers)
        assert isinstance(job, Job)
        assert job.wait().facts["rows"] > 0


def test_clickstream_with_late_clicks(
    spark: SparkSession,
    fresh_broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import clickstream

    monkeypatch.chdir(tmp_path)
    clickstream.make_topics(fresh_broker.bootstrap)
    for half in (0, 1):
        clickstream.send(fresh_broker.bootstrap, half)
        run_steps_of("clickstream.yml", spark, fresh_broker.bootstrap)
    clickstream.show(tmp_path / "lake")
    assert "every count agrees" in capsys.readouterr().out


def test_changes_of_a_database_into_a_table(
    spark: SparkSession, fresh_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is repeated is found in the table."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from deltalake import DeltaTable

    import cdc

    cdc.run(spark, fresh_broker.bootstrap, tmp_path)
    version = DeltaTable(tmp_path / "customers").version()
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    cdc.follow(spark, fresh_broker.bootstrap, str(tmp_path / "customers"), str(tmp_path / "checkpoint"))
    assert DeltaTable(tmp_path / "customers").version() == version
    assert last.exists(), "Spark has repeated it"


def test_alerts_that_wait_and_values_that_are_no_orders(
    spark: SparkSession, fresh_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import alerts

    monkeypatch.chdir(tmp_path)
    alerts.make_topics(fresh_broker.bootstrap)
    alerts.send(fresh_broker.bootstrap)
    run_steps_of("alerts.yml", spark, fresh_broker.bootstrap)
    alerts.show(fresh_broker.bootstrap)


@pytest.mark.parametrize(
    "catalog",
    [
        "in-memory",
        # As the example says it, so that a second run finds the tables of the first; twice the work.
        pytest.param("hive", marks=pytest.mark.chaos),
    ],
)
def test_the_declarative_pipeline(
    broker: BrokerProcess, tmp_path: Path, jvm_options: str, catalog: str
) -> None:
    make(broker.bootstrap, orders=2, large_orders=1)
    values = [b'{"country": "de", "amount": 250}', b'{"country": "fr", "amount": 40}']
    send(broker.bootstrap, "orders", [Sent(value) for value in values])
    source = EXAMPLES / "declarative"
    spec = (source / "spark-pipeline.yml").read_text()
    assert "spark-pipelines run --conf spark.sql.catalogImplementation=hive" in spec
    spec = spec.replace("/tmp/forebay-declarative-orders", f"{tmp_path}/storage")
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    (tmp_path / "transformations").symlink_to(source / "transformations")
    commands = Path(sys.executable).parent
    done = subprocess.run(
        [
            commands / "spark-pipelines",
            *("run", "--conf", f"spark.sql.catalogImplementation={catalog}"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
            *("--conf", f"{DRIVER_OPTIONS}={jvm_options}"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{commands}:{os.environ['PATH']}",  # as in an environment that is activated
            "FOREBAY_BOOTSTRAP_SERVERS": broker.bootstrap,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [(one.key, one.value) for one in contents(broker.bootstrap, "large-orders")]
    assert found == [(b"de", b'{"country":"de","amount":250}')]
