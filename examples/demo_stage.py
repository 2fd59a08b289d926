"""What the chapters of the demo share: the broker as a child process, how they talk, and how they end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

TOPIC = "orders"
PARTITIONS = 3
CUSTOMERS = 97
PATIENCE_SECONDS = 60
"""How long the demo waits for what takes a moment: longer than any failover, on a busy machine too."""
console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)

Facts = list[tuple[str, str]]
"""What a chapter has shown, and how it came out: its rows of the summary."""


class Failed(Exception):
    """The demo did not show what it is meant to show."""


class Skipped(Exception):
    """This machine lacks something that the chapter needs; the message says how to get it."""


class Broker:
    """`forebay serve` as a child, on a port that stays the same over restarts."""

    def __init__(self, data: Path, *settings: str) -> None:
        self.data = data
        self.settings = settings
        self.log = data.with_name("broker.log")
        self.address = "127.0.0.1:0"
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Seconds until the broker said that it can serve."""
        begun = time.perf_counter()
        command = [sys.executable, "-m", "forebay", "serve"]
        command += ["--listen", self.address, "--data", str(self.data)]
        for setting in self.settings:
            command += ["--set", setting]
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
    console.print(f"[bold cyan]»[/] {text}", soft_wrap=True)


@contextlib.contextmanager
def waiting(text: str) -> Iterator[None]:
    """Says at a terminal what is being waited for; in a pipe the steps have to do."""
    with console.status(text) if console.is_terminal else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def no_stderr() -> Iterator[None]:
    """A process that is started meanwhile has no stderr: a JVM and its workers say more than people ask."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: it did not happen in {PATIENCE_SECONDS} s")
        time.sleep(0.1)


def table(*headings: str, words: int = 0) -> Table:
    """For numbers; the first columns, so many, are words."""
    made = Table(box=None, padding=(0, 2), header_style="bold")
    for place, heading in enumerate(headings):
        made.add_column(heading, justify="left" if place < words else "right")
    return made
