"""How long to wait after trouble, so that trouble that lasts costs little."""

from __future__ import annotations

_PAUSE_S = 1.0
_PAUSE_S_MAX = 60.0


class Patience:
    """Twice as long each time, until it went well for longer than the longest pause."""

    __slots__ = ("_pause_s",)

    def __init__(self) -> None:
        self._pause_s = _PAUSE_S

    def pause_s(self, went_well_s: float) -> float:
        """After trouble. `went_well_s`: for how long there had been none."""
        if went_well_s > _PAUSE_S_MAX:
            self._pause_s = _PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _PAUSE_S_MAX)
        return pause_s
