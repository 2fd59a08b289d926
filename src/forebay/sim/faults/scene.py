"""The state that all faults of a story share, and how they are undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forebay.core.cluster.partition_state import PartitionState
from forebay.core.topic_partition import TopicPartition
from forebay.sim.world.network import SimNetwork
from forebay.sim.world.node import SimNode
from forebay.sim.world.places import SURE
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
        """A broker that has lost something that only other replicas have, and may not be back in sync yet."""
        self.rotten: SimNode | None = None
        """A broker with damaged files; it counts as robbed until its disk is replaced."""
        self.damaged: set[tuple[TopicPartition, int]] = set()
        """Offsets whose batches were ever damaged on a disk."""
        self.kept_down: set[int] = set()
        """Brokers that nobody starts when they have stopped, until the fault is over."""
        self.fault_s: tuple[float, float] | None = None
        """How long faults last; None: some are short and some are long."""
        self.one_is_enough = False
        """True if messages are acknowledged while only one of several replicas is in sync."""
        self._under_way: dict[int, Undo] = {}
        self._last_undo = 0

    def note(self, text: str) -> None:
        self.world.note("fault", text)

    # -- taking back -------------------------------------------------------------------------------------

    def later(self, seconds: float, undo: Undo) -> None:
        """Undo a fault after this time, or when all faults are undone."""
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
        if self.fault_s is not None:
            return self.chance.uniform(*self.fault_s)
        return self.chance.uniform(*(SHORT_S if self.chance.random() < 0.5 else LONG_S))

    # -- victims -----------------------------------------------------------------------------------------

    def victim(self) -> SimNode:
        """Any broker, but often one that leads a partition, which has more effect."""
        if self.chance.random() < 0.5:
            leader = self.leader_of(self.chance.choice(SURE))
            if leader is not None:
                return leader
        return self.chance.choice(self.nodes)

    def leader_of(self, at: TopicPartition) -> SimNode | None:
        for node in self.nodes:
            if node.ready and node.broker is not None:
                state = node.broker.image.partition(*at)
                if state is not None and 0 < state.leader <= len(self.nodes):
                    return self.nodes[state.leader - 1]
        return None

    def missing(self, at: TopicPartition) -> dict[int, int]:
        """The number of committed offsets that each broker with an open replica does not have yet."""
        found = {node.node_id: node.partition(at) for node in self.nodes}
        replicas = {number: replica for number, replica in found.items() if replica is not None}
        committed = max((replica.high_watermark for replica in replicas.values()), default=0)
        return {number: max(committed - replica.log.end_offset, 0) for number, replica in replicas.items()}

    def pair(self) -> tuple[str, str]:
        if len(self.nodes) < 2:
            return self.nodes[0].host, STORE_HOST
        one, other = self.chance.sample(self.nodes, 2)
        return one.host, other.host

    def mortal(self) -> SimNode | None:
        """A broker that may end now. It leaves the in-sync set to the others, but with min.insync.replicas of
        2 it stays eligible, so that no partition depends on the broker that was robbed.
        """
        node = self.victim()
        return node if self.may_end(node) else None

    def may_end(self, node: SimNode) -> bool:
        return not self.one_is_enough or self._may_leave(node)

    def unreliable(self) -> SimNode | None:
        """A broker whose disk may fail now: it can no longer be elected where another seems to be alive."""
        node = self.victim()
        return node if self._may_leave(node) else None

    def _may_leave(self, node: SimNode) -> bool:
        return node is self.robbed or not self.is_taken_for_alive(self.robbed)

    def is_taken_for_alive(self, node: SimNode | None) -> bool:
        """True if the store or a broker still counts a broker as alive that does not serve."""
        if node is None or node.ready:
            return False
        images = [other.broker.image for other in self.nodes if other.ready and other.broker is not None]
        return any(node.node_id in image.brokers for image in (self.store.image(), *images))

    # -- losses ------------------------------------------------------------------------------------------

    def robbable(self) -> SimNode | None:
        """A broker that may lose data that others have, too; from now on no other may."""
        node = self.robbed or self.victim()
        if node.powerless or not self.may_rob(node):
            return None
        self.robbed = node
        return node

    def may_rob(self, node: SimNode) -> bool:
        """True if, for each partition, another replica has what this one loses, and will be asked for it.

        Where the store lists only this broker as in sync, the broker must know that, and so has synced, on a
        disk that has refused nothing. A broker that is no longer in sync, but the only one that may be
        elected, was killed with messages that nobody has synced.
        """
        return all(
            node.node_id not in (*state.isr, *state.eligible)
            or any(self._is_kept_by(other) for other in self._others(node, state))
            or (state.isr == (node.node_id,) and node.sees(topic.name, state) and not node.disk_failed)
            for topic in self.store.image().topics.values()
            for state in topic.partitions
        )

    def _others(self, node: SimNode, state: PartitionState) -> list[SimNode]:
        listed = (*state.isr, *state.eligible)
        return [other for other in self.nodes if other.node_id in listed and other is not node]

    def _is_kept_by(self, other: SimNode) -> bool:
        """True if it stays listed, although one that is being robbed seems to be alive for a while. A broker
        that cannot read its disk does not: it says itself that others should be asked."""
        if other.disk_failed or other.disk.fault is not None:
            return False
        return not self.one_is_enough or (other.node_id in self.store.image().brokers and not other.stopping)

    def lose(self, node: SimNode, loss: Callable[[], None]) -> Undo:
        """Cut a machine's power, and perhaps destroy its disk.

        Where one in-sync replica is enough, a replica that leaves the set while this one seems to be alive
        makes it the only one, without the messages that it has lost. docs/guarantees.md promises nothing
        then. So its lease ends with its power, before any other lease.
        """
        loss()
        if self.one_is_enough:
            self.store.forget(node.node_id)
        return node.power_back

    def is_in_sync(self, node: SimNode) -> bool:
        """True if others may rely on it for some partition."""
        topics = self.store.image().topics.values()
        return any(node.node_id in state.isr for topic in topics for state in topic.partitions)

    def is_alone(self, node: SimNode) -> bool:
        """True if it is the only in-sync replica of some partition."""
        topics = self.store.image().topics.values()
        return any(state.isr == (node.node_id,) for topic in topics for state in topic.partitions)

    def is_last(self, node: SimNode) -> bool:
        """True if some partition has no in-sync replica, and this is the only one that may be elected."""
        topics = self.store.image().topics.values()
        states = (state for topic in topics for state in topic.partitions)
        return any(not state.isr and state.eligible == (node.node_id,) for state in states)
