"""The name of a forked process in `ps` and `top`, which else would be its parent's.

Linux reads the words of a command line from the memory of the process, so they can be written there. No more
fits than the words that the process was started with took.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

_SHORT = Path("/proc/self/comm")
_STAT = Path("/proc/self/stat")
_MEMORY = Path("/proc/self/mem")
_ARG_START, _ARG_END = 48 - 3, 49 - 3
"""Their places in `stat`, counted after the name, which is field 2 (proc(5))."""


def set_process_title(title: str) -> None:
    """As far as the system lets it: it is for people."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        _SHORT.write_text(title.replace(": ", "-").replace(" ", ""))
        fields = _STAT.read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        if not 0 < start < end:
            return
        text = title.encode()[: end - start - 1]
        with _MEMORY.open("r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(text.ljust(end - start, b"\0"))
