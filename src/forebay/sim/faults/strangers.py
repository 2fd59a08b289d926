"""Strangers whose requests take time: a broker's loop is busy with them, again and again, or once for long.

Each request takes one turn of the loop, and other clients are served between the turns. So a siege of
requests that each take less than a part of the lease makes everything late, and ends nothing. A broker has to
prevent requests that take longer than the lease (decision 0047). If one happens all the same, the broker
wakes up like a paused one: others have continued without it, and it must not acknowledge anything.
"""

from __future__ import annotations

from forebay.sim.faults.scene import Fault, Scene, Undo
from forebay.sim.world.node import SimNode

SHORT_PART, LONG_PARTS = 0.25, (1.1, 2.5)
"""The time of a request, in leases: the maximum during a siege, and that of one beyond all bounds."""
_LEASE_PARTS_OF_STALL = 4
_BETWEEN_S = (0.0, 0.05)


class StrangerFaults:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._chance = scene.chance
        self._besieged: set[int] = set()

    def staged_kinds(self) -> list[tuple[Fault, int]]:
        """The faults that occur only in plots that ask for them."""
        return [(self._besiege, 10), (self._busy_loop, 4)]

    def _besiege(self) -> Undo | None:
        """One request after the other, on one broker or on all, until it is over."""
        some = self._scene.nodes if self._chance.random() < 0.5 else [self._scene.victim()]
        fresh = [node for node in some if node.node_id not in self._besieged]
        for node in fresh:
            self._scene.note(f"{node.host} is besieged")
            self._besieged.add(node.node_id)
            self._next_request(node)
        return lambda: self._besieged.difference_update(node.node_id for node in fresh)

    def _next_request(self, node: SimNode) -> None:
        if node.node_id not in self._besieged:
            return
        seconds = self._chance.random() * SHORT_PART * self._lease_s(node)
        node.burden(seconds)
        self._scene.world.after(seconds + self._chance.uniform(*_BETWEEN_S), self._next_request, node)

    def _busy_loop(self) -> None:
        """One request that blocks the broker until after its lease has ended."""
        node = self._scene.victim()
        seconds = self._chance.uniform(*LONG_PARTS) * self._lease_s(node)
        self._scene.note(f"a request takes {seconds:.1f} s of {node.host}")
        node.burden(seconds)

    def _lease_s(self, node: SimNode) -> float:
        return node.stall_s_max * _LEASE_PARTS_OF_STALL
