"""How long to wait after trouble, so that trouble that lasts costs little."""

from __future__ import annotations

_PAUSE_S = 1.0
_PAUSE_S_MAX = 60.0


class Backoff:
    """Twice as long each time, until it went well for longer than the last pause was."""

    __slots__ = ("_last_s",)

    def __init__(self) -> None:
        self._last_s = 0.0

    def pause_s(self, went_well_s: float) -> float:
        """After trouble. `went_well_s`: for how long there had been none."""
        grows = went_well_s <= self._last_s
        self._last_s = min(2 * self._last_s, _PAUSE_S_MAX) if grows else _PAUSE_S
        return self._last_s
