"""Brokers that end in the middle of a move of dead letters or of copies, between two steps."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.core.topic_partition import TopicPartition
from forebay.sim.faults.scene import SHORT_S, Scene

_LOOK_S = 0.01
_STEP_S = (0.0, 0.02)
"""A move takes about this long."""
ENDING = "end_moves"
"""The name of this fault."""
_KILLS_MAX = 3
_KILL_CHANCE = 0.4


class MoveFaults:
    def __init__(
        self, scene: Scene, sources: Sequence[TopicPartition], journal: str, target: TopicPartition
    ) -> None:
        """`journal` is the topic to which movers write before they move."""
        self._scene = scene
        self._sources = sources
        self._journal = journal
        self._target = target
        self._chance = scene.world.chance("faults/moves")
        self._kills = 0

    def begin(self) -> None:
        self._look(self._written())

    def _look(self, before: int) -> None:
        """Check for new records: then a move is under way."""
        scene = self._scene
        if scene.healed or self._kills >= _KILLS_MAX:
            return
        found = self._written()
        if found > before and self._chance.random() < _KILL_CHANCE:
            self._kills += 1
            at = self._chance.choice([*self._sources, self._target])
            scene.world.after(self._chance.uniform(*_STEP_S), self._kill, at)
        scene.world.after(_LOOK_S, self._look, found)

    def _written(self) -> int:
        """The number of records in the journal and the target."""
        topic = self._scene.store.image().topics.get(self._journal)
        places = [self._target]
        if topic is not None:
            places += [(topic.name, state.index) for state in topic.partitions]
        replicas = [(node.partition(at), at) for at in places for node in self._scene.nodes]
        ends: dict[TopicPartition, int] = {}
        for replica, at in replicas:
            if replica is not None:
                ends[at] = max(ends.get(at, 0), replica.log.end_offset)
        return sum(ends.values())

    def _kill(self, at: TopicPartition) -> None:
        scene = self._scene
        node = scene.leader_of(at)
        if not scene.healed and node is not None and node.ready and scene.may_end(node):
            node.kill()
            scene.later(self._chance.uniform(*SHORT_S), node.start)
