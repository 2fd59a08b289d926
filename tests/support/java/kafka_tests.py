"""Apache Kafka's own integration tests, run by JUnit on brokers of ours.

Maven fetches the jars (what `kafka-tests/pom.xml` names). The classes in `kafka-tests/src` stand before them
on the class path, so that Kafka's extension of JUnit asks for clusters of ours (`broker_clusters.py`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support.java import kafka_tools
from support.java.broker_clusters import serve

HOME = Path(__file__).with_name("kafka-tests")
CLASSES = HOME / "target" / "classes"
LIBS = HOME / "target" / "libs"
COMPILE_S_MAX = 300
TEST_S_MAX = 120
"""For one test. Most take a second; the machine may be busy."""
JVM_OPTIONS = (*kafka_tools.JVM_OPTIONS, "-Xmx768m")
PACKAGE = "org.apache.kafka."


@dataclass(frozen=True, slots=True)
class Result:
    method: str
    error: str
    """Empty if it has passed."""


def why_not() -> str | None:
    """What is missing for the tests on this machine, None when they are there and compiled."""
    names = ("kafka-clients-integration-tests-{version}-test", "kafka-tools-{version}-test")
    return kafka_tools.why_not_fetched(HOME / "pom.xml", names) or _compile()


def _compile() -> str | None:
    sources = sorted((HOME / "src").rglob("*.java"))
    stamp = CLASSES / "stamp"
    if stamp.exists() and stamp.stat().st_mtime >= max(source.stat().st_mtime for source in sources):
        return None
    CLASSES.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-cp", f"{LIBS}/*", "-d", str(CLASSES), *map(str, sources)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S_MAX, check=False)
    except FileNotFoundError:
        return "no `javac` on the path to compile the fixture of Kafka's tests with"
    assert done.returncode == 0, done.stderr
    stamp.touch()
    return None


def run(test_class: str, left_out: Iterable[str], folder: Path, seconds_max: float) -> Iterator[Result]:
    """The results of a class of tests, without the methods that are left out."""
    errors = folder / "stderr.log"
    with serve(folder) as port, errors.open("wb") as stderr:
        command = [
            *("java", *JVM_OPTIONS, f"-Dforebay.brokers={port}", f"-Dforebay.timeout={TEST_S_MAX} s"),
            *("-cp", f"{CLASSES}:{LIBS}/*", "forebay.RunTests", f"{PACKAGE}{test_class}"),
            *(f"-{method}" for method in left_out),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as java:
            try:
                out, _ = java.communicate(timeout=seconds_max)
            except subprocess.TimeoutExpired:
                java.kill()
                out, _ = java.communicate()
                yield Result("", f"{test_class} has not ended in {seconds_max:.0f} s")
    yield from (_result(json.loads(line)) for line in out.splitlines())
    if java.returncode:
        yield Result("", errors.read_text(errors="replace")[-2000:])


def _result(line: dict[str, str]) -> Result:
    passed = line["status"] == "SUCCESSFUL"
    return Result(line["method"], "" if passed else line.get("error") or line["status"])
