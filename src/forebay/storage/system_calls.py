"""System calls on files that not every system has, each chosen once, when this module is loaded.

*Syncing.* On Linux `fdatasync` returns when the drive has the bytes for good. On macOS there is no
`fdatasync`, and `fsync` returns while they are still in the drive's cache, which a loss of power empties.
`F_FULLFSYNC` waits for the drive; it is used wherever it exists, because an acknowledgement promises that.
Some file systems there refuse it (network shares): then `fsync` is the most that can be had.

*Writing many buffers* takes one `pwritev`, or one copy and a `pwrite`.

*Asking whether a range is in the page cache* needs Linux's `RWF_NOWAIT`. A Python that was built to run
anywhere does not know it, such as those that uv installs: there the C library is asked. Where that has no
such call every range is taken to be in the cache: reading on the event loop may then wait for the device.

*The boot id* is a file on Linux, and a value of the kernel on macOS. Without one every unclean stop counts as
a loss of power, and more is checked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from forebay.storage.disk import Buffer

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_BOOT_ID_MACOS = b"kern.bootsessionuuid"
_BOOT_ID_BYTES_MAX = 64
_RWF_NOWAIT_OF_LINUX = 8
_LONG_BYTES = 8
_PAGE_BYTES = 4096
"""Of the page cache, at least."""
_RWF_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_F_FULLFSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_REFUSED = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)
"""How a file system says that it cannot flush the drive. Any other error is a write that failed."""

Sync = Callable[[int], None]
Probe = Callable[[int, int, int], bool]
WriteVector = Callable[[int, Sequence[Buffer], int], int]


def _flush_drive(fd: int) -> None:
    assert _F_FULLFSYNC is not None, "it is only chosen where it exists"
    try:
        fcntl.fcntl(fd, _F_FULLFSYNC)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        os.fsync(fd)


def _write_joined(fd: int, views: Sequence[Buffer], position: int) -> int:
    return os.pwrite(fd, b"".join(views), position)


def _always_cached(fd: int, position: int, length: int) -> bool:  # noqa: ARG001 - the same call for all
    return True


def _probe_cache(fd: int, position: int, length: int) -> bool:
    assert _RWF_NOWAIT is not None, "it is only chosen where it exists"
    probe, last = [bytearray(1)], position + length - 1
    try:
        os.preadv(fd, probe, position, _RWF_NOWAIT)
        if last // _PAGE_BYTES != position // _PAGE_BYTES:
            os.preadv(fd, probe, last, _RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # the file system cannot tell
    return True


@cache
def _preadv2() -> Callable[[int, int], int] | None:
    """Reads a byte without waiting, by the C library; the error number, or 0. None if it has no such call."""
    import ctypes  # only here, and slow to load

    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    try:
        call = ctypes.CDLL(None, use_errno=True).preadv2
    except (OSError, AttributeError):
        return None
    if ctypes.sizeof(ctypes.c_long) < _LONG_BYTES:
        return None  # it takes positions of another size
    call.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_int)
    call.restype = ctypes.c_ssize_t
    byte = ctypes.create_string_buffer(1)
    vector = Vector(ctypes.addressof(byte), 1)
    place, get_errno = ctypes.addressof(vector), ctypes.get_errno

    def read(fd: int, position: int, _kept: Any = (byte, vector)) -> int:
        return 0 if call(fd, place, 1, position, _RWF_NOWAIT_OF_LINUX) >= 0 else get_errno()

    return read


def _probe_by_library(fd: int, position: int, length: int) -> bool:
    read, last = _preadv2(), position + length - 1
    if read is None:
        return True
    error = read(fd, position)
    if not error and last // _PAGE_BYTES != position // _PAGE_BYTES:
        error = read(fd, last)
    return error != errno.EAGAIN  # after any other, the file system cannot tell


def _cache_probe() -> Probe:
    if _RWF_NOWAIT is not None:
        return _probe_cache
    return _probe_by_library if sys.platform == "linux" else _always_cached


sync_file: Sync = _flush_drive if _F_FULLFSYNC is not None else os.fsync
"""Make a file or a directory survive a loss of power, with all that is known about it."""
sync_data: Sync = sync_file if _F_FULLFSYNC is not None else getattr(os, "fdatasync", os.fsync)
"""Make the bytes of a file survive a loss of power, and its length."""
write_vector: WriteVector = getattr(os, "pwritev", _write_joined)
"""Write buffers one after the other; how many bytes were written."""
is_cached = _cache_probe()
"""True if reading a range is likely not to wait for the device."""


def sync_directory(path: str) -> None:
    """Make the names in a directory survive a loss of power."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def boot_id() -> str:
    """Another one after every boot of the machine; "" where the system has none."""
    if sys.platform == "darwin":
        return _kernel_value(_BOOT_ID_MACOS)
    try:
        return Path(_BOOT_ID).read_text().strip()
    except OSError:
        return ""


def _kernel_value(name: bytes) -> str:
    """A text that the kernel of macOS has under this name; "" if there is none."""
    import ctypes  # only here, and slow to load

    text, size = ctypes.create_string_buffer(_BOOT_ID_BYTES_MAX), ctypes.c_size_t(_BOOT_ID_BYTES_MAX)
    try:
        failed: int = ctypes.CDLL(None).sysctlbyname(name, text, ctypes.byref(size), None, 0)
    except (OSError, AttributeError):
        return ""
    return "" if failed else text.value.decode("ascii", "replace")
