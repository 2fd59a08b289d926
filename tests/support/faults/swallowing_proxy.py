"""A TCP proxy that swallows answers: the broker has done what it was asked, and the client never hears of it.

Only answers to Produce requests are swallowed, and only while `swallowing` is set; the connection is reset in
their place. Everything else passes, so that the client can still reach its coordinators.
"""

from __future__ import annotations

import struct
import threading

from support.faults.frames import Frames
from support.faults.proxy import Proxy, Rule

_PRODUCE = 0
_REQUEST = struct.Struct(">hhi")
_ANSWER = struct.Struct(">i")


class SwallowingProxy(Proxy):
    def __init__(self) -> None:
        self.swallowing = False
        self.swallowed = threading.Semaphore(0)
        """Released for every answer that was swallowed."""
        super().__init__()

    def rule(self) -> Rule:
        requests, answers = Frames(), Frames()
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
