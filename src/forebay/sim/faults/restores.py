"""A store that is restored: everything is stopped, a backup is restored, everything is started."""

from __future__ import annotations

from functools import partial

from forebay.sim.faults.scene import Fault, Scene
from forebay.sim.world.node import SimNode
from forebay.sim.world.store_contents import Contents

_AGE_S = (0.5, 9.0)
"""How old a backup is when everything is stopped."""
_STOP_S = 2.0
_STOP_CHANCE = 0.4
_START_S = (0.0, 8.0)


class RestoreFaults:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._chance = scene.chance
        self._backup: Contents | None = None

    def staged_kinds(self) -> list[tuple[Fault, int]]:
        return [(self._restore_store, 20)]

    def _restore_store(self) -> None:
        """Make a backup, which is restored some time later."""
        if self._backup is None:
            self._scene.note("a backup of the store is made")
            self._backup = self._scene.store.backup()
            self._scene.world.after(self._chance.uniform(*_AGE_S), self._stop_all)

    def _stop_all(self) -> None:
        scene = self._scene
        if scene.healed:
            self._backup = None
            return
        for node in scene.nodes:
            scene.kept_down.add(node.node_id)
            if self._chance.random() < _STOP_CHANCE:
                node.stop()
        scene.later(_STOP_S, self._restore)

    def _restore(self) -> None:
        """End everything that has not stopped; then brokers come back in any order."""
        scene, backup = self._scene, self._backup
        assert backup is not None
        for node in scene.nodes:
            node.kill()
        scene.store.restore(backup)
        scene.note(f"the store is restored at revision {backup.keyspace.revision}")
        self._backup = None
        for node in scene.nodes:
            scene.later(self._chance.uniform(*_START_S), partial(self._start, node))

    def _start(self, node: SimNode) -> None:
        self._scene.kept_down.discard(node.node_id)
        node.start()
