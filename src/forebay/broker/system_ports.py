"""The ports of a broker that runs on the operating system."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from forebay.broker.net.descriptors import share_descriptors
from forebay.broker.net.sockets import SocketNetwork
from forebay.broker.ports import Network, Ports
from forebay.clock import SystemClock
from forebay.config import BrokerConfig
from forebay.coordination.store import Store
from forebay.coordination.store_choice import open_store
from forebay.storage.delays.files import DelayIndexFiles
from forebay.storage.real_disk import RealDisk

if TYPE_CHECKING:
    from forebay.tiers.object_store import ObjectStore


_STEPPING_BACK = frozenset({"forebay-login", "forebay-tier"})
"""Threads whose work can wait, and that do most of it without the interpreter: the loop waits little for a
thread that has the interpreter and no core."""
_STEPS_BACK = 10


def _open_objects(url: str) -> ObjectStore:
    from forebay.tiers.opening import open_store as open_objects

    return open_objects(url)


def real_ports(
    config: BrokerConfig,
    network: Network | None = None,
    open_store: Callable[[BrokerConfig], Awaitable[Store]] = open_store,
) -> Ports:
    """Must be called by the thread whose event loop runs the broker, because that thread owns the disk."""
    storage = config.storage
    shares = share_descriptors(storage.open_files_max, storage.delay_indexes_open_max)
    return Ports(
        clock=SystemClock(),
        disk=RealDisk(shares.files, syncs=storage.syncs),
        network=network or SocketNetwork(),
        executor=_threads,
        entropy=os.urandom,
        delay_indexes=DelayIndexFiles(shares.indexes),
        open_store=open_store,
        open_objects=_open_objects,
    )


def _threads(count: int, name: str) -> ThreadPoolExecutor:
    step_back = _step_back if name in _STEPPING_BACK else None
    return ThreadPoolExecutor(count, thread_name_prefix=name, initializer=step_back)


def _step_back() -> None:
    """Let others have a core first. On Linux, a thread has a priority of its own."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            now = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, min(now + _STEPS_BACK, 19))
