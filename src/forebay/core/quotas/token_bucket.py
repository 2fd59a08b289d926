"""A rate over time, as a bucket of tokens: it fills at the allowed rate, and what is used is taken out.

A bucket is full at first, so that a client may use at once what it would be allowed in `burst_s`. Below zero
the client has used more than its quota, and has to wait until the bucket is back at zero. Over any time t a
client that waits as it is told uses at most `bound * (burst_s + t)` and the last amount it took.

Kafka has this for partitions (KIP-599), and for the rest a mean over windows. The mean forgets all that is
older than its windows, and a client that waited is told to wait again; a bucket has neither fault.
"""

from __future__ import annotations

_ROUNDING = 1e-9


class TokenBucket:
    __slots__ = ("_at", "_debt_s_max", "_tokens", "bound", "capacity")

    def __init__(self, bound: float, now: float, *, burst_s: float, debt_s_max: float) -> None:
        """`bound`: per second. `debt_s_max`: the longest that anybody is made to wait; what is used beyond it
        is forgotten."""
        self.bound = bound
        self.capacity = bound * burst_s
        self._debt_s_max = debt_s_max
        self._tokens = self.capacity
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Count what was used; how long to wait before more is."""
        self._fill(now)
        self._tokens = max(self._tokens - amount, -self.bound * self._debt_s_max)
        return self.wait_s(now)

    def take_if_room(self, amount: float, now: float) -> tuple[bool, float]:
        """Like `take`, but only if the bucket holds that much. Whether it was taken, and how long to wait.

        An amount that is larger than the bucket is taken when the bucket is full: else it never would be.
        """
        self._fill(now)
        missing = min(amount, self.capacity) - self._tokens
        if missing > _ROUNDING * self.capacity:
            return False, missing / self.bound
        return True, self.take(amount, now)

    def give_back(self, amount: float) -> None:
        """What was taken was not used."""
        self._tokens = min(self._tokens + amount, self.capacity)

    def wait_s(self, now: float) -> float:
        """How long to wait until nothing is owed."""
        self._fill(now)
        return max(-self._tokens / self.bound, 0.0)

    def is_full(self, now: float) -> bool:
        """Whether it is as good as a new one."""
        self._fill(now)
        return self._tokens >= self.capacity

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._tokens + (now - self._at) * self.bound, self.capacity)
            self._at = now
