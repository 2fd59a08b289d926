"""Which PySpark the Python workers import that Spark starts for a test (`support/spark/site`)."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

SITE = Path(__file__).parents[1] / "support" / "spark" / "site"
INSTALLED = Path(pyspark.__file__)
ARCHIVE = INSTALLED.parent / "python" / "lib" / "pyspark.zip"


def found_by_python(*path: Path) -> str:
    """Where a new Python finds PySpark, with these in front of its path."""
    script = "import importlib.util, sys; sys.stdout.write(importlib.util.find_spec('pyspark').origin)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


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
