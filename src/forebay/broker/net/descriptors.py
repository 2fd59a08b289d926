"""How the descriptors that the system allows are shared out, so that clients never take those of the logs.

Without shares a crowd of connections would use up the limit, and the next segment to be opened would look
like a broken disk.
"""

from __future__ import annotations

import resource
from typing import NamedTuple

_OTHERS = 32
"""For the store, the listener, the event loop, and threads that sync and read."""
_SHARE_MIN = 16


class Shares(NamedTuple):
    files: int
    connections: int


def share_descriptors(files_wanted: int, limit: int | None = None) -> Shares:
    """At most half for log files, the rest for connections; the limit is the process's unless given."""
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = 2**31 - 1
    free = max(limit - _OTHERS, 2 * _SHARE_MIN)
    files = min(files_wanted, free // 2)
    return Shares(files, free - files)
