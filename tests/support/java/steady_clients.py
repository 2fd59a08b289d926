"""Apache Kafka's producers and consumers that go on until they are told to stop: `SteadyClients.java`."""

from __future__ import annotations

from pathlib import Path

from support.compat.asked_program import AskedProgram
from support.java.kafka_tools import JVM_OPTIONS, LIBS, why_not

__all__ = ["start", "why_not"]

SOURCE = Path(__file__).with_name("SteadyClients.java")


def start(bootstrap: str, folder: Path) -> AskedProgram:
    command = ["java", *JVM_OPTIONS, "-cp", f"{LIBS}/*", str(SOURCE), bootstrap]
    return AskedProgram(command, folder / "steady-java.log")
