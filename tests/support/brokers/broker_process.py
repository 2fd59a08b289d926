"""A real broker in a child process, for tests that need the whole thing.

The child does what a user would start (`python -m forebay serve`), so that signals, recovery and the ready
line are part of every test that uses it; most are forked from a process that has imported it (`nursery.py`).
`kill` is SIGKILL and `restart` comes back on the same port and the same data directory, as a service manager
would bring it.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from forebay.local.ports import HOST, ReservedPort
from support.brokers.nursery import NURSERY, ForkedProcess

READY = re.compile(r"^forebay ready on (?P<address>\S+:\d+) \(node (?P<node>\d+), data (?P<data>.+)\)$")
START_SECONDS = 180.0
STOP_SECONDS = 180.0

Child = subprocess.Popen[bytes] | ForkedProcess


class BrokerProcess:
    def __init__(
        self,
        data: Path,
        *settings: str,
        environ: dict[str, str] | None = None,
        stderr: int | None = None,
        forked: bool = True,
    ) -> None:
        self.data = data
        self.settings = settings
        self.environ = environ or {}
        self.log_path = data.with_name(data.name + ".stderr")
        self.stderr = stderr
        # What the environment says of the interpreter it says to one that starts.
        self.forked = forked and environ is None
        self.bootstrap = f"{HOST}:0"
        self.ready_line = ""
        self._port: ReservedPort | None = None
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None, "the broker was never started"
        return self._child.pid

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def start(self) -> BrokerProcess:
        """Returns when the child has said that it can serve."""
        assert self._child is None or self._child.poll() is not None, "the broker is still running"
        if self._port is None:
            self._port = ReservedPort()
            self.bootstrap = f"{HOST}:{self._port.number}"
        with self.log_path.open("ab") as log:
            self._child = self._new_child(log.fileno() if self.stderr is None else self.stderr)
        try:
            self._read_ready_line(self._child)
        except BaseException:
            self.kill()
            raise
        return self

    def command(self) -> list[str]:
        return [sys.executable, "-m", "forebay", *self._arguments()]

    def _arguments(self) -> list[str]:
        place = ["serve", "--listen", self.bootstrap, "--data", str(self.data)]
        return place + [text for setting in self.settings for text in ("--set", setting)]

    def _new_child(self, stderr: int) -> Child:
        if self.forked:
            return NURSERY.start(self._arguments(), stderr=stderr)
        return subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self.environ},
        )

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to tidy up."""
        self.end(signal.SIGKILL)

    def close(self) -> None:
        """Kill it for the last time: its port is given up."""
        self.kill()
        if self._port is not None:
            self._port.close()

    def stop(self) -> int:
        """SIGTERM, then the exit code of a clean shutdown."""
        return self.end(signal.SIGTERM)

    def restart(self, *settings: str) -> BrokerProcess:
        """Start again after `kill` or `stop`, on the same port; stops first when still running."""
        if self._child is not None and self._child.poll() is None:
            self.stop()
        self.settings = settings or self.settings
        return self.start()

    def log(self) -> str:
        """Everything the broker has written to stderr so far."""
        return self.log_path.read_text(errors="replace")

    def end(self, number: signal.Signals) -> int:
        child = self._child
        if child is None:
            return 0
        if child.poll() is None:
            child.send_signal(number)
        try:
            code = child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise AssertionError(f"the broker ignored {number.name}:\n{self.log()}") from None
        finally:
            if child.stdout is not None:
                child.stdout.close()
        return code

    def _read_ready_line(self, child: Child) -> None:
        assert child.stdout is not None
        line = _read_line(child.stdout.fileno(), START_SECONDS).decode()
        match = READY.match(line)
        if match is None:
            raise AssertionError(f"instead of the ready line: {line!r}\n{self.log()}")
        self.ready_line = line
        self.bootstrap = match["address"]


def _read_line(fd: int, timeout_s: float) -> bytes:
    """One line of at most 4 KB; what there was of it when the time is up or the child has gone."""
    line = b""
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while not line.endswith(b"\n") and len(line) < 4096:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                break
            byte = os.read(fd, 1)
            if not byte:
                break
            line += byte
    return line.rstrip(b"\n")


@contextlib.contextmanager
def running_broker(
    data: Path,
    *settings: str,
    environ: dict[str, str] | None = None,
    stderr: int | None = None,
    forked: bool = True,
) -> Iterator[BrokerProcess]:
    """A broker that is gone afterwards, whatever the test did to it; its log may go elsewhere than a file."""
    broker = BrokerProcess(data, *settings, environ=environ, stderr=stderr, forked=forked)
    try:
        yield broker.start()
    finally:
        broker.close()


StartBroker = Callable[..., BrokerProcess]
"""The fixture `start_broker`: settings as positional texts, `environ` by name."""
