"""The times of the messages that groups have not read yet: the lag in seconds, with few reads.

A message's time does not change, so it is read once for each offset. A group that stands still costs nothing;
one that goes on costs one message per lagging partition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from forebay.operations.client import Client
from forebay.operations.messages.log_offsets import Place
from forebay.operations.messages.message_ages import message_ages

Waiting = tuple[Place, int]
"""A partition, and the offset of the first message that a group has not read."""

_KEPT_MAX = 20_000
_ROUNDS_MAX = 4
"""A round reads one offset of each partition. What is left is read at the next request."""


class MessageTimes:
    """Thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._times: dict[Waiting, float] = {}

    def ages(self, wanted: Iterable[Waiting]) -> dict[Waiting, float]:
        """Seconds since each message was made; nothing for those that could not be read in time."""
        missing = {each for each in wanted if each not in self._times}
        known = {each: self._times[each] for each in wanted if each in self._times}
        for _ in range(_ROUNDS_MAX):
            offsets = dict(sorted(missing))
            if not offsets:
                break
            found = self._read(offsets)
            known |= found
            missing -= set(offsets.items())
        now_s = time.time()
        return {each: max(0.0, round(now_s - made_s, 1)) for each, made_s in known.items()}

    def _read(self, offsets: dict[Place, int]) -> dict[Waiting, float]:
        ages = message_ages(self._client, offsets)
        now_s = time.time()
        found = {(place, offsets[place]): now_s - age for place, age in ages.items()}
        with self._lock:
            if len(self._times) + len(found) > _KEPT_MAX:
                self._times.clear()
            # An age of nothing means that there is no message yet: the next one may come any time.
            self._times |= {(place, offsets[place]): now_s - age for place, age in ages.items() if age}
        return found
