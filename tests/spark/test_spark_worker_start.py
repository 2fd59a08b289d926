"""Which PySpark the Python workers import that Spark starts: by a session's own program (`worker_python.sh`),
and for a test by what is in front of their path (`support/spark/site`)."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from forebay.spark.session import PYTHON, REAL_PYTHON, WORKER_PYTHON, _driver_options, _worker_python

SITE = Path(__file__).parents[1] / "support" / "spark" / "site"
INSTALLED = Path(pyspark.__file__)
ARCHIVE = INSTALLED.parent / "python" / "lib" / "pyspark.zip"


def found_by_python(*path: Path, python: str = sys.executable, module: str = "pyspark") -> str:
    """Where a new Python finds a module, with these in front of its path."""
    script = f"import importlib.util, sys; sys.stdout.write(importlib.util.find_spec({module!r}).origin)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [python, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where nothing says which Python workers are to use."""
    for name in (PYTHON, REAL_PYTHON, "SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)


def test_sessions_on_this_machine_start_workers_that_import_what_is_installed(
    no_choice: None, tmp_path: Path
) -> None:
    python = _worker_python("local[2]")
    assert python == str(WORKER_PYTHON)
    own = tmp_path / "with space *" / "ours.py"
    own.parent.mkdir()
    own.touch()
    (py4j,) = ARCHIVE.parent.glob("py4j-*.zip")
    path = (ARCHIVE, py4j, ARCHIVE, own.parent)
    assert found_by_python(*path).startswith(str(ARCHIVE)), "as Spark would have it"
    assert found_by_python(*path, python=python) == str(INSTALLED)
    assert found_by_python(*path, python=python, module="ours") == str(own)
    assert found_by_python(python=python) == str(INSTALLED)


def test_other_workers_use_the_python_of_the_session(
    no_choice: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _worker_python("spark://somewhere:7077") == sys.executable
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert _worker_python("local[2]") == sys.executable, "another Spark"
    monkeypatch.setenv("SPARK_HOME", str(INSTALLED.parent))
    assert _worker_python("local[2]") == str(WORKER_PYTHON)
    monkeypatch.setattr(sys.modules["forebay.spark.session"], "WORKER_PYTHON", tmp_path / "not-there")
    assert _worker_python("local[2]") == sys.executable


def test_a_jvm_that_was_there_before_starts_the_python_of_the_session(
    no_choice: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "12345")  # as spark-submit says it
    assert _worker_python("local[2]") == sys.executable
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    monkeypatch.setattr(SparkContext, "_gateway", object())
    assert _worker_python("local[2]") == sys.executable
    monkeypatch.setenv(REAL_PYTHON, sys.executable)
    assert _worker_python("local[2]") == str(WORKER_PYTHON), "a JVM of an earlier session() knows"


def test_a_quick_session_leaves_the_garbage_collector_to_who_chose_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    assert "-XX:+UseSerialGC" in _driver_options("-Xss4m", quick=True)
    assert "SerialGC" not in _driver_options("-XX:+UseG1GC", quick=True)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1g -XX:+UseZGC")
    options = _driver_options("", quick=True)
    assert "SerialGC" not in options
    assert "-XX:TieredStopAtLevel=1" in options


def test_what_is_installed_is_imported_before_the_archive_of_spark() -> None:
    assert found_by_python(ARCHIVE).startswith(str(ARCHIVE)), "as Spark would have it"
    assert found_by_python(ARCHIVE, SITE) == str(INSTALLED)


def test_the_archive_stays_where_nothing_is_installed(tmp_path: Path) -> None:
    without_archive = runpy.run_path(str(SITE / "sitecustomize.py"))["without_archive"]
    assert without_archive([str(ARCHIVE), str(tmp_path)]) == [str(ARCHIVE), str(tmp_path)]
    assert without_archive([str(ARCHIVE), str(INSTALLED.parents[1])]) == [str(INSTALLED.parents[1])]


def test_workers_of_the_session_import_what_is_installed(spark: SparkSession) -> None:
    def imported(_row: int) -> str:
        import pyspark

        return pyspark.__file__

    assert spark.sparkContext.parallelize([0], 1).map(imported).collect() == [str(INSTALLED)]
