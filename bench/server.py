"""A server under measurement: a child process, what it costs in CPU and memory, and how it ends."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

ROOT = Path(__file__).resolve().parent.parent
READY_LINE = re.compile(r"ready on ([\w.]+):(\d+)")
READY_S_MAX = 180.0
"""On a machine with much else to do. Only what hangs takes as long."""
STOP_S_MAX = 20.0
LOADED_S_MAX = 60.0
LOADED = "all parts are loaded"
DELETED_SUFFIX = "-delete"
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


Address = tuple[str, int]


class WayIn(NamedTuple):
    """How load generators reach a server."""

    address: Address
    authority: str | None = None
    """Where they speak TLS: the file with the authority of the server's certificate."""


class BenchError(Exception):
    """The benchmark cannot go on; the message says why."""


class Server:
    """A process that serves on a loopback port once it has printed a line with `ready on HOST:PORT`."""

    ready_s_max = READY_S_MAX

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        started = time.perf_counter()
        # An installed program has its bytecode cached; ours is kept apart from the checkout.
        cached = {"PYTHONPYCACHEPREFIX": str(log.parent / "pycache"), "PYTHONDONTWRITEBYTECODE": ""}
        environment = {**os.environ, **cached, **(environment or {})}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, env=environment
            )
        try:
            self.address = self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        self.start_s = time.perf_counter() - started

    def wait_until_ready(self) -> tuple[str, int]:
        assert self.process.stdout is not None
        deadline = time.monotonic() + self.ready_s_max
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                line = self.process.stdout.readline().decode()
                if found := READY_LINE.search(line):
                    return found[1], int(found[2])
                if not line:
                    break
        raise BenchError(f"{self.process.args!r} did not get ready; see its last words:\n{self.last_words()}")

    @property
    def way_in(self) -> WayIn:
        return WayIn(self.address)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def cpu_s(self) -> float:
        return process_cpu_s(self.process.pid)

    def rss_bytes(self) -> int:
        return self.status_bytes("VmRSS")

    def rss_bytes_max(self) -> int:
        """The most it ever had resident, as the kernel remembers it."""
        return self.status_bytes("VmHWM")

    def status_bytes(self, field: str) -> int:
        return process_status_bytes(self.process.pid, field)

    def discard_deleted(self) -> None:
        """Called when a topic was deleted: what the server would otherwise remove while it is measured."""

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def process_cpu_s(pid: int) -> float:
    """User and system time of all threads of a process so far."""
    # The command's name, in brackets, may hold spaces: the numbers start behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S


def process_status_bytes(pid: int, field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def process_shared_bytes(pid: int) -> int:
    """Its memory, with its share of what it has in common with others (PSS)."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def bare_server(kind: str, scratch: Path) -> Server:
    """One of the raw limits of `bench.bare`: `echo` or `crc-write`."""
    arguments = [str(scratch / "crc-write.log")] if kind == "crc-write" else []
    return Server([sys.executable, "-m", "bench.bare", kind, *arguments], log=scratch / f"{kind}.err")


class ForebayServer(Server):
    """A broker with its own data directory, and the defaults where no setting is given.

    Of this checkout, or of other sources; run by this interpreter, or by another one.
    """

    def __init__(
        self,
        scratch: Path,
        name: str,
        *settings: str,
        listen: str = "PLAINTEXT://127.0.0.1:0",
        source: Path | None = None,
        python: str = sys.executable,
    ) -> None:
        self.data = scratch / name
        command = [
            python,
            "-m",
            "forebay",
            "serve",
            "--listen",
            listen,
            "--data",
            str(self.data),
        ]
        for setting in settings:
            command += ["--set", setting]
        environment = {} if source is None else {"PYTHONPATH": str(source)}
        super().__init__(command, log=scratch / f"{name}.err", environment=environment)

    def wait_until_loaded(self, brokers: int = 1) -> None:
        """Brokers load their rarely used parts after their start, which takes each a second of CPU."""
        deadline = time.monotonic() + LOADED_S_MAX
        while self.log.read_text(errors="replace").count(LOADED) < brokers:
            if time.monotonic() > deadline:
                raise BenchError(f"not all brokers say in their logs: {LOADED}")
            time.sleep(0.1)

    def discard_deleted(self) -> None:
        # The broker would do it seconds later, when another load is measured. Until then their pages would
        # not be free to use again, and the first touch of others is slow in a virtual machine.
        for path in self.data.glob(f"*{DELETED_SUFFIX}"):
            shutil.rmtree(path, ignore_errors=True)
