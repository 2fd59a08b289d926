"""One worker, seen from its parent: started, and started again whenever it ends."""

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
from collections.abc import Callable, Mapping

from forebay.local.settings import BrokerFailed
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
        self._child: subprocess.Popen[bytes] | None = None
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
        if self._child is not None and self._child.poll() is None:
            os.kill(self._child.pid, number)

    async def _run_once(self) -> str:
        """From one start to its end; returns the reason for it."""
        try:
            child = self._child = self._launch()
        except OSError as error:  # too many processes, or no memory
            return str(error)
        assert child.stdin is not None
        assert child.stdout is not None
        reader = asyncio.StreamReader()
        transport, _ = await self._loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), child.stdout
        )
        try:
            if (await reader.readline()).endswith(b"\n"):
                self._was_ready = True
                self.ready.set()
                await reader.read()  # until its end
            self.ready.clear()
            return _reason(await asyncio.to_thread(child.wait))
        finally:
            self.ready.clear()
            transport.close()
            child.stdin.close()

    def _launch(self) -> subprocess.Popen[bytes]:
        store = None if self._connect is None else self._connect()
        shared = {str(port): each.fileno() for port, each in self._shared.items()}
        passed = [*self._inherited, *shared.values(), *([] if store is None else [store.fileno()])]
        given = {
            "settings": dict(self.plan.settings),
            "store": None if store is None else store.fileno(),
            "shared": shared,
        }
        try:
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "forebay.local.workers.child",
                    str(self.number),
                ],  # the number is for ps
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=passed,
                process_group=0,  # a Ctrl-C at the terminal is for the parent, which then ends its workers
            )
        finally:
            if store is not None:
                store.close()
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which its parent will see
            child.stdin.write(json.dumps(given).encode() + b"\n")
            child.stdin.flush()
        return child


def _reason(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
