"""A SparkSession with the settings that matter to Forebay, and a Java that Spark can run on.

Everything set here was measured: what is not listed stays as Spark ships it, and whatever the caller gives
wins. Java is looked for before Spark is started, because Spark's own complaint about a missing or an old one
does not say what to do.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from forebay.errors import ForebayError
from forebay.spark.arrow.batch_sizes import BATCH_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17

SETTINGS: Mapping[str, str] = {
    # Large values need a bound in bytes. For it Spark sizes a batch after every row, and where a column has
    # null arrays it looks at all rows of the batch each time: fewer rows cost less.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # Together these take a third off the shortest micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS: Mapping[str, str] = {
    # The name of the machine need not resolve for Spark to talk to itself.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_FEW_COMPILATIONS = "-XX:TieredStopAtLevel=1"
QUICK_OPTIONS = f"{_FEW_COMPILATIONS} -XX:+UseSerialGC"
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
LOGGING = Path(__file__).with_name("log4j2.properties")
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
PYTHON = "PYSPARK_PYTHON"
REAL_PYTHON = "PYSPARK_FOREBAY_PYTHON"
"""Not FOREBAY_..., which would be a setting of a broker that is started from the same process."""
WORKER_PYTHON = Path(__file__).with_name("worker_python.sh")
DAEMON = "PYSPARK_FOREBAY_DAEMON"
WORKER_DAEMON = Path(__file__).with_name("worker_daemon.py")

_JAVA_DIRECTORIES = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
)
_JAVA_TIMEOUT_S = 20
_REMOTE = "sc://"


class Java(NamedTuple):
    home: Path
    version: int
    """The feature release: 8, 11, 17, 21."""


def session(app_name: str, master: str = "local[*]", *, quick: bool = False, **conf: object) -> SparkSession:
    """The SparkSession of this process, made if there is none.

    Settings are given by their names, `**{"spark.executor.memory": "4g"}`, or with underscores for dots,
    `spark_executor_memory="4g"`. `quick` is for tests and short jobs: the JVM starts sooner and compiles
    less, which a job of minutes would miss. A master of the form sc://host is a Spark Connect server.
    """
    given = _named(conf)
    with warnings.catch_warnings():
        # We hand Spark Arrow and never pandas, whose newest release it warns of.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        from pyspark.sql import SparkSession

        if master.startswith(_REMOTE):
            return _built(SparkSession.builder.remote(master), app_name, given)
        os.environ["JAVA_HOME"] = str(find_java().home)
        # Workers would take the first python3 on the path, which may not have Forebay.
        if os.environ.get(PYTHON) in (None, str(WORKER_PYTHON)):
            os.environ[PYTHON] = _worker_python(master)
        return _built(SparkSession.builder.master(master), app_name, _settings(master, quick, given))


def _settings(master: str, quick: bool, given: Mapping[str, str]) -> dict[str, str]:
    settings = {**SETTINGS, **(LOCAL_SETTINGS if master.startswith("local") else {}), **given}
    settings[DRIVER_OPTIONS] = _driver_options(settings.get(DRIVER_OPTIONS, ""), quick)
    return settings


def _driver_options(given: str, quick: bool) -> str:
    options = [_quick_options(given)] if quick else []
    # A package that is imported from an archive has no file to name.
    if "-Dlog4j" not in given and LOGGING.is_file():
        options.append(f'"-Dlog4j2.configurationFile={LOGGING.as_uri()}"')
    return " ".join([*options, given]).strip()


def _quick_options(given: str) -> str:
    """A JVM takes the last of some options, but does not start with two garbage collectors."""
    chosen = (given, *(os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")))
    return _FEW_COMPILATIONS if any(map(_COLLECTOR.search, chosen)) else QUICK_OPTIONS


def _worker_python(master: str) -> str:
    """Our own, or on this machine a program that starts it with the PySpark that is installed.

    That program is told by the environment of the JVM which Python to start. A JVM that was started before,
    by spark-submit for example, has another.
    """
    import pyspark
    from pyspark import SparkContext

    if REAL_PYTHON not in os.environ and ("PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway):
        return sys.executable
    spark = Path(pyspark.__file__).parent
    is_spark_used = os.environ.get("SPARK_HOME") in (None, str(spark))
    is_installed = str(spark.parent) in (*site.getsitepackages(), site.getusersitepackages())
    if not (
        master.startswith("local") and is_spark_used and is_installed and os.access(WORKER_PYTHON, os.X_OK)
    ):
        return sys.executable
    os.environ[REAL_PYTHON] = sys.executable
    os.environ[DAEMON] = str(WORKER_DAEMON)
    return str(WORKER_PYTHON)


def _built(builder: SparkSession.Builder, app_name: str, settings: Mapping[str, str]) -> SparkSession:
    builder = builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _named(conf: Mapping[str, object]) -> dict[str, str]:
    return {_name(name): _text(value) for name, value in conf.items()}


def _name(name: str) -> str:
    dotted = name if "." in name else name.replace("_", ".")
    if not dotted.startswith("spark."):
        raise ForebayError(f"{name} is no setting of Spark: their names begin with spark.")
    return dotted


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- Java ---------------------------------------------------------------------------------------------------


def find_java() -> Java:
    """The first Java that Spark can run on: JAVA_HOME, then the path, then where systems install it."""
    found = []
    for home in java_homes():
        java = _java_at(home)
        if java is None:
            continue
        if java.version >= JAVA_VERSION_MIN:
            return java
        found.append(f"{java.version} in {java.home}")
    what = f"only found Java {', '.join(found)}" if found else "found none"
    raise ForebayError(
        f"Spark needs Java {JAVA_VERSION_MIN} or later and {what}. Install one"
        f" (Debian and Ubuntu: apt install openjdk-{JAVA_VERSION_MIN}-jre-headless; macOS: brew install"
        f" openjdk@{JAVA_VERSION_MIN}), or point JAVA_HOME at one that is installed."
    )


def java_homes() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if program := shutil.which("java"):
        yield Path(program).resolve().parent.parent
    for pattern in _JAVA_DIRECTORIES:
        root, _, rest = pattern.lstrip("/").partition("/")
        yield from sorted(Path(f"/{root}").glob(rest))
    yield Path.home() / ".sdkman/candidates/java/current"


def _java_at(home: Path) -> Java | None:
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    version = _version_in(_release_of(home)) or _version_in(_words_of(program))
    return None if version is None else Java(home, version)


def _release_of(home: Path) -> str:
    """The version that the installation names; spares starting a JVM to ask it."""
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""


def _words_of(program: Path) -> str:
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _version_in(text: str) -> int | None:
    """17 of `JAVA_VERSION="17.0.15"` or `version "17.0.15"`, and 8 of "1.8.0_402"."""
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
