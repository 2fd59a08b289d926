"""What the parts of the demo share: the broker as a child process, and how they talk."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

TOPIC = "orders"
PARTITIONS = 3
MESSAGES = 10_000
CUSTOMERS = 97
PATIENCE_SECONDS = 30
console = Console(highlight=False)


class Failed(Exception):
    """The demo did not show what it is meant to show."""


class Broker:
    """`forebay serve` as a child, on a port that stays the same over restarts."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.log = data.with_name("broker.log")
        self.address = "127.0.0.1:0"
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Seconds until the broker said that it can serve."""
        begun = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "forebay",
            "serve",
            "--listen",
            self.address,
            "--data",
            str(self.data),
        ]
        with self.log.open("a") as log:
            self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        ready = re.match(r"forebay ready on (\S+)", line)
        if ready is None:
            raise Failed(f"the broker did not start: {line or self.log.read_text().strip()}")
        self.address = ready[1]
        return time.perf_counter() - begun

    def end(self, number: signal.Signals) -> int:
        """Send the signal and wait: the exit code, negative when it was the signal."""
        child = self._child
        if child is None:
            return 0
        if child.poll() is None:
            os.kill(child.pid, number)
        try:
            return child.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()
        finally:
            if child.stdout is not None:
                child.stdout.close()

    def bytes_on_disk(self, partition: int) -> int:
        return sum(file.stat().st_size for file in (self.data / f"{TOPIC}-{partition}").glob("*.log"))


def step(text: str) -> None:
    console.print(f"[bold cyan]»[/] {text}")
