"""Apache Kafka as a server under measurement: fetched by Maven, run as its own start script runs it.

`kafka/pom.xml` names the release. KRaft nodes, broker and controller in one, with the default configuration
and the default JVM options of `kafka-server-start` (1 GB heap, G1). Only addresses, directories and what
depends on the number of nodes are set: replication factors, and how many replicas must be in sync.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench import tls
from bench.client import Client
from bench.rounds import Broker
from bench.server import ROOT, BenchError, Server
from bench.tls import Certificates, OverTls
from forebay.errors import KafkaError

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
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
log.segment.delete.delay.ms=1000
auto.leader.rebalance.enable=false
"""
TLS_PROPERTIES = """\
listeners=PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
ssl.keystore.type=PEM
ssl.keystore.location={certificate}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
"""
"""Behind the others, whose listeners they replace."""
REPLICATION_FACTORS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
MIN_IN_SYNC = (
    "min.insync.replicas",
    "share.coordinator.state.topic.min.isr",
    "transaction.state.log.min.isr",
)


class Ports(NamedTuple):
    """Of one node."""

    broker: int
    controller: int


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


def free_ports(nodes: int) -> list[Ports]:
    """For the nodes 1, 2, and so on."""
    with contextlib.ExitStack() as probes:
        taken = [
            probes.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for _ in range(2 * nodes)
        ]
    return [Ports(*pair) for pair in zip(taken[::2], taken[1::2], strict=True)]


def properties(ports: Sequence[Ports], node: int, data: Path) -> str:
    """The settings of one node of a cluster: three replicas of which two must be in sync, or one of one."""
    own = ports[node - 1]
    text = PROPERTIES.format(
        node=node,
        voters=",".join(f"{n}@127.0.0.1:{each.controller}" for n, each in enumerate(ports, 1)),
        port=own.broker,
        controller_port=own.controller,
        data=data,
    )
    replicas = min(3, len(ports))
    lines = [f"{name}={replicas}" for name in REPLICATION_FACTORS]
    lines += [f"{name}={replicas // 2 + 1}" for name in MIN_IN_SYNC]
    return text + "\n".join(lines) + "\n"


def prepare(scratch: Path, name: str, ports: Sequence[Ports], node: int) -> Path:
    """Write the settings of a node and format its directory; the path of the settings."""
    path = scratch / f"{name}.properties"
    path.write_text(properties(ports, node, scratch / name))
    _format_storage(path)
    return path


def add_tls(settings: Path, ports: Ports, tls_port: int, certificates: Certificates) -> None:
    """Give a node that is prepared a listener with TLS, beside the plain one."""
    with settings.open("a") as file:
        file.write(
            TLS_PROPERTIES.format(
                port=ports.broker,
                tls_port=tls_port,
                controller_port=ports.controller,
                certificate=certificates.broker,
                authority=certificates.authority,
            )
        )


class KafkaServer(Server):
    """A node that is prepared, or else a cluster of one.

    It is ready when it answers its first request: it prints no line that says so.
    """

    def __init__(self, scratch: Path, name: str, *, ports: Sequence[Ports] = (), node: int = 1) -> None:
        if not ports:
            ports = free_ports(1)
            prepare(scratch, name, ports, node)
        self.address = ("127.0.0.1", ports[node - 1].broker)
        settings = scratch / f"{name}.properties"
        super().__init__(_java("kafka.Kafka", str(settings)), log=scratch / f"{name}.err")

    def wait_until_ready(self) -> tuple[str, int]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with Client(self.address):
                    return self.address
            except (OSError, KafkaError):
                time.sleep(0.02)
        raise BenchError(f"Apache Kafka did not get ready:\n{self.last_words()}")


class KafkaWithTls(KafkaServer):
    """A cluster of one that is reached over TLS too."""

    def __init__(self, scratch: Path, name: str) -> None:
        certificates, ports = Certificates(scratch / f"{name}-certificates"), free_ports(1)
        (tls_port,) = tls.free_ports(1)
        add_tls(prepare(scratch, name, ports, 1), ports[0], tls_port, certificates)
        super().__init__(scratch, name, ports=ports)
        self.over_tls: Broker = OverTls(self, tls_port, certificates)


def _format_storage(settings: Path) -> None:
    command = _java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise BenchError("Apache Kafka's storage could not be formatted")
