"""Takes away what only Linux has, before anything else of Python is loaded.

Python imports a module of this name at its start, if it is on the path. `SYSTEM_WITHOUT` names what is to be
missing, separated by commas, and is inherited by every child. So the choices that the broker makes by what is
there are made as on a system that lacks it. `support/other_systems/__init__.py` lists the names.
"""

from __future__ import annotations

import fcntl
import io
import os
import resource
import select
import selectors
import socket
import sys
import time
import weakref
from typing import Any

_MISSING = {
    "sendfile": (os, ("sendfile",)),
    "msg_more": (socket, ("MSG_MORE",)),
    "fdatasync": (os, ("fdatasync",)),
    "vectored_writes": (os, ("pwritev", "preadv", "RWF_NOWAIT")),
    "cache_probe": (os, ("RWF_NOWAIT",)),
    "boottime": (time, ("CLOCK_BOOTTIME",)),
    "process_handles": (os, ("pidfd_open",)),
    "memfd": (os, ("memfd_create",)),
    "waitid": (os, ("waitid",)),
    "tcp_timers": (socket, ("TCP_KEEPIDLE", "TCP_USER_TIMEOUT")),
}
_OPEN_MAX = 10_240
"""What macOS allows of descriptors, although its limit says that there is none."""


def _take_attributes(name: str) -> None:
    module, attributes = _MISSING[name]
    for attribute in attributes:
        if hasattr(module, attribute):
            delattr(module, attribute)


def _select_by_poll() -> None:
    del select.epoll
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[assignment,misc]


def _hide_proc() -> None:
    real_open = io.open

    def open_(file: Any, *arguments: Any, **options: Any) -> Any:
        if str(file).startswith("/proc/"):
            raise FileNotFoundError(2, "No such file or directory", str(file))
        return real_open(file, *arguments, **options)

    io.open = open_


def _sync_as_macos() -> None:
    """There fsync leaves the bytes in the drive's cache, and this call of fcntl does not."""
    number = 51
    real_fcntl = fcntl.fcntl

    def fcntl_(fd: Any, command: int, *arguments: Any) -> Any:
        if command == number:
            os.fsync(fd)
            return 0
        return real_fcntl(fd, command, *arguments)

    fcntl.fcntl = fcntl_
    fcntl.F_FULLFSYNC = number  # type: ignore[attr-defined]


def _bind_as_bsd() -> None:
    """There one address is bound once, whatever SO_REUSEADDR says. Sockets of this process are compared."""
    bound: weakref.WeakSet[socket.socket] = weakref.WeakSet()
    real_bind = socket.socket.bind

    def bind(self: socket.socket, address: Any) -> None:
        for other in list(bound):
            if other.fileno() >= 0 and address[1] and other.getsockname()[:2] == tuple(address[:2]):
                raise OSError(98, "Address already in use")
        real_bind(self, address)
        bound.add(self)

    socket.socket.bind = bind  # type: ignore[method-assign,assignment]


def _limit_as_macos() -> None:
    """There the limit of descriptors is infinite, and setting it to that fails."""
    real_get, real_set = resource.getrlimit, resource.setrlimit

    def getrlimit(which: int) -> tuple[int, int]:
        soft, hard = real_get(which)
        return (soft, resource.RLIM_INFINITY) if which == resource.RLIMIT_NOFILE else (soft, hard)

    def setrlimit(which: int, limits: tuple[int, int]) -> None:
        if which == resource.RLIMIT_NOFILE and not 0 <= limits[0] <= _OPEN_MAX:
            raise ValueError("current limit exceeds maximum limit")
        real_set(which, (limits[0], real_get(which)[1]))

    resource.getrlimit, resource.setrlimit = getrlimit, setrlimit


_CHANGES = {
    "epoll": _select_by_poll,
    "proc": _hide_proc,
    "durable_fsync": _sync_as_macos,
    "bind_beside": _bind_as_bsd,
    "descriptor_limit": _limit_as_macos,
}

for _name in filter(None, os.environ.get("SYSTEM_WITHOUT", "").split(",")):
    if _name in _MISSING:
        _take_attributes(_name)
    elif _name in _CHANGES:
        _CHANGES[_name]()
    else:
        sys.exit(f"SYSTEM_WITHOUT: nothing is called {_name}")
