"""Invariants inside the brokers: at every moment, and once all faults are over.

The simulator looks where no client can: at every replica's log, and at which brokers lead. Everything below a
replica's high watermark is committed, so it must be the same on all replicas, for ever. A leader epoch
belongs to one broker.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from forebay.broker.node import Node
from forebay.broker.partition.partition import Partition
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.topic_partition import TopicPartition
from forebay.errors import KafkaError, StorageError
from forebay.sim.invariants.upkeep import Upkeep
from forebay.sim.models.share_records import Term
from forebay.sim.world.node import SimNode
from forebay.sim.world.store import SimStore
from forebay.sim.world.virtual_time import World

_Key = tuple[bytes, int]


class Invariants:
    def __init__(
        self, world: World, nodes: Sequence[SimNode], store: SimStore, lasting: Container[TopicPartition]
    ) -> None:
        self._world = world
        self._lasting = lasting
        self._store = store
        self._nodes = nodes
        self._upkeep = Upkeep(world, nodes, lasting)
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self._committed: dict[_Key, dict[int, tuple[int, int]]] = {}
        """By topic id and partition: CRC and leader epoch of the committed batch at an offset."""
        self._checked: dict[tuple[int, int, bytes, int], int] = {}
        """How far a replica has been compared, by node, its process, topic id and partition."""

    def check(self) -> None:
        for node, broker in self._brokers():
            for partition in broker.partitions.all():
                if partition.is_leader:
                    self._check_leader(node, partition)
                if (partition.topic, partition.index) in self._lasting and not partition.closed:
                    self._check_committed(node, partition)
        self._upkeep.check()

    def acknowledged(self, host: str, asked_at: float) -> None:
        """A broker has acknowledged a batch that it was sent at that time, or later."""
        since = self._store.doubts_since(host)
        if since is not None and since <= asked_at:
            self._world.fail(f"{host} acknowledged a batch, and was not sure of its lease since {since:.3f}")

    def term(self, host: str, at: TopicPartition) -> Term | None:
        """The term in which a host believes that it leads a partition; None if it does not."""
        node = next((node for node in self._nodes if node.host == host), None)
        if node is None or node.broker is None or not node.ready:
            return None
        try:
            epoch = node.broker.partitions.get(*at).leader_epoch
        except KafkaError:
            return None
        newest = self._store.image().partition(*at)
        return node.starts, epoch, newest is not None and newest.leader_epoch == epoch

    def quotas_of(self, host: str) -> object:
        """The quotas in force on a host: another object after each change, and while it does not serve."""
        node = next((node for node in self._nodes if node.host == host), None)
        if node is None or node.broker is None or not node.ready:
            return object()
        return node.broker.image.quotas

    def _brokers(self) -> Iterator[tuple[SimNode, Node]]:
        for node in self._nodes:
            if node.ready and node.broker is not None:
                yield node, node.broker

    def _check_leader(self, node: SimNode, partition: Partition) -> None:
        term = (partition.topic_id, partition.index, partition.leader_epoch)
        other = self._leaders.setdefault(term, node.node_id)
        if other != node.node_id:
            self._world.fail(f"{partition} is led by {other} and by {node.node_id} in epoch {term[2]}")

    def _check_committed(self, node: SimNode, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        place = (node.node_id, node.starts, *key)
        start = max(self._checked.get(place, 0), partition.log.start_offset)
        if start >= partition.high_watermark or partition.config.compacted:
            return
        committed = self._committed.setdefault(key, {})
        try:
            for _, header in partition.log.files.scan(start):
                if header.next_offset > partition.high_watermark:
                    break
                found = (header.crc, header.partition_leader_epoch)
                before = committed.setdefault(header.base_offset, found)
                if before != found:
                    self._world.fail(
                        f"{partition}@{start} is committed as {before}, and {found} on {node.host}"
                    )
                    return
                start = header.next_offset
        except (OSError, StorageError):
            return  # a disk that cannot be read tells nothing
        self._checked[place] = start

    # -- recovery ----------------------------------------------------------------------------------------

    def in_sync(self) -> bool:
        """True if every broker serves, and the store says that all replicas of all partitions are in sync."""
        serving = all(node.ready and not node.paused for node in self._nodes)
        return serving and not any(self._lagging(self._store.image()))

    def converged(self) -> bool:
        """True if, in addition, every broker knows it."""
        return self.in_sync() and not any(
            lagging for _, broker in self._brokers() for lagging in self._lagging(broker.image)
        )

    def settled(self) -> bool:
        """True if, in addition, all replicas of a partition have the same end, and all of it is committed."""
        if not self.converged():
            return False
        ends: dict[_Key, set[tuple[int, int]]] = {}
        for _, broker in self._brokers():
            for partition in broker.partitions.all():
                end = partition.log.end_offset, partition.high_watermark
                ends.setdefault((partition.topic_id, partition.index), set()).add(end)
        return all(len(found) == 1 and min(found)[0] == min(found)[1] for found in ends.values())

    def compacted(self) -> bool:
        return self._upkeep.compacted()

    def _lagging(self, image: ClusterImage) -> Iterator[tuple[str, PartitionState]]:
        for topic in image.topics.values():
            for state in topic.partitions:
                complete = set(state.isr) == set(state.replicas)
                if state.leader < 0 or not complete or state.adding or state.removing:
                    yield topic.name, state

    def describe(self) -> str:
        """The state of the cluster, to explain why it does not recover."""
        parts = [f"not ready: {[node.host for node in self._nodes if not node.ready]}"]
        for node, broker in self._brokers():
            behind = [
                f"{name}-{state.index} leader {state.leader} isr {state.isr} of {state.replicas}"
                for name, state in self._lagging(broker.image)
            ]
            if behind:
                parts.append(f"{node.host} sees {behind}")
        return "; ".join(parts)
