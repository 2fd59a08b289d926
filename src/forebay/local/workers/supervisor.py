"""The parent of the workers of a host.

It binds the ports that they share, has their store unless that is etcd, starts them, starts those again that
end, and stops them. It does nothing for clients, and no data passes through it.

The lock of the folder is inherited by every worker: it is free when the last of them has ended, also those
of a parent that was killed. The next parent waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import socket
from collections.abc import Callable

from forebay.broker.net.sockets import BACKLOG, bind
from forebay.broker.telemetry import log_format
from forebay.config import BrokerConfig
from forebay.coordination.socket.server import StoreServer
from forebay.coordination.sqlite import SqliteStore
from forebay.coordination.store_choice import STORE_FILE
from forebay.errors import ConfigError
from forebay.local.workers.launching import Launcher
from forebay.local.workers.leftovers import check_none_left
from forebay.local.workers.plan import FOLDER, worker_plans
from forebay.local.workers.worker import Worker

log = logging.getLogger(__name__)

_LOCK = ".lock"
_LOCK_S_MAX = 60.0
_LOCK_RETRY_S = 0.1
_STOP_S_MAX = 120.0
"""Workers that have not ended by themselves after this time are killed."""


def run_workers(config: BrokerConfig, on_ready: Callable[[str, int], None]) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. SIGHUP has certificates read again."""
    launcher = Launcher(config)  # first of all: it may fork
    handler = log_format.configure(config.node.log_format)
    try:
        asyncio.run(_Host(config, launcher).run(on_ready))
        return 0
    finally:
        handler.close()


class _Host:
    def __init__(self, config: BrokerConfig, launcher: Launcher) -> None:
        self._config = config
        self._launcher = launcher
        self._dir = config.node.data_dir
        self._stopping = asyncio.Event()
        self._connections: set[socket.socket] = set()
        """Those to the store that are not served yet."""
        self._serving: set[asyncio.Task[None]] = set()
        self._server: StoreServer | None = None
        self._workers: list[Worker] = []

    async def run(self, on_ready: Callable[[str, int], None]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        async with contextlib.AsyncExitStack() as closing:  # what was opened last is closed first
            closing.callback(self._launcher.close)
            lock = await self._lock(closing)
            check_none_left(self._dir, self._config.workers.count)
            shared = self._bind(closing)
            self._workers = self._make_workers(closing, shared, lock)
            closing.push_async_callback(self._close_store)
            keeping = [asyncio.create_task(worker.keep()) for worker in self._workers]
            try:
                # While the workers import what they need.
                await self._open_store()
                if await self._until_ready(keeping):
                    host, port = shared[self._config.node.listeners.all[0].name].getsockname()[:2]
                    await self._serve_metrics(closing)
                    on_ready(host, port)
                    await self._until_stopped(keeping)
            finally:
                for each in shared.values():
                    each.close()  # so that nobody waits at a port where nobody accepts any more
                await self._end(keeping)
            for task in keeping:
                task.result()

    # -- what the workers share ------------------------------------------------------------------------

    async def _lock(self, closing: contextlib.AsyncExitStack) -> int:
        """Wait until no worker of an earlier parent is left. Raises ConfigError."""
        folder = self._dir / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        number = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        closing.callback(os.close, number)
        loop = asyncio.get_running_loop()
        deadline_s, report = loop.time() + _LOCK_S_MAX, log.warning
        while not _try_lock(number):
            if loop.time() > deadline_s or self._stopping.is_set():
                raise ConfigError(
                    f"the workers of another `forebay serve` use {self._dir}: stop that one first"
                )
            report("waiting until the workers of an earlier start have ended", extra={"data": str(self._dir)})
            report = log.debug
            await asyncio.sleep(_LOCK_RETRY_S)
        return number

    def _bind(self, closing: contextlib.AsyncExitStack) -> dict[str, socket.socket]:
        """The sockets at which all workers accept, by the names of the listeners."""
        shared: dict[str, socket.socket] = {}
        for listener in self._config.node.listeners.all:
            bound = shared[listener.name] = bind(listener.host, listener.port)
            closing.callback(bound.close)
            bound.listen(BACKLOG)
            bound.setblocking(False)
        return shared

    def _make_workers(
        self, closing: contextlib.AsyncExitStack, shared: dict[str, socket.socket], lock: int
    ) -> list[Worker]:
        plans = worker_plans(self._config, self._free_ports(closing), socket.gethostname())
        has_store = self._config.cluster.url is None
        return [
            Worker(
                plan,
                self._launcher,
                shared={port: shared[name] for name, port in plan.ports.items()},
                inherited=(lock,),
                connect=self._connect if has_store else None,
            )
            for plan in plans
        ]

    def _free_ports(self, closing: contextlib.AsyncExitStack) -> dict[str, list[int]]:
        """Ports for listeners that may have any, which stay the workers' own while these are restarted."""
        wanted = {each.name: each.host for each in self._config.node.listeners.all if not each.port}
        if self._config.node.metrics is not None and not self._config.node.metrics[1]:
            wanted[""] = self._config.node.metrics[0]
        found: dict[str, list[int]] = {}
        for name, host in wanted.items():
            for _ in range(self._config.workers.count):
                reserved = bind(
                    host, 0
                )  # and does not listen: a worker can bind to it, others are not given it
                closing.callback(reserved.close)
                found.setdefault(name, []).append(reserved.getsockname()[1])
        return found

    # -- the store -------------------------------------------------------------------------------------

    async def _open_store(self) -> None:
        """Requests that the workers have sent meanwhile wait in their sockets."""
        if self._config.cluster.url is not None:
            return
        syncs = self._config.storage.syncs
        self._server = StoreServer(await SqliteStore.open(self._dir / STORE_FILE, syncs=syncs))
        connections, self._connections = self._connections, set()
        for ours in connections:
            self._serve(ours)

    def _connect(self) -> socket.socket:
        """A worker's end of a new connection."""
        ours, theirs = socket.socketpair()
        if self._server is None:
            self._connections.add(ours)
        else:
            self._serve(ours)
        return theirs

    def _serve(self, ours: socket.socket) -> None:
        assert self._server is not None
        task = asyncio.create_task(self._server.serve(ours))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _close_store(self) -> None:
        for ours in self._connections:
            ours.close()
        if self._serving:
            await asyncio.wait(self._serving)  # their workers have ended
        if self._server is not None:
            await self._server.store.close()

    async def _serve_metrics(self, closing: contextlib.AsyncExitStack) -> None:
        if self._config.node.metrics is None:
            return
        from forebay.local.workers.host_pages import HostPages

        pages = HostPages(self._workers)
        await pages.start(*self._config.node.metrics)
        closing.callback(pages.close)

    # -- from the start to the end ---------------------------------------------------------------------

    async def _until_ready(self, keeping: list[asyncio.Task[None]]) -> bool:
        """Wait for all workers. False if one of them does not start, or the host is stopped first."""
        ready = asyncio.create_task(self._wait_for_all())
        stopped = asyncio.create_task(self._until_stopped(keeping))
        try:
            await asyncio.wait({ready, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return not stopped.done()
        finally:
            ready.cancel()
            stopped.cancel()

    async def _wait_for_all(self) -> None:
        for worker in self._workers:
            await worker.ready.wait()

    async def _until_stopped(self, keeping: list[asyncio.Task[None]]) -> None:
        """Until the host is to stop, or a worker is given up."""
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopped, *keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()

    async def _end(self, keeping: list[asyncio.Task[None]]) -> None:
        for worker in self._workers:
            worker.stop()
        _, late = await asyncio.wait(keeping, timeout=_STOP_S_MAX)
        for worker, task in zip(self._workers, keeping, strict=True):
            if task in late:
                log.error("a worker does not end, and is killed", extra={"ended": worker.number})
                worker.kill()
        await asyncio.wait(keeping)

    def _reload(self) -> None:
        for worker in self._workers:
            worker.signal(signal.SIGHUP)


def _try_lock(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
