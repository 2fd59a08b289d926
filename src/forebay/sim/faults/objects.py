"""Faults of the object store of tiered storage: away for a while, or failing now and then."""

from __future__ import annotations

from forebay.sim.faults.scene import Fault, Scene, Undo
from forebay.sim.world.objects import SimObjects

_FOR_EVER = float("inf")
_SLOW_S_MAX = 8.0


class ObjectFaults:
    def __init__(self, scene: Scene, objects: SimObjects) -> None:
        self._scene = scene
        self._objects = objects

    def staged_kinds(self) -> list[tuple[Fault, int]]:
        """Faults of single plots."""
        return [(self._objects_away, 4), (self._objects_fail, 4), (self._objects_slow, 4)]

    def _objects_away(self) -> Undo | None:
        self._scene.note("the object store is away")
        self._objects.away_until = _FOR_EVER
        return self._objects_back

    def _objects_back(self) -> None:
        self._objects.away_until = 0.0

    def _objects_fail(self) -> Undo | None:
        """Every other request fails, or is carried out without an answer; listings are late."""
        self._scene.note("the object store fails now and then")
        self._objects.failure_rate, self._objects.lists_late_s = 0.5, 5.0
        return self._objects_work

    def _objects_slow(self) -> Undo | None:
        self._scene.note("the object store is slow to those who copy")
        self._objects.slow_s_max = _SLOW_S_MAX
        return self._objects_fast

    def _objects_fast(self) -> None:
        self._objects.slow_s_max = 0.0

    def _objects_work(self) -> None:
        self._objects.failure_rate = self._objects.lists_late_s = 0.0
