"""The ports of a broker: all that it needs of the world outside its process.

Whatever is not deterministic comes in here: time, files, connections, threads, random bytes, the store. The
simulator puts its own in their place and runs whole brokers on virtual time. So nothing else in `broker/` may
make a thread, ask the system for the time or for randomness, or open a socket; timers are the event loop's.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from forebay.broker.descriptors import share_descriptors
from forebay.broker.sockets import Address, SocketNetwork, Stream
from forebay.clock import Clock, SystemClock
from forebay.config import BrokerConfig
from forebay.coordination.opening import open_store
from forebay.coordination.store import Store
from forebay.storage.disk import Disk, RealDisk


class Listening(Protocol):
    """An address that is bound; who connects waits until start()."""

    @property
    def address(self) -> Address: ...

    def start(self) -> None: ...
    def close(self) -> None: ...


class Network(Protocol):
    def listen(self, host: str, port: int, on_stream: Callable[[Stream], None]) -> Listening:
        """Bind an address; every connection to it is handed over as a stream. Raises OSError."""

    async def connect(self, host: str, port: int) -> Stream:
        """Raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    clock: Clock
    disk: Disk
    network: Network
    executor: Callable[[int, str], Executor]
    """Makes a pool for what blocks: at most so many workers, with this prefix in their names."""
    entropy: Callable[[int], bytes]
    """So many random bytes, for ids."""
    open_store: Callable[[BrokerConfig], Awaitable[Store]]


def real_ports(config: BrokerConfig) -> Ports:
    """The operating system's; made by the thread whose event loop runs the broker, for it owns the disk."""
    return Ports(
        clock=SystemClock(),
        disk=RealDisk(share_descriptors(config.storage.open_files_max).files),
        network=SocketNetwork(),
        executor=lambda workers, prefix: ThreadPoolExecutor(workers, thread_name_prefix=prefix),
        entropy=os.urandom,
        open_store=open_store,
    )
