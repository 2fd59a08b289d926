"""Processes of `forebay serve` that are up at once: forked from one that has imported what they need.

Python and its imports take half a second of a core, and the tests start hundreds of brokers. What is forked
here has its own process id, streams, environment and exit code, and does what `python -m forebay` does with
its arguments. Where the start of the interpreter itself is the point, tests start `python -m forebay`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from support.import_path import import_path

IMPORTED = ("forebay.cli.main", "forebay.cli.serve", "forebay.broker.process", "forebay.config")
_MESSAGE_BYTES_MAX = 1 << 17
_POLL_SECONDS = (0.001, 0.02)
_ANSWER_SECONDS_MAX = 180.0
_END_SECONDS_MAX = 60.0


class ForkedProcess:
    """As far as tests need one, a subprocess.Popen."""

    def __init__(self, nursery: Nursery, pid: int, stdout: IO[bytes]) -> None:
        self._nursery = nursery
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.exit_code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        give_up_at = None if timeout is None else time.monotonic() + timeout
        pause, pause_max = _POLL_SECONDS
        while (code := self.poll()) is None:
            if timeout is not None and give_up_at is not None and time.monotonic() >= give_up_at:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(pause)
            pause = min(2 * pause, pause_max)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        # Until its exit code has been asked for its number is nobody else's.
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The parent of such processes, started when it is first needed. They do not outlive it, nor it us."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parent: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._asked = 0

    def start(self, arguments: Sequence[str], *, stderr: int) -> ForkedProcess:
        """`forebay` with these arguments: its input is empty, its output a pipe."""
        reading, writing = os.pipe()
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            try:
                request = {"arguments": list(arguments), "environ": dict(os.environ), "cwd": str(Path.cwd())}
                pid = self._ask(request, (nothing.fileno(), writing, stderr))
            except BaseException:
                os.close(reading)
                raise
            finally:
                os.close(writing)
        return ForkedProcess(self, pid, os.fdopen(reading, "rb", buffering=0))

    def exit_code(self, pid: int) -> int | None:
        """None while it runs. Its number may be given to another process once it was told."""
        code: int | None = self._ask({"pid": pid})
        return code

    def close(self) -> None:
        with self._lock:
            if self._parent is None or self._channel is None:
                return
            self._channel.close()
            self._parent.wait(_END_SECONDS_MAX)
            self._parent = self._channel = None

    def _ask(self, request: dict[str, Any], streams: Sequence[int] = ()) -> Any:
        with self._lock:
            channel = self._channel or self._open()
            self._asked += 1
            number = self._asked
            socket.send_fds(channel, [json.dumps([number, request]).encode()], streams)
            # Who was interrupted has left its answer here.
            while answer := channel.recv(_MESSAGE_BYTES_MAX):
                answered, found = json.loads(answer)
                if answered == number:
                    return found
        raise AssertionError("the parent of the brokers has ended")

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._parent = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": import_path()},
                pass_fds=[theirs.fileno()],
            )
        ours.settimeout(_ANSWER_SECONDS_MAX)
        self._channel = ours
        return ours


NURSERY = Nursery()


# -- in the parent of the brokers --------------------------------------------------------------------------


def main(descriptor: int) -> NoReturn:
    for module in IMPORTED:
        importlib.import_module(module)
    for module in importlib.import_module("forebay.broker.warm_up").warm_modules():
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # else the first collection of a child would copy all of it
    with socket.socket(fileno=descriptor) as channel:
        codes: dict[int, int | None] = {}
        while True:
            message, streams, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES_MAX, 3)
            if not message:
                break
            number, request = json.loads(message)
            if "pid" in request:
                pid = request["pid"]
                if codes[pid] is None:
                    codes[pid] = _exit_code(pid)
                answer = codes[pid]
            else:
                answer = os.fork()
                if answer == 0:
                    channel.close()
                    _run(streams, **request)
                codes[answer] = None
                for stream in streams:
                    os.close(stream)
            channel.send(json.dumps([number, answer]).encode())
    for pid in [pid for pid, code in codes.items() if code is None]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    sys.exit()


def _exit_code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _run(streams: Sequence[int], arguments: list[str], environ: dict[str, str], cwd: str) -> NoReturn:
    from forebay.cli.main import main as forebay

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["forebay", *arguments]
    forebay()
    raise AssertionError("unreachable: it exits")


if __name__ == "__main__":
    main(int(sys.argv[1]))
