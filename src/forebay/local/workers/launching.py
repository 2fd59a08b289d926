"""Starting the process of a worker: it is forked where that is possible, and else an interpreter is started.

A process of its own, the fork server, has imported what workers need (`fork_server.py`). If it has ended, or
there is none, a worker starts as any program does, which takes five times as much CPU. So it does when the
package was replaced on disk meanwhile: a forked worker would load the rest of its parts from another version.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import forebay
from forebay.config import BrokerConfig
from forebay.local.workers.fork_server import (
    DESCRIPTORS_MAX,
    MESSAGE_BYTES_MAX,
    can_fork,
    start_fork_server,
)
from forebay.local.workers.process_handles import signal_process

log = logging.getLogger(__name__)

_CHILD = "forebay.local.workers.child"
_WITH_STORE = "forebay.coordination.socket.client"
_WITH_ETCD = "forebay.coordination.etcd.store"


class ForkServerEnded(OSError):
    """It is not known if the worker was started. If it was, it ends when its standard input does."""


class Child(Protocol):
    """A process that runs, or has ended."""

    @property
    def pid(self) -> int: ...

    def signal(self, number: signal.Signals) -> None:
        """Nothing happens if it has ended."""

    async def wait(self) -> int | None:
        """Its exit code as `subprocess` has it; None if that cannot be known."""


class Launcher:
    """Must be made before this process has threads or an event loop."""

    def __init__(self, config: BrokerConfig) -> None:
        self._server: _ForkServerLink | None = None
        if can_fork():
            modules = (_CHILD, _WITH_STORE if config.cluster.url is None else _WITH_ETCD)
            self._server = _ForkServerLink(*start_fork_server(modules))
        self._version = _installed()

    async def launch(self, number: int, stdin: int, stdout: int, descriptors: Sequence[int]) -> Child:
        """Raises OSError, and ForkServerEnded at most once. The caller closes all descriptors."""
        if self._server is not None and self._server.is_open and self._version == _installed():
            return await self._server.fork(number, stdin, stdout, descriptors)
        return _Spawned(number, stdin, stdout, descriptors)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


def _installed() -> tuple[int, int, int]:
    """Another value if the package was installed anew."""
    found = Path(forebay.__file__).stat()
    return found.st_dev, found.st_ino, found.st_ctime_ns


class _Spawned:
    def __init__(self, number: int, stdin: int, stdout: int, descriptors: Sequence[int]) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", _CHILD, str(number)],  # the number is for ps
            stdin=stdin,
            stdout=stdout,
            pass_fds=descriptors,
            process_group=0,  # a Ctrl-C at the terminal is for the parent, which then ends its workers
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    async def wait(self) -> int | None:
        return await asyncio.to_thread(self._child.wait)


class _Forked:
    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self._handle = handle
        """Of the process: another one that is given the same pid is never meant by it."""
        self._code: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def signal(self, number: signal.Signals) -> None:
        if not self._code.done():
            with contextlib.suppress(ProcessLookupError):
                signal_process(self._handle, number)

    async def wait(self) -> int | None:
        return await asyncio.shield(self._code)

    def end(self, code: int | None) -> None:
        self._code.set_result(code)
        os.close(self._handle)

    def follow(self) -> None:
        """The fork server, which would tell its end, has ended."""
        loop = asyncio.get_running_loop()

        def has_ended() -> None:
            loop.remove_reader(self._handle)
            self.end(_reaped(self.pid))

        loop.add_reader(self._handle, has_ended)


class _ForkServerLink:
    """The connection to the fork server."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self._pid = pid
        self._control = control
        self._starts = 0
        self._asked: dict[int, asyncio.Future[_Forked]] = {}
        self._running: dict[int, _Forked] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_open = True
        control.setblocking(False)

    async def fork(self, number: int, stdin: int, stdout: int, descriptors: Sequence[int]) -> Child:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._control, self._read)
        self._starts += 1
        start = self._starts
        message = {"start": start, "number": number, "descriptors": list(descriptors)}
        answer: asyncio.Future[_Forked] = self._loop.create_future()
        self._asked[start] = answer
        passed = [stdin, stdout, *descriptors]
        assert len(passed) <= DESCRIPTORS_MAX
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], passed)
        except OSError:  # its end is not noticed yet
            self._has_ended()
        return await answer

    def close(self) -> None:
        if self.is_open:
            self._has_ended()

    def _read(self) -> None:
        try:
            text, handles, _, _ = socket.recv_fds(
                self._control, MESSAGE_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except ConnectionResetError:
            text = b""
        if not text:
            self._has_ended()
            return
        self._handle(json.loads(text), handles)

    def _handle(self, message: dict[str, Any], handles: list[int]) -> None:
        if "ended" in message:
            self._running.pop(message["ended"]).end(message["code"])
            return
        answer = self._asked.pop(message["start"])
        if "error" in message:
            answer.set_exception(OSError(message["error"]))
            return
        child = self._running[message["start"]] = _Forked(message["pid"], handles[0])
        answer.set_result(child)

    def _has_ended(self) -> None:
        if self._running or self._asked:
            log.error("the fork server has ended: workers that have to be started again take longer to start")
        self.is_open = False
        if self._loop is not None:
            self._loop.remove_reader(self._control)
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)  # it has nothing to lose, and is waited for
        _reaped(self._pid, options=0)
        for answer in self._asked.values():
            answer.set_exception(ForkServerEnded("the fork server has ended"))
        for child in self._running.values():
            child.follow()
        self._asked, self._running = {}, {}


def _reaped(pid: int, options: int = os.WNOHANG) -> int | None:
    """The exit code of a process, if it is a child of this one: as process 1 it gets those that are left."""
    try:
        ended, status = os.waitpid(pid, options)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None
