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
_PER_INDEX = 3
_INDEXES_PART = 16
_INDEXES_MIN = 4


class Shares(NamedTuple):
    files: int
    connections: int
    indexes: int = 0
    """Indexes of delays, of which each takes several descriptors."""


def share_descriptors(files_wanted: int, indexes_wanted: int = 0, *, limit: int | None = None) -> Shares:
    """At most a sixteenth for indexes of delays, half of the rest for log files, the others for connections.

    The limit is the process's unless given.
    """
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = 2**31 - 1
    free = max(limit - _OTHERS, 2 * _SHARE_MIN)
    indexes = min(indexes_wanted, max(free // _INDEXES_PART // _PER_INDEX, _INDEXES_MIN))
    free = max(free - indexes * _PER_INDEX, 2 * _SHARE_MIN)
    files = min(files_wanted, free // 2)
    return Shares(files, free - files, indexes)
