"""How long to wait after a failure, so that a lasting failure costs little."""

from __future__ import annotations

_PAUSE_S = 1.0
_PAUSE_S_MAX = 60.0


class Backoff:
    """Doubles the pause each time, until all went well for longer than the last pause."""

    __slots__ = ("_last_s",)

    def __init__(self) -> None:
        self._last_s = 0.0

    def pause_s(self, went_well_s: float) -> float:
        """The pause after a failure. `went_well_s`: the time since the failure before."""
        grows = went_well_s <= self._last_s
        self._last_s = min(2 * self._last_s, _PAUSE_S_MAX) if grows else _PAUSE_S
        return self._last_s
