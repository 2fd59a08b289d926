"""The processes of a Spark driver, to be killed: its JVM, its executors, its Python workers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

EXECUTOR = b"CoarseGrainedExecutorBackend"
_DAEMON = re.compile(rb"pyspark\.daemon|worker_daemon\.py")


def workers(driver: int) -> list[int]:
    """The Python workers below a driver: children of the daemons that fork them."""
    parents = _parents()
    daemons = {pid for pid in descendants(driver) if _DAEMON.search(_command(pid))}
    return [pid for pid in daemons if parents.get(pid) in daemons]


def executors(driver: int) -> list[int]:
    """The JVMs of the executors below a driver; in local mode there are none."""
    return [pid for pid in descendants(driver) if EXECUTOR in _command(pid)]


def descendants(pid: int) -> list[int]:
    parents = _parents()
    found, grown = {pid}, True
    while grown:
        more = {child for child, parent in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    return sorted(found - {pid})


def _parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it is gone already
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_running(driver: subprocess.Popen[bytes]) -> bool:
    return driver.poll() is None


def kill_all_of(driver: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM and its workers, all at once."""
    for pid in [driver.pid, *descendants(driver.pid)]:
        kill_9(pid)
    driver.wait()


def kill_9(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
