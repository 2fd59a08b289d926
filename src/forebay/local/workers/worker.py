"""One worker, seen from its parent: started, and started again whenever it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping

from forebay.local.settings import BrokerFailed
from forebay.local.workers.launching import Child, ForkServerEnded, Launcher
from forebay.local.workers.plan import WorkerPlan

log = logging.getLogger(__name__)

_PAUSE_S_MIN = 0.1
_PAUSE_S_MAX = 10.0
_STEADY_S = 60.0
"""A worker that has lived for this long is started again after the shortest pause."""


class Worker:
    def __init__(
        self,
        plan: WorkerPlan,
        launcher: Launcher,
        *,
        shared: Mapping[int, socket.socket],
        inherited: tuple[int, ...],
        connect: Callable[[], socket.socket] | None,
    ) -> None:
        """`shared`: the listening sockets of the host, by this worker's own ports. `inherited`: descriptors
        that are only to stay open. `connect` makes a connection to the parent's store, if that has one."""
        self.plan = plan
        self.number = plan.number
        self.restarts = 0
        self.ready = asyncio.Event()
        """Set while clients can connect."""
        self._was_ready = False
        self._shared = shared
        self._inherited = inherited
        self._connect = connect
        self._launcher = launcher
        self._child: Child | None = None
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def keep(self) -> None:
        """Returns when it has ended after stop(). Raises BrokerFailed if it never was ready."""
        pause_s = _PAUSE_S_MIN
        while not self._stopping.is_set():
            began_s = self._loop.time()
            reason = await self._run_once()
            if self._stopping.is_set():
                break
            if not self._was_ready:
                raise BrokerFailed(f"worker {self.number} did not start: it said why above")
            if self._loop.time() - began_s > _STEADY_S:
                pause_s = _PAUSE_S_MIN
            log.error(
                "a worker has ended, and is started again",
                extra={"ended": self.number, "reason": reason, "after_ms": round(pause_s * 1000)},
            )
            self.restarts += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def stop(self) -> None:
        """SIGTERM, and no other start."""
        if not self._stopping.is_set():
            self._stopping.set()
            self.signal(signal.SIGTERM)

    def kill(self) -> None:
        self._stopping.set()
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.signal(number)

    async def _run_once(self) -> str:
        """From one start to its end; returns the reason for it."""
        try:
            return await self._start_and_follow()
        except ForkServerEnded:  # with other descriptors, and without it
            return await self._start_and_follow()

    async def _start_and_follow(self) -> str:
        """Raises ForkServerEnded when all is closed that a worker was given which may have been started."""
        with contextlib.ExitStack() as closing:
            try:
                child, said = await self._launch(closing)
            except ForkServerEnded:
                raise
            except OSError as error:  # too many processes, or no memory
                return str(error)
            self._child = child
            if self._stopping.is_set():  # meanwhile
                self.signal(signal.SIGTERM)
            try:
                await self._follow(said)
            finally:
                self.ready.clear()
            return _reason(await child.wait())

    async def _launch(self, closing: contextlib.ExitStack) -> tuple[Child, int]:
        """The process, and where it says that it is ready. Raises OSError."""
        with contextlib.ExitStack() as passing:  # what only the worker needs
            theirs, lifeline = _pipe(passing, closing)
            said, speaks = _pipe(closing, passing)
            store = None if self._connect is None else passing.enter_context(self._connect())
            shared = {str(port): each.fileno() for port, each in self._shared.items()}
            numbers = [*self._inherited, *shared.values(), *([] if store is None else [store.fileno()])]
            child = await self._launcher.launch(self.number, theirs, speaks, numbers)
        given = {
            "settings": dict(self.plan.settings),
            "store": None if store is None else numbers[-1],
            "shared": shared,
        }
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which its parent will see
            _write_all(lifeline, json.dumps(given).encode() + b"\n")
        return child, said

    async def _follow(self, said: int) -> None:
        """Until its end."""
        reader = asyncio.StreamReader()
        transport, _ = await self._loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(said), "rb")
        )
        try:
            if (await reader.readline()).endswith(b"\n"):
                self._was_ready = True
                self.ready.set()
                await reader.read()
        finally:
            transport.close()


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """Its two ends, which are closed with these."""
    read, write = os.pipe()
    reading.callback(os.close, read)
    writing.callback(os.close, write)
    return read, write


def _write_all(number: int, data: bytes) -> None:
    while data:
        data = data[os.write(number, data) :]


def _reason(code: int | None) -> str:
    if code is None:
        return "unknown"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
