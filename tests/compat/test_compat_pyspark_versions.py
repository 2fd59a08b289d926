"""The core of the Spark tests with each PySpark that is supported, in environments of their own.

Needs an index of packages; the first run installs 450 MB for each version.

PYSPARK_VERSIONS="4.1.4 4.2.1" chooses.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.spark.versions import NotInstallable, python_with

pytestmark = [pytest.mark.compat, pytest.mark.timeout(7200)]

VERSIONS = os.environ.get("PYSPARK_VERSIONS", "4.1.4 4.2.1 4.3.0").split()
ROOT = Path(__file__).parents[2]
CORE = (
    "source/test_spark_read_batch.py",
    "source/test_spark_read_stream.py",
    "sink/test_spark_write.py",
    "sink/test_spark_update_mode.py",
    "schemas/test_spark_registry.py",
    "pipelines/archiving/test_pipeline_archive.py",
    "pipelines/archiving/test_pipeline_replay.py",
    "pipelines/queries/test_pipeline_sql.py",
)
NOT_WITH_4_1 = (
    "source/test_spark_read_stream.py::test_a_running_stream_sees_new_records_and_new_partitions",
    "source/test_spark_read_stream.py::test_available_now_again_and_again",
    "sink/test_spark_write.py::test_a_stream_goes_on_where_its_checkpoint_says",
    "pipelines/archiving/test_pipeline_archive.py",
    "pipelines/archiving/test_pipeline_replay.py",
    "pipelines/queries/test_pipeline_sql.py::test_windows_over_restarts_with_an_inferred_schema",
)
"""It has no batches with a limit, and no batch after the last that closes windows."""
RUN_SECONDS_MAX = 3600


@pytest.mark.parametrize("version", VERSIONS)
def test_the_core_with(version: str, tmp_path: Path) -> None:
    try:
        python = python_with(version)
    except NotInstallable as error:
        pytest.skip(str(error))
    asked = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    assert subprocess.check_output(asked, text=True, cwd=tmp_path).strip() == version
    left_out = NOT_WITH_4_1 if version.startswith("4.1.") else ()
    done = subprocess.run(
        [
            *(str(python), "-m", "pytest", "-q", f"--basetemp={tmp_path / 'run'}"),
            *(f"tests/spark/{name}" for name in CORE),
            *(f"--deselect=tests/spark/{name}" for name in left_out),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    sys.stderr.write(f"PySpark {version}: {done.stdout.splitlines()[-1]}\n")  # shown with -s
