"""The process and its machine: CPU, memory, descriptors, free disk, and when certificates expire.

All of it is read in a thread before a page is made. If the thread does not answer in time, as over a file
system that hangs, the page has the last figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.broker.prometheus.certificates import Expiries, Place, places_of
from forebay.broker.prometheus.families import Page, labels

if TYPE_CHECKING:
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.worker_threads import WorkerThreads
    from forebay.storage.disk import Disk

_READ_S_MAX = 2.0
_OWN = Path("/proc/self")


class MachineMetrics:
    def __init__(self, disk: Disk, settings: LiveConfig, workers: WorkerThreads) -> None:
        self._disk = disk
        self._settings = settings
        self._workers = workers
        self._expiries = Expiries()
        self._began_s = time.time()
        self._figures: dict[str, float] = {}
        self._certificates: dict[Place, float] = {}

    async def prepare(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READ_S_MAX):
                self._figures, self._certificates = await self._workers.run(self._read)

    def add_to(self, page: Page) -> Iterator[None]:
        page.add("process_start_time_seconds", self._began_s)
        for name, value in self._figures.items():
            page.add(name, value)
        for (listener, store), expires_s in self._certificates.items():
            name = "forebay_certificate_expiry_timestamp_seconds"
            page.add(name, expires_s, labels(listener=listener, store=store))
        yield

    def _read(self) -> tuple[dict[str, float], dict[Place, float]]:
        """Blocks."""
        config, figures = self._settings.current, process_figures()
        with contextlib.suppress(OSError):
            total, free = self._disk.usage(str(config.node.data_dir))
            figures |= {"forebay_disk_total_bytes": total, "forebay_disk_free_bytes": free}
        return figures, self._expiries.read(places_of(config))


def process_figures() -> dict[str, float]:
    """Figures of this process from the system; memory and descriptors only on Linux. Blocks."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures: dict[str, float] = {
        "process_cpu_seconds_total": used.ru_utime + used.ru_stime,
        "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int((_OWN / "statm").read_text().split()[1])
        figures["process_resident_memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
        figures["process_open_fds"] = sum(1 for _ in (_OWN / "fd").iterdir())
    return figures
