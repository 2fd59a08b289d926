"""How fast replicas that are not in sync may be filled: a token bucket for each direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.config import ReplicationConfig

_BURST_S = 1.0


class Throttle:
    """`rate` in bytes per second; None means no limit."""

    def __init__(self, rate: int | None) -> None:
        self.rate = rate
        self._debt = 0.0
        self._seen_at = 0.0

    def wait_s(self, size: int, now_s: float) -> float:
        """How long to wait after `size` bytes have come, so that the rate is kept over a second."""
        if not self.rate:
            return 0.0
        self._debt = max(self._debt - (now_s - self._seen_at) * self.rate, 0.0) + size
        self._seen_at = now_s
        return max(self._debt / self.rate - _BURST_S, 0.0)


class Throttles:
    """One for what this broker takes from leaders, one for what it gives to followers."""

    def __init__(self, config: ReplicationConfig) -> None:
        self.taking = Throttle(config.follower_throttle)
        self.giving = Throttle(config.leader_throttle)

    def configure(self, config: ReplicationConfig) -> None:
        self.taking.rate, self.giving.rate = config.follower_throttle, config.leader_throttle
