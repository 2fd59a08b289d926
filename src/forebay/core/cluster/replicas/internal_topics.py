"""Adds replicas to the brokers' internal topics when the cluster has grown since they were created.

Groups and transactions are kept in internal topics. These are created for the first client that needs them,
perhaps while only the first of three brokers is running. No administrator chose one replica for them, so the
broker adds more by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.placement import racks_of, staying
from forebay.core.cluster.replicas.reassignment import reassign, reassigning
from forebay.core.cluster.topics.topic_requests import DEFAULT, default_replicas


class Widening:
    """The partitions of internal topics that were checked since a broker joined.

    Each is checked once, so a replica that an administrator removes later, to drain a broker, is not added
    again. A new controller checks all: a topic may have been made, and brokers may have joined, while there
    was no controller.
    """

    def __init__(self) -> None:
        self._brokers: frozenset[int] = frozenset()
        self._settled: set[tuple[bytes, int]] = set()

    def plan(self, image: ClusterImage, replication_factor: int) -> list[PartitionPut]:
        """The reassignments to begin now; moving partitions, and those without leader, are checked later."""
        if not image.brokers.keys() <= self._brokers:
            self._settled.clear()
        self._brokers = frozenset(image.brokers)
        present = {
            (topic.topic_id, state.index): not reassigning(state) and state.leader in image.brokers
            for topic, state in _internal(image)
        }
        if present.keys() <= self._settled:
            return []
        changes = [
            change for change in widen(image, replication_factor) if _place(change) not in self._settled
        ]
        waiting = set(map(_place, changes))
        self._settled |= {
            place for place, is_at_rest in present.items() if is_at_rest and place not in waiting
        }
        return changes

    def begun(self, changes: Iterable[PartitionPut]) -> None:
        """Note that these were committed."""
        self._settled.update(map(_place, changes))


def widen(image: ClusterImage, replication_factor: int = DEFAULT) -> list[PartitionPut]:
    """Reassignments that give internal topics the replicas that they would get today."""
    wanted = default_replicas(image) if replication_factor == DEFAULT else replication_factor
    wanted = min(wanted, len(staying(image)))
    load = _load(image)
    return [
        change
        for topic, state in _internal(image)
        if len(state.replicas) < wanted and state.leader in image.brokers and not reassigning(state)
        for change in _widened(image, topic, state, wanted, load)
    ]


def _internal(image: ClusterImage) -> Iterator[tuple[TopicImage, PartitionState]]:
    for name in INTERNAL_TOPICS:
        if topic := image.topics.get(name):
            yield from ((topic, state) for state in topic.partitions)


def _place(change: PartitionPut) -> tuple[bytes, int]:
    return change.topic_id, change.state.index


def _widened(
    image: ClusterImage, topic: TopicImage, state: PartitionState, wanted: int, load: Counter[int]
) -> list[PartitionPut]:
    racks = racks_of(staying(image))
    target = list(state.replicas)
    while len(target) < wanted:
        used = Counter(racks.get(broker) for broker in target)
        free = [broker for broker in racks if broker not in target]
        if not free:
            break  # replicas on brokers that are down take the places
        chosen = min(free, key=lambda broker: (used[racks[broker]], load[broker], broker))
        load[chosen] += 1
        target.append(chosen)
    return reassign(image, topic.name, state.index, target)


def _load(image: ClusterImage) -> Counter[int]:
    return Counter(
        broker for topic in image.topics.values() for state in topic.partitions for broker in state.replicas
    )
