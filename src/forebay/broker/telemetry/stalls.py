"""How long the event loop was blocked, measured by how late a timer fires.

A blocked loop serves no client, and after a quarter of the lease the broker risks losing its lease. Work that
takes this long belongs in a thread. (A machine that is short of CPU, or a stopped process, looks the same.)
"""

from __future__ import annotations

import logging

from forebay.broker.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_PARTS_OF_LEASE = 4


class StallWatch:
    def __init__(self, metrics: Metrics, *, lease_ttl_ms: int) -> None:
        self._metrics = metrics
        self._stall_ms_max = lease_ttl_ms // _PARTS_OF_LEASE
        self.longest_ms = 0

    def woken(self, late_s: float) -> None:
        """A timer of the loop came late by this much."""
        late_ms = int(late_s * 1000)
        self.longest_ms = max(self.longest_ms, late_ms)
        if late_ms > self._stall_ms_max:
            self._metrics.loop_stalls += 1
            log.warning("the event loop stood still", extra={"ms": late_ms})
