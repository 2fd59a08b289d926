"""Spark's own Kafka connector, fetched by Maven: what `pom.xml` names, for the session's spark.jars."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
LIBS = HERE / "target" / "libs"
MAVEN_S_MAX = 600


def why_not() -> str | None:
    """What keeps the connector from this machine, None when it is there."""
    if jars():
        return None
    if shutil.which("mvn") is None:
        return "no `mvn` on the path to fetch Spark's Kafka connector with"
    fetch = ["mvn", "-B", "-q", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    try:
        done = subprocess.run(fetch, capture_output=True, text=True, timeout=MAVEN_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        return "Maven did not answer in time"
    if done.returncode or not jars():
        return f"Maven could not fetch Spark's Kafka connector: {(done.stdout + done.stderr).strip()[-500:]}"
    return None


def jars() -> str:
    """As spark.jars wants it; empty when nothing was fetched."""
    found = sorted(map(str, LIBS.glob("*.jar")))
    return ",".join(found) if any("spark-sql-kafka" in name for name in found) else ""
