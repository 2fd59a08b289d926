"""A rate over time, as a bucket of tokens: it fills at the allowed rate, and usage is taken out.

A bucket is full at first, so a client may use at once what it would be allowed in `burst_s`. Below zero the
client has used more than its quota, and has to wait until the bucket is back at zero. Over any time t a
client that waits as told uses at most `bound * (burst_s + t)` plus the last amount it took.

Kafka uses token buckets for partitions (KIP-599), and a mean over windows for the rest. The mean forgets
everything older than its windows, and a client that waited is told to wait again; a bucket has neither fault.
"""

from __future__ import annotations

from forebay.core.quotas.turns import YIELD_S, Turns

_ROUNDING = 1e-9
_SHARE_S = 1.0


class TokenBucket:
    __slots__ = ("_at", "_debt_s_max", "_tokens", "_turns", "bound", "capacity")

    def __init__(self, bound: float, now: float, *, burst_s: float, debt_s_max: float) -> None:
        """`bound`: per second. `debt_s_max`: the longest time that a client is made to wait; usage beyond it
        is forgotten."""
        self.bound = bound
        self.capacity = bound * burst_s
        self._debt_s_max = debt_s_max
        self._tokens = self.capacity
        self._at = now
        self._turns: Turns | None = None  # created when a client is refused

    def take(self, amount: float, now: float) -> float:
        """Count usage; returns how long to wait before more."""
        self._fill(now)
        self._tokens = max(self._tokens - amount, -self.bound * self._debt_s_max)
        return self.wait_s(now)

    def take_if_room(self, amount: float, now: float) -> tuple[bool, float]:
        """Like `take`, but only if the bucket holds that much. True if it was taken, and how long to wait.
        Returns True if it was taken, and how long to wait.

        An amount that is larger than the bucket is taken when the bucket is full: otherwise it never would
        be.
        """
        self._fill(now)
        missing = min(amount, self.capacity) - self._tokens
        if missing > _ROUNDING * self.capacity:
            return False, missing / self.bound
        return True, self.take(amount, now)

    def take_turn(self, who: int, amount: float, now: float) -> tuple[bool, float]:
        """Like `take`, but not while there is a debt, nor while others have waited for longer. Returns True
        if it was taken, and how long to wait.

        The size of the amount does not matter: otherwise small amounts of some would keep the bucket too
        empty for the large ones of others.
        """
        self._fill(now)
        turns = self._turns
        wait_s = 0.0
        if self._tokens < -_ROUNDING * self.capacity:
            wait_s = -self._tokens / self.bound
        elif turns is not None and not turns.has_turn(who, now):
            wait_s = YIELD_S
        if wait_s:
            turns = self._turns = turns or Turns()
            turns.refuse(who, now + wait_s)
            return False, wait_s
        if turns is not None:
            turns.serve(who)
        return True, self.take(amount, now)

    def share(self, now: float) -> float:
        """The most to take in one turn: what the bucket holds, or a second's worth if that is more."""
        self._fill(now)
        return min(max(self._tokens, self.bound * _SHARE_S), self.capacity)

    def give_back(self, amount: float) -> None:
        """Return tokens that were taken and not used."""
        self._tokens = min(self._tokens + amount, self.capacity)

    def wait_s(self, now: float) -> float:
        """How long to wait until there is no debt."""
        self._fill(now)
        return max(-self._tokens / self.bound, 0.0)

    def is_full(self, now: float) -> bool:
        """True if it is equivalent to a new one."""
        self._fill(now)
        return self._tokens >= self.capacity

    def level(self, now: float) -> float:
        """1 if it is full, below 0 if there is a debt."""
        self._fill(now)
        return self._tokens / self.capacity

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._tokens + (now - self._at) * self.bound, self.capacity)
            self._at = now
