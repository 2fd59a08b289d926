"""The clock of a simulated machine, which faults can set."""

from __future__ import annotations

from forebay.sim.world.virtual_time import World

_EPOCH_MS = 1_700_000_000_000


class SimClock:
    """Wall time of one machine: off by a little from the start, and it can jump."""

    def __init__(self, world: World, offset_ms: int) -> None:
        self._world = world
        self._offset_ms = offset_ms
        self._latest_ms = 0

    @property
    def offset_ms(self) -> int:
        return self._offset_ms

    def set(self, offset_ms: int) -> None:
        self._latest_ms = self.latest_ms()
        self._offset_ms = offset_ms

    def latest_ms(self) -> int:
        """The latest time that it has ever shown."""
        return max(self._latest_ms, self.now_ms())

    def now_ms(self) -> int:
        return _EPOCH_MS + int(self._world.now * 1000) + self._offset_ms

    def monotonic(self) -> float:
        return self._world.now

    def thread_cpu(self) -> float:
        """Nobody waits for a core here."""
        return self._world.now

    def core_wait(self, thread: int) -> float:  # noqa: ARG002
        return 0.0

    def rest(self, seconds: float) -> None:
        """Threads of this world do each piece of work at once (see `SimThreads`)."""
