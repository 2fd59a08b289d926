"""What all faults of a story know of, and how they are taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forebay.sim.actors.client import TopicPartition
from forebay.sim.workload import SURE
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.node import SimNode
from forebay.sim.world.store import STORE_HOST, SimStore
from forebay.sim.world.virtual_time import World

Undo = Callable[[], None]
Fault = Callable[[], Undo | None]

SHORT_S = (0.2, 3.0)
LONG_S = (3.0, 14.0)
LOOK_S = 0.25


class Scene:
    def __init__(
        self,
        world: World,
        network: SimNetwork,
        store: SimStore,
        nodes: Sequence[SimNode],
        in_sync: Callable[[], bool],
    ) -> None:
        self.world = world
        self.network = network
        self.store = store
        self.nodes = nodes
        self.in_sync = in_sync
        self.chance = world.chance("faults")
        self.healed = False
        self.robbed: SimNode | None = None
        """Has lost something that only other replicas have, and may not be back in sync yet."""
        self.rotten: SimNode | None = None
        """Has damaged files, and is the one that was robbed until its disk is replaced."""
        self._under_way: dict[int, Undo] = {}
        self._last_undo = 0

    def note(self, text: str) -> None:
        self.world.note("fault", text)

    # -- taking back -------------------------------------------------------------------------------------

    def later(self, seconds: float, undo: Undo) -> None:
        """Take something back after so long, or when everything is."""
        self._last_undo += 1
        self._under_way[self._last_undo] = undo
        self.world.after(seconds, self._undo, self._last_undo)

    def _undo(self, number: int) -> None:
        undo = self._under_way.pop(number, None)
        if undo is not None:
            undo()

    def undo_all(self) -> None:
        self.healed = True
        for number in list(self._under_way):
            self._undo(number)

    def a_while(self) -> float:
        return self.chance.uniform(*(SHORT_S if self.chance.random() < 0.5 else LONG_S))

    # -- victims -----------------------------------------------------------------------------------------

    def victim(self) -> SimNode:
        """Any broker, but often one that leads something, for that hurts more."""
        if self.chance.random() < 0.5:
            leader = self._leader_of(self.chance.choice(SURE))
            if leader is not None:
                return leader
        return self.chance.choice(self.nodes)

    def _leader_of(self, at: TopicPartition) -> SimNode | None:
        for node in self.nodes:
            if node.ready and node.broker is not None:
                state = node.broker.image.partition(*at)
                if state is not None and 0 < state.leader <= len(self.nodes):
                    return self.nodes[state.leader - 1]
        return None

    def pair(self) -> tuple[str, str]:
        if len(self.nodes) < 2:
            return self.nodes[0].host, STORE_HOST
        one, other = self.chance.sample(self.nodes, 2)
        return one.host, other.host

    def mortal(self) -> SimNode | None:
        """A broker that may end now: not while one that was robbed is still taken for alive by its lease.

        Who goes then leaves the in-sync set to it, and with that the messages that it has lost.
        """
        node = self.victim()
        return node if self.robbed in (None, node) or not self.is_taken_for_alive(self.robbed) else None

    def is_taken_for_alive(self, node: SimNode | None) -> bool:
        return node is not None and not node.ready and node.node_id in self.store.image().brokers

    def robbable(self) -> SimNode | None:
        """A broker that may lose what others have, too; from now on no other may."""
        node = self.robbed or self.victim()
        if node.powerless or not self.knows_that_it_is_alone(node):
            return None
        self.robbed = node
        return node

    def knows_that_it_is_alone(self, node: SimNode) -> bool:
        """Where the store lists only this broker as in sync, it must have heard of it, and so synced."""
        for topic in self.store.image().topics.values():
            for state in topic.partitions:
                if state.isr == (node.node_id,) and not node.sees(topic.name, state):
                    return False
        return True

    def is_in_sync(self, node: SimNode) -> bool:
        """Whether others may rely on it, of some partition."""
        topics = self.store.image().topics.values()
        return any(node.node_id in state.isr for topic in topics for state in topic.partitions)

    def is_alone(self, node: SimNode) -> bool:
        """Whether it is the only one in sync of some partition."""
        topics = self.store.image().topics.values()
        return any(state.isr == (node.node_id,) for topic in topics for state in topic.partitions)
