"""The faults of a story: what goes wrong, when and for how long. At the end every fault is undone.

No system survives some losses, and the story leaves them out: while one machine has lost power, its disk or
part of it and is not yet back in sync, no other does. docs/guarantees.md says what the cluster promises then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from forebay.sim.faults.disks import DiskFaults
from forebay.sim.faults.links import LinkFaults
from forebay.sim.faults.machines import MachineFaults
from forebay.sim.faults.moves import ENDING
from forebay.sim.faults.objects import ObjectFaults
from forebay.sim.faults.restores import RestoreFaults
from forebay.sim.faults.scene import LOOK_S, Fault, Scene
from forebay.sim.faults.store_values import StoreValueFaults
from forebay.sim.faults.strangers import StrangerFaults
from forebay.sim.world.node import SimNode
from forebay.sim.world.objects import SimObjects

_SET_CLOCK_CHANCE = 0.7


class Faults:
    def __init__(self, scene: Scene, objects: SimObjects, wanted: Sequence[str] | None = None) -> None:
        """`wanted`: the kinds of faults that the story has; if there are none, chance weighs them."""
        self.counts: Counter[str] = Counter()
        self._scene = scene
        self._machines, links, disks = MachineFaults(scene), LinkFaults(scene), DiskFaults(scene)
        kinds: list[tuple[Fault, int]] = [
            *self._machines.kinds(),
            *links.kinds(),
            *disks.kinds(),
        ]
        if wanted is not None:
            kinds += self._machines.staged_kinds() + links.staged_kinds() + disks.staged_kinds()
            kinds += RestoreFaults(scene).staged_kinds()
            kinds += StoreValueFaults(scene).staged_kinds()
            kinds += StrangerFaults(scene).staged_kinds()
            kinds += ObjectFaults(scene, objects).staged_kinds()
            by_name = {_name(kind): (kind, weight) for kind, weight in kinds}
            self._kinds = [by_name[name] for name in wanted if name != ENDING]
            return
        # Every story prefers some faults: two rare ones meet more often among few kinds.
        self._kinds = [(kind, weight * scene.chance.choice((0, 1, 1, 4))) for kind, weight in kinds]
        self._kinds[0] = kinds[0]

    def step(self) -> None:
        """Let one more thing go wrong."""
        scene = self._scene
        if scene.rotten is None and scene.in_sync():
            scene.robbed = None
        kinds, weights = zip(*self._kinds, strict=True)
        fault: Fault = scene.chance.choices(kinds, weights)[0]
        undo = fault()
        self.counts[_name(fault).replace("_", " ")] += 1
        if undo is not None:
            scene.later(scene.a_while(), undo)

    def heal(self) -> None:
        """Undo all faults. Brokers whose disks failed are restarted, as an operator would do."""
        self._scene.world.note("heal", "")
        self._scene.undo_all()
        for node in self._scene.nodes:
            node.live_on()
            self._start_anew(node)
        self._machines.aftershock()

    @property
    def over(self) -> bool:
        """True if nothing goes wrong any more."""
        return self._scene.healed and self._machines.over

    def set_clocks(self) -> None:
        """Set wall time once more, on most machines, after all other faults: it must have no effect."""
        for node in self._scene.nodes:
            if self._scene.chance.random() < _SET_CLOCK_CHANCE:
                self._machines.set_clock_of(node)

    def set_clocks_right(self) -> None:
        """Correct the clocks: a message due in the future by a wrong clock would outlast the story."""
        for node in self._scene.nodes:
            node.clock.set(0)

    def _start_anew(self, node: SimNode) -> None:
        robbed = self._scene.robbed
        failed = node.disk_failed or node.lacks_partitions
        if failed and node is not robbed and self._scene.is_taken_for_alive(robbed):
            self._scene.world.after(LOOK_S, self._start_anew, node)
            return
        if failed:
            node.disk_failed = False
            node.kill()
        node.start()

    def keep_running(self) -> None:
        """Start brokers that ended by themselves, as a supervisor does."""
        scene = self._scene
        for node in scene.nodes:
            if node.gave_up and node.node_id not in scene.kept_down:
                node.start()
            elif scene.healed and node.lacks_partitions and node is not scene.rotten:
                self._start_anew(node)


def _name(fault: Fault) -> str:
    return str(getattr(fault, "__name__", "")).strip("_")
