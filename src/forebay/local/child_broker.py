"""A broker in a child process, seen from its parent.

The child gets its settings as one line on its standard input and reports its address with one line on its
standard output. Its input stays open as long as the parent lives: when it ends, however the parent ended, the
child stops. So no test run leaves brokers behind.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from forebay.local.settings import BrokerFailed

_SECONDS_MAX = 120.0
_LINE_BYTES_MAX = 4096
_LOG_BYTES_SHOWN = 4000


class ChildBroker:
    """The broker logs to the given file, or to one that is removed with the child."""

    def __init__(self, log_path: Path | None = None) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._asked_to_stop = False
        self._log = _open_log(log_path)

    @property
    def pid(self) -> int:
        assert self._child is not None, "start first"
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self, settings: Mapping[str, str]) -> str:
        self.launch(settings)
        return self.wait_until_ready()

    def launch(self, settings: Mapping[str, str]) -> None:
        """Returns at once, so that several brokers can start side by side."""
        self._child = child = subprocess.Popen(
            [sys.executable, "-m", "forebay.local.serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            process_group=0,  # a Ctrl-C at the terminal is for the parent, which then ends its children
        )
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(dict(settings)).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            raise BrokerFailed(f"the broker did not start: {self.log_text()}") from None

    def wait_until_ready(self) -> str:
        """host:port, once clients can connect."""
        child = self._child
        assert child is not None
        assert child.stdout is not None
        line = _read_line(child.stdout.fileno(), _SECONDS_MAX)
        if not line.endswith(b"\n"):
            raise BrokerFailed(f"the broker did not start: {self.log_text()}")
        return line.decode().strip()

    def terminate(self) -> None:
        """SIGTERM; `stop` waits for the end."""
        # Once: a broker that is about to end has removed its handler, and would die of another signal.
        if self.alive and not self._asked_to_stop:
            os.kill(self.pid, signal.SIGTERM)
            self._asked_to_stop = True

    def stop(self) -> None:
        child = self._child
        if child is None:
            return
        self.terminate()
        try:
            code = child.wait(_SECONDS_MAX)
            if code != 0 or not self._asked_to_stop:
                raise BrokerFailed(f"the broker ended with exit code {code}: {self.log_text()}")
        except subprocess.TimeoutExpired:
            raise BrokerFailed(f"the broker ignored SIGTERM: {self.log_text()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        self._log.close()
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def log_text(self) -> str:
        """The end of the broker's log."""
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - _LOG_BYTES_SHOWN))
        return self._log.read().decode(errors="replace").strip() or "it said nothing"


def _open_log(path: Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile(prefix="forebay-log-")
    return path.open("a+b")


def _read_line(fd: int, seconds_max: float) -> bytes:
    """One line; without its end if the time is up or the child is gone."""
    line = b""
    deadline = time.monotonic() + seconds_max
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while not line.endswith(b"\n") and len(line) < _LINE_BYTES_MAX:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                break
            piece = os.read(fd, _LINE_BYTES_MAX)
            if not piece:
                break
            line += piece
    return line
