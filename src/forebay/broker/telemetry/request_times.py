"""How many requests came, and how long they took: a histogram for each API.

Reading the clock and searching the bucket costs more than a small Produce request may cost. So of
Produce and Fetch, while there are many, one in 64 is measured on average. The intervals vary: of clients
that take turns, always the same one would be measured otherwise. A measured request counts for all since the
last one. Where few come, and of all other APIs, each is measured.

A request is measured from when it is read to when its answer is ready to be sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from forebay.wire.api_keys import ApiKey

BOUNDS_MS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4)

_SAMPLED = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
INTERVAL_MAX = 127
"""Intervals are from 1 to this, 64 on average."""
_RARE_S = 0.01
"""After this time without one, the next two requests are measured."""


class Histogram:
    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0.0

    def add(self, milliseconds: float, weight: int) -> None:
        self.counts[bisect_left(BOUNDS_MS, milliseconds)] += weight
        self.sum_ms += milliseconds * weight


class ApiTimes:
    """The requests of one API. Its handler adds each to `count`; `measured_from` says which are measured."""

    __slots__ = (
        "_is_sampled",
        "_measured_s",
        "_measured_to",
        "_random",
        "count",
        "from_brokers",
        "measured_from",
        "times",
    )

    def __init__(self, *, is_sampled: bool) -> None:
        self.count = 0
        self.measured_from = 1
        """The next request that is measured, by its number."""
        self._measured_to = 0
        self._measured_s = -_RARE_S
        self._is_sampled = is_sampled
        self._random = 1
        self.times = Histogram()
        self.from_brokers = Histogram()
        """Those of followers, of the API Fetch: they wait for messages nearly all the time."""

    def begin(self, now_s: float) -> int:
        """Measure the present request; for how many it counts."""
        count = self.count
        weight, self._measured_to = count - self._measured_to, count
        are_many = self._is_sampled and now_s - self._measured_s < _RARE_S
        self._measured_s = now_s
        self.measured_from = count + (self._interval() if are_many else 1)
        return weight

    def _interval(self) -> int:
        self._random = (self._random * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        return 1 + (self._random >> 16) % INTERVAL_MAX


class Measurement:
    """A request that is being measured."""

    __slots__ = ("_began_s", "_now", "_weight", "histogram")

    def __init__(self, histogram: Histogram, weight: int, began_s: float, now: Callable[[], float]) -> None:
        self.histogram = histogram
        self._weight = weight
        self._began_s = began_s
        self._now = now

    def end(self) -> None:
        self.histogram.add(max(self._now() - self._began_s, 0.0) * 1000, self._weight)


class RequestTimes:
    """Those of all APIs that were asked for."""

    __slots__ = ("by_api",)

    def __init__(self) -> None:
        self.by_api: dict[int, ApiTimes] = {}

    def of(self, api_key: int) -> ApiTimes:
        found = self.by_api.get(api_key)
        if found is None:
            found = self.by_api[api_key] = ApiTimes(is_sampled=api_key in _SAMPLED)
        return found

    def count_of(self, api_key: int) -> int:
        found = self.by_api.get(api_key)
        return 0 if found is None else found.count
