"""Memory of tens of megabytes goes back to the system when it is freed.

The C library (glibc) maps large blocks for themselves, and gives them back at once. But each that is freed
teaches it to map only larger ones from then on, up to 32 MiB: what comes after lies on the heaps of the
threads, and stays there. A broker that unpacked bombs in two threads kept 80 MB that way.
"""

from __future__ import annotations

import contextlib

_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD in malloc.h."""
_MAPPED_FROM = 512 * 1024


def give_back_large_blocks() -> None:
    """From now on, for the whole process. Does nothing where the C library has no such setting."""
    import ctypes  # few brokers ever need it

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _MAPPED_FROM)
