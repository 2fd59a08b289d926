"""Clients on franz-go and kafka-go, fetched from Go's module proxy and built.

A share consumer (`main.go` beside this file), and producers and consumers that go on until they are told to
stop (`steady.go`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from support.compat.asked_program import AskedProgram

HERE = Path(__file__).parent
PROGRAM = HERE / "target" / "franz-go"
BUILD_S_MAX = 600
RUN_S_MAX = 120


def why_not() -> str | None:
    """What is missing for the program on this machine, None when it is built."""
    if shutil.which("go") is None:
        return "no `go` on the path to build franz-go with"
    build = ["go", "build", "-o", str(PROGRAM), "."]
    try:
        done = subprocess.run(
            build, cwd=HERE, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return "Go's module proxy did not answer in time"
    return f"franz-go could not be built: {done.stderr.strip()[-500:]}" if done.returncode else None


def consume(bootstrap: str, topic: str, group: str, count: int, verdict: str) -> list[dict[str, Any]]:
    """What the member got, in order: value, and which delivery it was."""
    done = subprocess.run(
        [PROGRAM, bootstrap, topic, group, str(count), verdict],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def read_by_kafka_go(bootstrap: str, topic: str, last_offset: int) -> list[int]:
    """The offsets of the messages of partition 0 in the order in which they came."""
    done = subprocess.run(
        [PROGRAM, "kafka-go", bootstrap, topic, str(last_offset)],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    offsets: list[int] = json.loads(done.stdout)
    return offsets


def start(bootstrap: str, folder: Path) -> AskedProgram:
    """Clients that go on until they are told to stop."""
    return AskedProgram([PROGRAM, "steady", bootstrap], folder / "steady-go.log")
