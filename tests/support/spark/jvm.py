"""JVMs of the tests start sooner: the classes that all of them load come from an archive, parsed already.

Half the time that a short Spark job takes goes into loading thousands of classes. The archive is made once
for a Java and a Spark, by the first run that needs it, from a job that reads and writes topics; later runs
find it in pytest's cache. Where it cannot be made or does not fit, a JVM starts as it always did.
"""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from forebay.spark.session import QUICK_OPTIONS, find_java
from support.spark import driver as spark_driver
from support.spark.reading import make_topic

_MAKE_SECONDS_MAX = 300
_TOPIC = "classes-of-spark"
# Classes that cannot be archived are told by the hundred.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def quick_options(folder: Path, bootstrap: str) -> str:
    """Options for a JVM that lives for seconds; the archive is in this folder, or will be."""
    archive = _archive(folder)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker of this run waits, and finds it made
        if not archive.exists():
            _make(archive, bootstrap)
    shared = f' {_QUIET} "-XX:SharedArchiveFile={archive}"' if archive.exists() else ""
    return QUICK_OPTIONS + shared


def _archive(folder: Path) -> Path:
    java = find_java()
    return folder / f"spark-{pyspark.__version__}-java-{java.version}-{java.home.name}.jsa"


def _make(archive: Path, bootstrap: str) -> None:
    """In a file of its own first, which may be left unfinished."""
    make_topic(bootstrap, f"{_TOPIC}-in", 10, 10, retention_ms="-1")
    make_topic(bootstrap, f"{_TOPIC}-out", 0, 0)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / "made.jsa"
        command = [sys.executable, spark_driver.__file__, bootstrap, f"{_TOPIC}-in", f"{_TOPIC}-out"]
        command += [f"{folder}/checkpoint", f'{QUICK_OPTIONS} {_QUIET} "-XX:ArchiveClassesAtExit={made}"']
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, timeout=_MAKE_SECONDS_MAX, check=False)
        if made.exists():
            made.replace(archive)
