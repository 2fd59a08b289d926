"""How long the event loop was blocked, measured by how late a timer fires, and which request did it.

A blocked loop serves no client, and after a quarter of the lease the broker risks losing its lease. Work that
takes this long belongs in a thread. (A machine that is short of CPU, or a stopped process, looks the same.)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from forebay.broker.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_PARTS_OF_LEASE = 4


class StallWatch:
    def __init__(self, metrics: Metrics, *, lease_ttl_ms: int, alarm_ms: int) -> None:
        """`alarm_ms`: a request that blocks the loop for this long is reported."""
        self._metrics = metrics
        self.alarm_s = alarm_ms / 1000
        self._stall_ms_max = lease_ttl_ms // _PARTS_OF_LEASE
        self._longest_request: Mapping[str, object] = {}
        """Of those that were reported since the timer fired."""
        self._longest_request_s = 0.0
        self.longest_ms = 0

    def woken(self, late_s: float) -> None:
        """A timer of the loop came late by this much."""
        late_ms = int(late_s * 1000)
        self.longest_ms = max(self.longest_ms, late_ms)
        if late_ms > self._stall_ms_max:
            self._metrics.loop_stalls += 1
            log.warning("the event loop stood still", extra={"ms": late_ms, **self._cause()})
        self._longest_request_s = 0.0

    def _cause(self) -> dict[str, object]:
        """The request that took longest meanwhile, if one took long."""
        if not self._longest_request_s:
            return {}
        return {"request_ms": int(self._longest_request_s * 1000), **self._longest_request}

    def caused_by(self, request: Mapping[str, object], seconds: float) -> None:
        """The loop was blocked for this time by one request, or by one step of it. The log writes a few lines
        of a kind per second at most, and how many it left out."""
        self._metrics.requests_stalling += 1
        if seconds > self._longest_request_s:
            self._longest_request, self._longest_request_s = request, seconds
        log.warning("a request blocked the event loop", extra={"ms": int(seconds * 1000), **request})
