"""Systems that lack what Linux has, made of this one: children load `sitecustomize.py` at their start."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

MISSING = {
    "sendfile": "files are read and sent",
    "msg_more": "the beginning of a response is sent by itself",
    "fdatasync": "the whole file is synced",
    "durable_fsync": "fsync ends in the drive's cache: F_FULLFSYNC goes further",
    "vectored_writes": "buffers are joined to be written",
    "cache_probe": "the C library says whether a read waits for the device",
    "process_handles": "the kernel is asked for descriptors of processes",
    "boottime": "the clock may stand still while the machine sleeps",
    "proc": "there is no boot id",
    "memfd": "keys of TLS take a file to the library",
    "epoll": "another selector has the sockets",
    "tcp_timers": "a server that vanished is noticed later",
    "descriptor_limit": "the limit says that there is none, and cannot be set to that",
    "bind_beside": "a port cannot be kept for a server",
    "waitid": "a process that is halted has to be looked at",
}
"""What can be taken away, and what a broker does instead."""


def environment(missing: Iterable[str]) -> dict[str, str]:
    """For a process, and its children, on a system without these."""
    folders = [str(Path(__file__).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**inherited, "PYTHONPATH": os.pathsep.join(folders), "SYSTEM_WITHOUT": ",".join(missing)}
