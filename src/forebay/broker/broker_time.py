"""The three times of a broker: uptime for durations, wall time for timestamps, trusted time for ages."""

from __future__ import annotations

from forebay.clock import Clock, TrustedTime, monotonic_ms
from forebay.core.step import Now


class BrokerTime:
    __slots__ = ("_trusted", "clock", "now_ms")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.now_ms = clock.now_ms
        """Wall time, for the timestamps of messages."""
        self._trusted = TrustedTime(clock)

    def uptime_ms(self) -> int:
        """Time that only goes forward, for durations and deadlines."""
        return monotonic_ms(self.clock)

    def trusted_ms(self) -> int:
        """Wall time without sudden steps forward, for the age of what is stored."""
        return self._trusted.now_ms()

    def now(self) -> Now:
        """All three, as the machines of coordinators take them."""
        return Now(self.uptime_ms(), self.now_ms(), self.trusted_ms())
