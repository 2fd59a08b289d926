"""A TCP proxy that cuts connections at random points: in the middle of a frame, between a request and its
response, before the first byte.

Each connection is given a number of bytes to carry, drawn from a seeded source; when they are used up, both
sides get a reset. After `cuts` of these the proxy lets everything through, so that a test ends.
"""

from __future__ import annotations

import random
import threading

from support.faults.proxy import Proxy, Rule


class CuttingProxy(Proxy):
    """Set `cutting` to begin."""

    def __init__(self, *, seed: int, cuts: int, bytes_min: int, bytes_max: int) -> None:
        self.cutting = False
        self.cuts_done = 0
        self._chance = random.Random(seed)
        self._cuts_max = cuts
        self._range = (bytes_min, bytes_max)
        self._counting = threading.Lock()
        super().__init__()

    def rule(self) -> Rule:
        left = self._chance.randint(*self._range)

        def passing(chunk: bytes, _: bool) -> int:
            nonlocal left
            size = len(chunk)
            with self._counting:
                allowed = min(size, left)
                left -= allowed
                return allowed if allowed < size and self._may_cut() else size

        return passing

    def _may_cut(self) -> bool:
        if not self.cutting or self.cuts_done == self._cuts_max:
            return False
        self.cuts_done += 1
        return True
