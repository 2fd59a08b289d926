"""Descriptors of processes (Linux 5.3). A process is never taken for another that was given its pid.

Python has calls for them if it was built where the system's headers had them. Builds that are to run anywhere
were not, such as those that uv installs: there the kernel is asked by the numbers of its calls, which are the
same on all processors that Python is built for.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

_PIDFD_SEND_SIGNAL = 424
_PIDFD_OPEN = 434


def open_process(pid: int) -> int:
    """Raises OSError if there is no such process, or no such call."""
    own: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    return _call(_PIDFD_OPEN, pid, 0) if own is None else own(pid)


def signal_process(handle: int, number: int) -> None:
    """Raises ProcessLookupError if the process has ended."""
    own: Callable[[int, int], None] | None = getattr(signal, "pidfd_send_signal", None)
    if own is None:
        _call(_PIDFD_SEND_SIGNAL, handle, int(number), None, 0)
    else:
        own(handle, number)


def _call(number: int, *arguments: Any) -> int:
    import ctypes  # only here, and slow to load

    found: int = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return found
