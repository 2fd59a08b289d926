"""A TCP proxy that swallows answers: the broker has done what it was asked, and the client never hears of it.

Only answers to Produce requests are swallowed, and only while `swallowing` is set; the connection is reset in
their place. Everything else passes, so that the client can still reach its coordinators.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

from support.faults.proxy import Proxy, Rule

_PRODUCE = 0
_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_ANSWER = struct.Struct(">i")


class SwallowingProxy(Proxy):
    def __init__(self) -> None:
        self.swallowing = False
        self.swallowed = threading.Semaphore(0)
        """Released for every answer that was swallowed."""
        super().__init__()

    def rule(self) -> Rule:
        requests, answers = _Frames(), _Frames()
        produced: set[int] = set()

        def passing(chunk: bytes, to_broker: bool) -> int:
            if to_broker:
                for frame in requests.take(chunk):
                    api_key, _, correlation_id = _REQUEST.unpack_from(frame)
                    if api_key == _PRODUCE:
                        produced.add(correlation_id)
                return len(chunk)
            for frame in answers.take(chunk):
                if _ANSWER.unpack_from(frame)[0] in produced and self.swallowing:
                    self.swallowed.release()
                    return 0
            return len(chunk)

        return passing


class _Frames:
    """Whole frames out of the pieces in which one direction of a connection arrives."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> Iterator[bytes]:
        self._rest += chunk
        while len(self._rest) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                return
            frame, self._rest = self._rest[_SIZE.size : end], self._rest[end:]
            yield frame
