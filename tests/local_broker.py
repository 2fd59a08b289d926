"""A broker in a thread of this process, for tests that hold its disk or its clock in their hands.

Everything but the process is real: the event loop, the sockets, the files. The test's thread talks to it
over TCP like any client; `on_loop` runs something where the broker's state may be touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from forebay.broker.broker import Broker
from forebay.broker.sockets import Address
from forebay.clock import Clock
from forebay.config import broker_config
from forebay.storage.disk import RealDisk

T = TypeVar("T")

START_SECONDS = 20.0


class LocalBroker:
    def __init__(
        self,
        data: Path,
        settings: dict[str, str],
        *,
        make_disk: Callable[[], RealDisk] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = {
            "log.dirs": str(data),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **settings,
        }
        self._make_disk = make_disk
        self._clock = clock
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="local-broker")
        self._failure: BaseException | None = None
        self.bootstrap = ""
        self.broker: Broker

    def start(self) -> LocalBroker:
        self._thread.start()
        assert self._ready.wait(START_SECONDS), "the broker did not become ready"
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self.broker.loop.call_soon_threadsafe(self.broker.stop)
        self._thread.join(START_SECONDS)
        assert not self._thread.is_alive(), "the broker did not stop"

    def on_loop(self, work: Callable[[Broker], T]) -> T:
        async def run() -> T:
            return work(self.broker)

        return asyncio.run_coroutine_threadsafe(run(), self.broker.loop).result(START_SECONDS)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _run(self) -> None:
        self.broker = Broker(broker_config(self.settings), self._clock)
        if self._make_disk is not None:
            self.broker.disk = self._make_disk()
        await self.broker.run(self._on_ready)

    def _on_ready(self, address: Address) -> None:
        self.bootstrap = f"{address[0]}:{address[1]}"
        self._ready.set()


@contextlib.contextmanager
def local_broker(
    data: Path,
    settings: dict[str, str] | None = None,
    *,
    make_disk: Callable[[], RealDisk] | None = None,
    clock: Clock | None = None,
) -> Iterator[LocalBroker]:
    broker = LocalBroker(data, settings or {}, make_disk=make_disk, clock=clock).start()
    try:
        yield broker
    finally:
        broker.stop()
