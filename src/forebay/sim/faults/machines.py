"""Processes that end or pause, machines that lose power or their disk, clocks that are set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from forebay.core.cluster.partition_state import PartitionState
from forebay.core.topic_partition import TopicPartition
from forebay.sim.faults.scene import LOOK_S, SHORT_S, Fault, Scene, Undo
from forebay.sim.world.node import SimNode
from forebay.sim.world.places import JOBS, KEYED, SURE

_CHANGES_BEFORE_DEATH_MAX = 30
_ALONE_S_MAX = 14.0
_BETWEEN_S = (0.05, 2.0)
_SOON_S = (0.0, 1.0)
_BACK_S = (1.5, 5.0)
_AFTER_IT_S = (0.5, 6.0)
_ALONE_S = (1.0, 4.0)
_HEIR_DIES_CHANCE = 0.5
_HEIR_AWAY_S = (5.0, 15.0)
_STOP_CHANCE = 0.7
_NEWCOMER_S_MAX = 10.0
_LOOK_SOON_S = 0.01
_COPIED_MIN = 10
_AFTERSHOCK_CHANCE = 0.6
_AFTER_COPYING_S = (0.0, 0.05)
"""Mostly before the copied messages are synced."""
_CLOCK_OFF_MS = (-1_700_000, 1_700_000)
"""No two differ by an hour: with more, brokers refuse each other's timestamps, as configured."""


class MachineFaults:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._chance = scene.chance
        self._last: SimNode | None = None
        """The broker that is left when all others were killed."""
        self._awaited = 0
        """The number of brokers that will be killed when they have caught up."""

    def kinds(self) -> list[tuple[Fault, int]]:
        return [
            (self._kill, 6),
            (self._kill_in_the_act, 4),
            (self._kill_a_newcomer, 4),
            (self._stop, 3),
            (self._lose_power, 5),
            (self._lose_disk, 1),
            (self._pause, 5),
            (self._set_clock, 2),
            (self._abandon_and_rob, 4),
        ]

    def staged_kinds(self) -> list[tuple[Fault, int]]:
        """The faults that occur only in plots that ask for them."""
        return [(self._rob_and_leave, 10), (self._leave_one_behind, 10)]

    def _kill(self) -> Undo | None:
        node = self._scene.mortal()
        if node is None:
            return None
        node.kill()
        return node.start

    def _kill_in_the_act(self) -> Undo | None:
        node = self._scene.mortal()
        if node is None:
            return None
        node.kill_after(self._chance.randint(0, _CHANGES_BEFORE_DEATH_MAX))
        return node.start

    def _kill_a_newcomer(self) -> None:
        """Kill a broker that has just caught up: it has copied much, and synced little of it."""
        at = KEYED if self._chance.random() < 0.6 else self._chance.choice(SURE)
        self._awaited += 1
        self._await_newcomer(at, set(), self._scene.world.now + _NEWCOMER_S_MAX)

    def aftershock(self) -> None:
        """One more kill after the end of all faults, while brokers that were away catch up."""
        if self._chance.random() < _AFTERSHOCK_CHANCE:
            self._kill_a_newcomer()

    @property
    def over(self) -> bool:
        """True if no broker will be killed any more."""
        return not self._awaited

    def _await_newcomer(self, at: TopicPartition, behind: set[int], deadline: float) -> None:
        scene = self._scene
        missing = scene.missing(at)
        newcomer = next((node for node in behind if missing.get(node) == 0), None)
        if newcomer is not None:
            delay_s = self._chance.uniform(*_AFTER_COPYING_S)
            scene.world.after(delay_s, self._kill_newcomer, scene.nodes[newcomer - 1])
        elif scene.world.now < deadline and not (scene.healed and scene.in_sync()):
            behind |= {node for node, count in missing.items() if count >= _COPIED_MIN}
            scene.world.after(_LOOK_SOON_S, self._await_newcomer, at, behind, deadline)
        else:
            self._awaited -= 1

    def _kill_newcomer(self, node: SimNode) -> None:
        self._awaited -= 1
        if node.ready and self._scene.may_end(node):
            node.kill()
            self._scene.later(self._chance.uniform(*SHORT_S), node.start)

    def _stop(self) -> Undo | None:
        node = self._scene.mortal()
        if node is None:
            return None
        node.stop()
        return node.start

    def _pause(self) -> Undo:
        node = self._scene.victim()
        node.pause()
        return node.resume

    def _set_clock(self) -> None:
        self.set_clock_of(self._scene.victim())

    def set_clock_of(self, node: SimNode) -> None:
        """Set wall time, forward or back; the passing of time does not change."""
        node.clock.set(self._chance.randint(*_CLOCK_OFF_MS))
        self._scene.note(f"the clock of {node.host} is off by {node.clock.offset_ms} ms")

    # -- losses ------------------------------------------------------------------------------------------

    def _lose_power(self) -> Undo | None:
        node = self._scene.robbable()
        return None if node is None else self._scene.lose(node, node.lose_power)

    def _lose_disk(self) -> Undo | None:
        if len(self._scene.nodes) < 2 or not self._scene.in_sync():
            return None
        node = self._scene.robbable()
        return None if node is None else self._scene.lose(node, node.lose_disk)

    def _rob_and_leave(self) -> None:
        """Cut a broker's power unnoticed, then stop the others: it is back first, without its messages.

        By then nobody else is listed as in sync, mostly.
        """
        scene = self._scene
        node = scene.robbable()
        if node is None or not all(other.ready for other in scene.nodes):
            return
        others = [other for other in scene.nodes if other is not node]
        power_back = scene.lose(node, node.lose_power)
        for other in others:
            scene.world.after(self._chance.uniform(*_SOON_S), self._end, other)
        back_s = self._chance.uniform(*_BACK_S)
        scene.later(back_s, power_back)
        for other in others:
            scene.later(back_s + self._chance.uniform(*_AFTER_IT_S), partial(self._start, other))

    def _end(self, node: SimNode) -> None:
        scene = self._scene
        if not scene.healed:
            scene.kept_down.add(node.node_id)
            if self._chance.random() < _STOP_CHANCE:
                node.stop()
            else:
                node.kill()

    def _start(self, node: SimNode) -> None:
        self._scene.kept_down.discard(node.node_id)
        node.start()

    def _leave_one_behind(self) -> None:
        """Kill all but one; when it has run alone for a while, kill it, too, and start the others.

        Where unclean elections are allowed, they lead without its messages before it is back.
        """
        scene = self._scene
        if self._last is not None or not scene.in_sync():
            return
        self._last = scene.victim()
        for other in self._others():
            other.kill()
        self._when(self._is_left_alone, partial(self._end_the_last, self._last))

    def _others(self) -> list[SimNode]:
        return [node for node in self._scene.nodes if node is not self._last]

    def _when(self, enough: Callable[[], bool], then: Callable[[], None]) -> None:
        """Do something a little after it becomes possible, unless all faults are over by then."""
        scene = self._scene
        if scene.healed:
            return
        if enough():
            scene.world.after(self._chance.uniform(*_ALONE_S), then)
        else:
            scene.world.after(LOOK_S, self._when, enough, then)

    def _is_left_alone(self) -> bool:
        return self._last is not None and all(
            state is not None and state.isr == (self._last.node_id,) for state in self._states_of_jobs()
        )

    def _is_replaced(self) -> bool:
        others = [node.node_id for node in self._others()]
        return all(state is not None and state.leader in others for state in self._states_of_jobs())

    def _states_of_jobs(self) -> list[PartitionState | None]:
        return [self._scene.store.image().partition(*at) for at in JOBS]

    def _end_the_last(self, last: SimNode) -> None:
        if self._scene.healed:
            return
        last.kill()
        for other in self._others():
            other.start()
        self._when(self._is_replaced, self._start_the_last)

    def _start_the_last(self) -> None:
        """Often its successor has a successor, too, before its own messages can be read again."""
        heir = self._scene.leader_of(self._chance.choice(JOBS))
        if heir is not None and heir is not self._last and self._chance.random() < _HEIR_DIES_CHANCE:
            heir.kill()
            self._scene.later(self._chance.uniform(*_HEIR_AWAY_S), heir.start)
        if self._last is not None:
            self._last.start()
            self._last = None

    def _abandon_and_rob(self) -> Undo | None:
        """Cut a broker off from its peers; when it has to run alone, cut its power."""
        scene = self._scene
        node = scene.robbable()
        if node is None:
            return None
        for other in scene.nodes:
            if other is not node:
                self._part(node.host, other.host)
        scene.note(f"{node.host} is cut off from its peers")
        scene.world.after(LOOK_S, self._rob_when_alone, node, scene.world.now + _ALONE_S_MAX)
        return None

    def _part(self, one: str, other: str) -> None:
        network = self._scene.network
        for pair in ((one, other), (other, one)):
            network.cut(*pair)
            self._scene.later(_ALONE_S_MAX, lambda pair=pair: network.mend(*pair))  # type: ignore[misc]

    def _rob_when_alone(self, node: SimNode, deadline: float) -> None:
        scene = self._scene
        if scene.healed or node.powerless or scene.robbed not in (None, node):
            return
        if scene.is_alone(node) or scene.world.now >= deadline:
            scene.robbed = node
            scene.world.after(self._chance.uniform(*_BETWEEN_S), self._rob, node)
        else:
            scene.world.after(LOOK_S, self._rob_when_alone, node, deadline)

    def _rob(self, node: SimNode) -> None:
        scene = self._scene
        may = scene.robbed is node and scene.may_rob(node)
        if may and not scene.healed and not node.powerless:
            power_back = scene.lose(node, node.lose_power)
            scene.later(self._chance.uniform(*SHORT_S), power_back)
