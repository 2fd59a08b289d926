"""Faults of the object store of tiered storage: it is away, fails now and then, or loses a manifest."""

from __future__ import annotations

from forebay.operations.manifest_rebuild import Wishes, rebuild_manifests
from forebay.sim.faults.scene import Fault, Scene, Undo
from forebay.sim.world.objects import SimObjects
from forebay.tiers.object_store import ObjectStoreError
from forebay.wire.tiers.layout import MANIFEST
from forebay.wire.tiers.manifest import decode_manifest

_FOR_EVER = float("inf")
_SLOW_S_MAX = 8.0
_LATE_S = 5.0
_AGAIN_S = 0.5


class ObjectFaults:
    def __init__(self, scene: Scene, objects: SimObjects) -> None:
        self._scene = scene
        self._objects = objects

    def staged_kinds(self) -> list[tuple[Fault, int]]:
        """Faults of single plots."""
        return [
            (self._objects_away, 4),
            (self._objects_fail, 4),
            (self._objects_slow, 4),
            (self._manifest_lost, 4),
        ]

    def _objects_away(self) -> Undo | None:
        self._scene.note("the object store is away")
        self._objects.away_until = _FOR_EVER
        return self._objects_back

    def _objects_back(self) -> None:
        self._objects.away_until = 0.0

    def _objects_fail(self) -> Undo | None:
        """Every other request fails, or is carried out without an answer; listings are late."""
        self._scene.note("the object store fails now and then")
        self._objects.failure_rate, self._objects.lists_late_s = 0.5, _LATE_S
        return self._objects_work

    def _manifest_lost(self) -> Undo | None:
        """Somebody deletes a manifest. It is made anew from the segments some time later."""
        objects = self._objects
        found = [
            key for key in sorted(objects.objects) if key.endswith(f"/{MANIFEST}") and self._is_full(key)
        ]
        if not found:
            return None
        key = self._scene.chance.choice(found)
        self._scene.note(f"somebody deletes {key}")
        objects.hidden[key] = decode_manifest(objects.objects[key][0]).next_offset
        with objects.calm():
            objects.delete(key)
        return self._manifests_made_anew

    def _is_full(self, key: str) -> bool:
        """True if it lists a segment that everybody finds there, however late listings are."""
        stored = self._objects.objects
        long_ago = self._scene.world.now - _LATE_S
        return any(stored[each.key][2] < long_ago for each in decode_manifest(stored[key][0]).segments)

    def _manifests_made_anew(self) -> None:
        """Somebody tries until it works, also while the object store fails; listings tell all by then."""
        objects, is_done = self._objects, True
        try:
            with objects.calm() if self._scene.healed else objects.listing_at_once():
                for rebuilt in rebuild_manifests(objects, Wishes(write=True)):
                    what = "could not be" if rebuilt.failed else "is"
                    self._scene.note(f"the manifest of {rebuilt.topic}-{rebuilt.partition} {what} made anew")
                    is_done = is_done and not rebuilt.failed
        except ObjectStoreError:
            is_done = False
        if not is_done:
            self._scene.later(_AGAIN_S, self._manifests_made_anew)
        made = {key for key in objects.hidden if key in objects.objects}
        objects.rebuilt |= made
        for key in made:
            del objects.hidden[key]

    def _objects_slow(self) -> Undo | None:
        self._scene.note("the object store is slow to those who copy")
        self._objects.slow_s_max = _SLOW_S_MAX
        return self._objects_fast

    def _objects_fast(self) -> None:
        self._objects.slow_s_max = 0.0

    def _objects_work(self) -> None:
        self._objects.failure_rate = self._objects.lists_late_s = 0.0
