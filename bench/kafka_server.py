"""Apache Kafka as a server under measurement: fetched by Maven, run as its own start script runs it.

`kafka/pom.xml` names the release. A single KRaft node with the default configuration and the default JVM
options of `kafka-server-start` (1 GB heap, G1); only addresses, directories and the replication factors of a
single node are set.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.client import Client
from bench.server import ROOT, BenchError, Server
from forebay.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

POM = ROOT / "bench" / "kafka" / "pom.xml"
LIBS = ROOT / "bench" / "kafka" / "target" / "libs"
CLUSTER_ID = "Zm9yZWJheS1iZW5jaC0wMA"
JVM_OPTIONS = (
    "-server",
    "-Xmx1G",
    "-Xms1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
MAVEN_S_MAX = 600
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.segment.delete.delay.ms=1000
"""


def why_not() -> str | None:
    """What is missing for a Kafka broker on this machine, None when it is all there."""
    for program, purpose in (("java", "run"), ("mvn", "fetch")):
        if shutil.which(program) is None:
            return f"no `{program}` on the path to {purpose} Apache Kafka with"
    if _is_fetched():
        return None
    fetch = ["mvn", "-B", "-q", "-f", str(POM), "dependency:copy-dependencies"]
    try:
        done = subprocess.run(fetch, capture_output=True, text=True, timeout=MAVEN_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        return "Maven did not answer in time"
    if done.returncode or not _is_fetched():
        return f"Maven could not fetch Apache Kafka: {(done.stdout + done.stderr).strip()[-500:]}"
    return None


def _is_fetched() -> bool:
    return any(LIBS.glob(f"kafka_2.13-{kafka_version()}.jar"))


def kafka_version() -> str:
    found = re.search(r"<kafka.version>(.*)</kafka.version>", POM.read_text())
    assert found is not None
    return found[1]


def _java(*arguments: str) -> list[str]:
    return ["java", *JVM_OPTIONS, "-cp", f"{LIBS}/*", *arguments]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class KafkaServer(Server):
    """Ready when it answers its first request: it prints no line that says so."""

    def __init__(self, scratch: Path, name: str) -> None:
        port = _free_port()
        self.address = ("127.0.0.1", port)
        properties = scratch / f"{name}.properties"
        settings = PROPERTIES.format(port=port, controller_port=_free_port(), data=scratch / name)
        properties.write_text(settings)
        _format_storage(properties)
        super().__init__(_java("kafka.Kafka", str(properties)), log=scratch / f"{name}.err")

    def wait_until_ready(self) -> tuple[str, int]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with Client(self.address) as client:
                    client.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
                    return self.address
            except (OSError, BenchError):
                time.sleep(0.02)
        raise BenchError(f"Apache Kafka did not get ready:\n{self.last_words()}")


def _format_storage(properties: Path) -> None:
    command = _java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise BenchError("Apache Kafka's storage could not be formatted")
