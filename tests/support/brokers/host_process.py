"""`forebay serve --workers` as a user starts it: a parent and its workers, which can be killed one by one."""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from support.brokers.forebay_command import command, environment

READY = re.compile(r"^forebay ready on (?P<address>\S+:\d+) \((?P<count>\d+) workers, data (?P<data>.+)\)$")
WORKER = re.compile(rb"forebay: worker (\d+)$|forebay.local.workers.child (\d+)$")
"""The command line of a worker that was forked, and of one that was started as a program."""
SECONDS_MAX = 180.0


class HostProcess:
    def __init__(
        self,
        data: Path,
        workers: int,
        *settings: str,
        options: tuple[str, ...] = (),
        address: str = "127.0.0.1",
    ) -> None:
        self.data = data
        self.workers = workers
        self.settings = ("forebay.warm.up.enable=false", *settings)
        self.options = options
        self.bootstrap = f"{address}:{_free_ports(workers + 1, address)}"
        self.ready_line = ""
        self.log_path = data.with_name(data.name + ".stderr")
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def launch(self) -> None:
        given = [option for each in self.settings for option in ("--set", each)]
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                command(
                    "serve",
                    *("--data", str(self.data), "--listen", self.bootstrap, "--workers", str(self.workers)),
                    *given,
                    *self.options,
                ),
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
            )

    def start(self) -> None:
        self.launch()
        assert self._child is not None
        assert self._child.stdout is not None
        readable = select.poll()  # numbers of descriptors may be above 1,024, which select() refuses
        readable.register(self._child.stdout, select.POLLIN)
        if not readable.poll(SECONDS_MAX * 1000):
            raise AssertionError(f"it is not ready: {self.log()[-4000:]}")
        self.ready_line = self._child.stdout.readline().decode().strip()
        found = READY.match(self.ready_line)
        assert found is not None, f"{self.ready_line!r}: {self.log()[-4000:]}"
        self.bootstrap = found["address"]

    def worker_pids(self) -> dict[int, int]:
        """The processes of the workers that run now, by the workers' numbers."""
        found: dict[int, int] = {}
        for pid in _descendants(self.pid):
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
                if (worker := WORKER.search(title)) is not None:
                    found[int(worker[1] or worker[2])] = pid
        return found

    def fork_server_pid(self) -> int:
        """The process that workers are forked from; the console, if there is one, is started later."""
        return _children(self.pid)[0]

    def kill_worker(self, number: int) -> int:
        """SIGKILL; returns the pid that it had."""
        pid = self.worker_pids()[number]
        os.kill(pid, signal.SIGKILL)
        return pid

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal the parent, and wait for its end; returns the exit code."""
        assert self._child is not None
        self._child.send_signal(number)
        code = self._child.wait(SECONDS_MAX)
        assert self._child.stdout is not None
        self._child.stdout.close()
        self._child = None
        return code

    def kill_all(self) -> None:
        """SIGKILL to the parent and to all workers, as if the machine had been switched off."""
        pids = list(self.worker_pids().values())
        self.end(signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def close(self) -> None:
        if self._child is None:
            return
        pids = list(self.worker_pids().values()) if self._child.poll() is None else []
        self.end(signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait_until_gone(pid)


def _free_ports(count: int, address: str) -> int:
    """The first of so many ports in a row that are free now, below those that systems give to anybody."""
    chance = random.SystemRandom()
    while True:
        first = chance.randrange(12_000, 30_000)
        with contextlib.ExitStack() as closing:
            try:
                for port in range(first, first + count):
                    bound = closing.enter_context(socket.socket())
                    bound.bind((address, port))
            except OSError:
                continue
        return first


def wait_until_gone(pid: int) -> None:
    """Until this process has ended; it is no child of this one."""
    deadline = time.monotonic() + SECONDS_MAX
    while Path(f"/proc/{pid}").exists() and _state(pid) not in ("Z", "X"):
        assert time.monotonic() < deadline, f"process {pid} does not end"
        time.sleep(0.01)


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _descendants(pid: int) -> Iterator[int]:
    for each in _children(pid):
        yield each
        yield from _descendants(each)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@contextlib.contextmanager
def running_host(
    data: Path, workers: int, *settings: str, options: tuple[str, ...] = (), address: str = "127.0.0.1"
) -> Iterator[HostProcess]:
    host = HostProcess(data, workers, *settings, options=options, address=address)
    try:
        host.start()
        yield host
    finally:
        host.close()
