"""A standalone Spark cluster on loopback, from the pip package, whose executors do not have Forebay.

Their Python is the one below the virtual environment, with only those packages added that PySpark itself
needs: what a pipeline uses beyond them has to come along with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from forebay.spark.session import find_java

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
NEEDED = ("pyarrow", "numpy", "pandas", "dateutil", "six", "pytz", "tzdata")
START_SECONDS = 180
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCluster:
    master: str
    python: Path
    """The executors' own."""

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYSPARK_PYTHON": str(self.python), "SPARK_LOCAL_IP": "127.0.0.1"}


@contextlib.contextmanager
def running_cluster(folder: Path, jvm_options: str, workers: int = 2) -> Iterator[SparkCluster]:
    with contextlib.ExitStack() as stack:
        log = _start(
            stack, folder, jvm_options, "master", "org.apache.spark.deploy.master.Master", "--port", "0"
        )
        master = _awaited(log, _MASTER)[1]
        logs = [
            _start(
                stack,
                folder,
                jvm_options,
                f"worker-{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"), master),
            )
            for number in range(workers)
        ]
        for worker in logs:
            _awaited(worker, re.compile(_REGISTERED))
        yield SparkCluster(master=master, python=_bare_python(folder))


def _start(
    stack: contextlib.ExitStack, folder: Path, jvm_options: str, name: str, java_class: str, *arguments: str
) -> Path:
    log = folder / f"{name}.log"
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": jvm_options,
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            [SPARK_CLASS, java_class, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    stack.callback(_stop, process)
    return log


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _awaited(log: Path, pattern: re.Pattern[str]) -> re.Match[str]:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if found := pattern.search(log.read_text(errors="replace")):
            return found
        time.sleep(0.1)
    raise AssertionError(f"{pattern.pattern!r} is not in {log}:\n{log.read_text(errors='replace')}")


def _bare_python(folder: Path) -> Path:
    site = folder / "site"
    site.mkdir()
    installed = Path(pyspark.__file__).parents[1]
    for name in NEEDED:
        for found in (installed / name, installed / f"{name}.libs", installed / f"{name}.py"):
            if found.exists():
                (site / found.name).symlink_to(found)
    python = folder / "python"
    base = getattr(sys, "_base_executable", sys.executable)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec {base} "$@"\n')
    python.chmod(0o755)
    return python
