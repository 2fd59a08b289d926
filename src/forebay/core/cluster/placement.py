"""Decides which brokers hold which partition.

Replicas of a partition are in different racks if there are enough, and on different hosts: brokers that tell
others the same host are workers of one machine. Within that rule, a topic is spread evenly
over all brokers, since its clients work on all of its partitions at once; where a topic leaves the choice
open, the broker with the least load in the whole cluster is taken. The same image always gives the same
answer.

Leaders are levelled at the end: a partition may be led by any of its replicas, so evening them out moves
no data, and with replicas spread evenly it always succeeds to within one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

from forebay.config import DRAINED
from forebay.core.cluster.image import ALL_BROKERS, ClusterImage
from forebay.core.cluster.registration import BrokerRegistration

Assignment = tuple[tuple[int, ...], ...]
Rack = str | int


def place(
    image: ClusterImage, *, partitions: int, replication_factor: int, beside: Iterable[Sequence[int]] = ()
) -> Assignment:
    """The replicas of new partitions of one topic; the first replica is the preferred leader.

    `beside` are the replicas of the partitions that the topic already has.
    """
    assert 0 < replication_factor <= len(image.brokers)
    present, brokers = list(beside), staying(image)
    # A broker that is about to leave is better than none: the replica moves when it is drained again.
    table = _Table(image, brokers if len(brokers) >= replication_factor else image.brokers, present)
    placed = [table.seat(replication_factor) for _ in range(partitions)]
    level_leaders(placed, Counter(replicas[0] for replicas in present))
    return share_heirs(placed, present)


def staying(image: ClusterImage) -> Mapping[int, BrokerRegistration]:
    """The live brokers except the drained ones, which are about to leave."""
    leaving = drained_brokers(image)
    if not leaving:
        return image.brokers
    return {node: broker for node, broker in image.brokers.items() if node not in leaving}


def drained_brokers(image: ClusterImage) -> frozenset[int]:
    """The drained brokers, alive or not."""
    drained = image.broker_config(ALL_BROKERS).overrides.get(DRAINED)
    return frozenset(int(node) for node in drained.split(",")) if drained else frozenset()


def share_heirs(assignments: Iterable[Sequence[int]], present: Iterable[Sequence[int]]) -> Assignment:
    """The same replicas, with followers ordered so that a dead leader's partitions go to all the others.

    The next in order is elected first.
    """
    heirs = Counter((replicas[0], replicas[1]) for replicas in present if len(replicas) > 1)
    shared: list[tuple[int, ...]] = []
    for leader, *followers in assignments:
        followers.sort(key=lambda broker: (heirs[leader, broker], broker))
        heirs.update((leader, heir) for heir in followers[:1])
        shared.append((leader, *followers))
    return tuple(shared)


def racks_of(brokers: Mapping[int, BrokerRegistration]) -> dict[int, Rack]:
    """The failure domain of each broker; a broker without a rack is a domain by itself."""
    return {
        broker.id: broker.id if broker.rack is None else broker.rack
        for broker in sorted(brokers.values(), key=lambda broker: broker.id)
    }


class _Table:
    """Counts the replicas of each broker, of the topic and of all topics, while partitions are placed."""

    def __init__(
        self,
        image: ClusterImage,
        brokers: Mapping[int, BrokerRegistration],
        beside: Iterable[Sequence[int]],
    ) -> None:
        self._racks = racks_of(brokers)
        self._hosts = {node: broker.host for node, broker in brokers.items()}
        self._load = _replica_counts(image)
        self._held = Counter(dict.fromkeys(self._racks, 0))
        self._held_by_rack: Counter[Rack] = Counter()
        self._rack_sizes = Counter(self._racks.values())
        self._leads: Counter[int] = Counter()
        self._together: Counter[tuple[int, int]] = Counter()
        """How often two brokers hold the same partition."""
        self._follows: Counter[tuple[int, int]] = Counter()
        """How often the second follows the first."""
        for replicas in beside:
            self._count(replicas)

    def seat(self, replication_factor: int) -> list[int]:
        """The replicas of one more partition."""
        chosen: list[int] = []
        while len(chosen) < replication_factor:
            chosen.append(min(self._best(chosen), key=lambda broker: self._cost(broker, chosen)))
        leader = min(chosen, key=lambda broker: self._leader_cost(broker, chosen))
        replicas = [leader, *(broker for broker in chosen if broker != leader)]
        self._count(replicas)
        return replicas

    def _best(self, chosen: Sequence[int]) -> list[int]:
        """Brokers whose racks hold the fewest chosen replicas, of these, those whose hosts do, and of these,
        those with the fewest partitions."""
        used = Counter(self._racks[broker] for broker in chosen)
        beside = Counter(self._hosts[broker] for broker in chosen)
        ranks = {
            broker: (used.get(rack, 0), beside.get(self._hosts[broker], 0), self._held[broker])
            for broker, rack in self._racks.items()
            if broker not in chosen
        }
        best = min(ranks.values())
        return [broker for broker, rank in ranks.items() if rank == best]

    def _cost(self, broker: int, chosen: Sequence[int]) -> tuple[float, ...]:
        rack = self._racks[broker]
        return (
            self._held_by_rack[rack] / self._rack_sizes[rack],
            # Replicas with different neighbours share the load of a dead broker.
            sum(self._together[broker, other] for other in chosen),
            self._load[broker],
            broker,
        )

    def _leader_cost(self, broker: int, chosen: Sequence[int]) -> tuple[int, ...]:
        followed = sum(self._follows[broker, other] for other in chosen)
        return self._leads[broker], followed, self._load[broker], broker

    def _count(self, replicas: Sequence[int]) -> None:
        self._leads[replicas[0]] += 1
        for broker in replicas:
            self._held[broker] += 1
            self._follows[replicas[0], broker] += 1
            # A replica may be on a broker that is away, whose rack is not known.
            if broker in self._racks:
                self._held_by_rack[self._racks[broker]] += 1
            for other in replicas:
                self._together[broker, other] += 1


def _replica_counts(image: ClusterImage) -> Counter[int]:
    states = (partition.target for topic in image.topics.values() for partition in topic.partitions)
    return Counter(chain.from_iterable(states))


def level_leaders(assignments: Sequence[list[int]], others: Mapping[int, int]) -> None:
    """Reorders replicas in place until no broker is the first of two partitions more than it must be.

    `others` counts the leaders of partitions that are not to be touched.
    """
    levelling = _Levelling(assignments, others)
    # Each success brings two brokers closer; the sum of squares falls, so this ends.
    while any(levelling.relieve(broker) for broker in levelling.busiest_first()):
        pass


class _Levelling:
    """Partitions as edges from the broker that leads them to those that could.

    Where a busy broker shares no partition with an idle one, leadership moves along a chain: each broker on
    the way gives one partition to the next and takes one from the last.
    """

    def __init__(self, assignments: Sequence[list[int]], others: Mapping[int, int]) -> None:
        self._assignments = assignments
        self._leads = Counter(others)
        self._edges: dict[int, dict[int, set[int]]] = {}
        for index, replicas in enumerate(assignments):
            self._leads[replicas[0]] += 1
            self._link(index, replicas)

    def busiest_first(self) -> list[int]:
        return sorted(self._edges, key=lambda broker: (-self._leads[broker], broker))

    def relieve(self, broker: int) -> bool:
        """Takes one partition from this broker for the good of another; False when none is better off."""
        path = self._path(broker)
        for giver, taker in pairwise(path):
            self._hand_over(min(self._edges[giver][taker]), taker)
        if path:
            self._leads[path[0]] -= 1
            self._leads[path[-1]] += 1
        return bool(path)

    def _path(self, start: int) -> list[int]:
        """The shortest way to a broker that leads at least two partitions fewer."""
        came_from = {start: start}
        queue = [start]
        for broker in queue:
            if self._leads[broker] <= self._leads[start] - 2:
                return _walk_back(came_from, broker)
            edges = self._edges.get(broker, {})
            ahead = sorted(other for other in edges if edges[other] and other not in came_from)
            came_from.update(dict.fromkeys(ahead, broker))
            queue.extend(ahead)
        return []

    def _hand_over(self, index: int, taker: int) -> None:
        replicas = self._assignments[index]
        for other in replicas[1:]:
            self._edges[replicas[0]][other].discard(index)
        place = replicas.index(taker)
        replicas[0], replicas[place] = replicas[place], replicas[0]
        self._link(index, replicas)

    def _link(self, index: int, replicas: Sequence[int]) -> None:
        edges = self._edges.setdefault(replicas[0], {})
        for other in replicas[1:]:
            edges.setdefault(other, set()).add(index)


def _walk_back(came_from: Mapping[int, int], end: int) -> list[int]:
    path = [end]
    while came_from[path[-1]] != path[-1]:
        path.append(came_from[path[-1]])
    return path[::-1]
