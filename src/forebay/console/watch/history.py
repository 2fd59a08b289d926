"""Figures over time, for plots: as many points as an hour has, in arrays of fixed length.

Thousands of topics have a series each, so a series is an array of floats in a ring that all of them share.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence

_NOTHING = math.nan


class History:
    """Not thread-safe: the watcher that writes it makes copies for readers under its lock."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._times = array("d", [_NOTHING]) * capacity
        self._series: dict[str, array[float]] = {}
        self._last_told: dict[str, int] = {}
        self._count = 0

    def add(self, time_s: float, values: Mapping[str, float]) -> None:
        """One more point. A series without a value has a gap there."""
        at = self._count % self._capacity
        self._count += 1
        self._times[at] = time_s
        self._set(at, values)
        for name in [name for name in self._series if name not in values]:
            self._series[name][at] = _NOTHING
            if self._count - self._last_told[name] >= self._capacity:
                del self._series[name], self._last_told[name]

    def complete(self, values: Mapping[str, float]) -> None:
        """More figures of the last point, which became known after it."""
        if self._count:
            self._set((self._count - 1) % self._capacity, values)

    def _set(self, at: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if name not in self._series:
                self._series[name] = array("f", [_NOTHING]) * self._capacity
            self._series[name][at] = value
            self._last_told[name] = self._count

    def names(self) -> list[str]:
        return list(self._series)

    def read(self, names: Sequence[str]) -> dict[str, list[float | None]]:
        """The times as `t`, and the series with these names, oldest first; None where nothing is known."""
        length = min(self._count, self._capacity)
        first = self._count - length
        places = [at % self._capacity for at in range(first, self._count)]
        found: dict[str, list[float | None]] = {"t": [self._times[at] for at in places]}
        for name in names:
            series = self._series.get(name)
            found[name] = [None if series is None else _known(series[at]) for at in places]
        return found


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)
