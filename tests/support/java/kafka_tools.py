"""Apache Kafka's own command line tools, fetched by Maven (what `pom.xml` beside this file names)."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
LIBS = POM.parent / "target" / "libs"
MAVEN_S_MAX = 600
TOOL_S_MAX = 120
# A tool lives for two seconds: compiling it well takes longer than running it.
JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PACKAGE = "org.apache.kafka.tools"
CONFIGS = "kafka.admin.ConfigCommand"
"""kafka-configs, which has another package."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a tool has said, and how it ended."""

    code: int
    out: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.out.splitlines() if line.strip()]

    def rows(self) -> list[dict[str, str]]:
        """A table of a tool that has no empty cells."""
        heading, *rows = self.lines
        names = heading.split()
        return [dict(zip(names, row.split(), strict=True)) for row in rows]


def why_not() -> str | None:
    """What is missing for the tools on this machine, None when they are there."""
    return why_not_fetched(POM, ("kafka-tools-{version}", "kafka_2.13-{version}"))


def why_not_fetched(pom: Path, names: tuple[str, ...]) -> str | None:
    """The same for what `pom` names; it goes into target/libs beside it. `names`: some of these jars."""
    for program, purpose in (("java", "run"), ("mvn", "fetch")):
        if shutil.which(program) is None:
            return f"no `{program}` on the path to {purpose} Kafka's tools with"
    if _is_fetched(pom, names):
        return None
    fetch = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
    try:
        done = subprocess.run(fetch, capture_output=True, text=True, timeout=MAVEN_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        return "Maven did not answer in time"
    if done.returncode or not _is_fetched(pom, names):
        return f"Maven could not fetch Kafka's tools: {(done.stdout + done.stderr).strip()[-500:]}"
    return None


def _is_fetched(pom: Path, names: tuple[str, ...]) -> bool:
    version = re.search(r"<kafka.version>(.*)</kafka.version>", pom.read_text())
    assert version is not None
    libs = pom.parent / "target" / "libs"
    return all((libs / f"{name.format(version=version[1])}.jar").exists() for name in names)


def command(tool: str, bootstrap: str, *arguments: str) -> list[str]:
    """`tool`: its class, in Kafka's package of tools, or CONFIGS."""
    name = tool if tool == CONFIGS else f"{PACKAGE}.{tool}"
    java = ["java", *JVM_OPTIONS, "-cp", f"{LIBS}/*", name]
    return [*java, "--bootstrap-server", bootstrap, *arguments]


def run(tool: str, bootstrap: str, *arguments: str) -> Done:
    done = subprocess.run(
        command(tool, bootstrap, *arguments), capture_output=True, text=True, timeout=TOOL_S_MAX, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)
