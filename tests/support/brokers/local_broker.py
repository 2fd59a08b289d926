"""A broker in a thread of this process, for tests that hold its disk or its clock in their hands.

Everything but the process is real: the event loop, the sockets, the files. The test's thread talks to it
over TCP like any client; `on_loop` runs something where the broker's state may be touched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from forebay.broker.broker import Broker
from forebay.broker.system_ports import real_ports
from forebay.clock import Clock
from forebay.config import BrokerConfig
from forebay.storage.real_disk import RealDisk
from forebay.testing.embedded import BrokerThread
from support.faults.held_threads import HeldThreads


class LocalBroker(BrokerThread):
    bootstrap = ""

    def __init__(
        self,
        make_disk: Callable[[], RealDisk] | None,
        clock: Clock | None,
        threads: HeldThreads | None,
    ) -> None:
        super().__init__(self._make_broker)
        self._make_disk = make_disk
        self._clock = clock
        self._threads = threads

    def _make_broker(self, config: BrokerConfig) -> Broker:
        ports = real_ports(config)
        if self._clock is not None:
            ports = replace(ports, clock=self._clock)
        if self._make_disk is not None:
            ports = replace(ports, disk=self._make_disk())
        if self._threads is not None:
            ports = replace(ports, executor=self._threads)
        return Broker(config, ports)


@contextlib.contextmanager
def local_broker(
    data: Path,
    settings: dict[str, str] | None = None,
    *,
    make_disk: Callable[[], RealDisk] | None = None,
    clock: Clock | None = None,
    threads: HeldThreads | None = None,
) -> Iterator[LocalBroker]:
    broker = LocalBroker(make_disk, clock, threads)
    place = {"log.dirs": str(data), "listeners": "PLAINTEXT://127.0.0.1:0"}
    try:
        broker.bootstrap = broker.start({**place, **(settings or {})})
        yield broker
    finally:
        broker.kill()
