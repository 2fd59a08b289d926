"""A TCP proxy that holds back the metadata a member of a share group asks for when it has its partitions.

It comes when the member leaves: librdkafka 2.16, which is being closed by then, waits for ever.
"""

from __future__ import annotations

import struct
import threading

from support.faults.frames import Frames
from support.faults.proxy import Proxy, Rule

_METADATA = 3
SHARE_GROUP_HEARTBEAT, CONSUMER_GROUP_HEARTBEAT = 76, 68
_REQUEST = struct.Struct(">hhi")
_ANSWER = struct.Struct(">i")
_HOLD_SECONDS_MAX = 120.0
_AFTER_LEAVING_SECONDS = 1.0
"""Time for the client to begin its close when its leave is on its way."""


class HoldingProxy(Proxy):
    def __init__(self, heartbeat: int) -> None:
        """`heartbeat`: the API key of the heartbeats of the group's protocol."""
        self._heartbeat = heartbeat
        self.has_held = threading.Event()
        """Set when a member has its partitions, and waits for their metadata."""
        super().__init__()

    def rule(self) -> Rule:
        requests, answers = Frames(), Frames()
        heartbeats = 0
        held: set[int] = set()
        leaving = threading.Event()

        def passing(chunk: bytes, to_broker: bool) -> int:
            nonlocal heartbeats
            if to_broker:
                for frame in requests.take(chunk):
                    api_key, _, correlation_id = _REQUEST.unpack_from(frame)
                    if api_key == self._heartbeat:
                        heartbeats += 1
                        if held:
                            leaving.set()
                    elif api_key == _METADATA and heartbeats:
                        held.add(correlation_id)
                return len(chunk)
            for frame in answers.take(chunk):
                if _ANSWER.unpack_from(frame)[0] in held and not leaving.is_set():
                    self.has_held.set()
                    leaving.wait(_HOLD_SECONDS_MAX)
                    threading.Event().wait(_AFTER_LEAVING_SECONDS)
            return len(chunk)

        return passing
